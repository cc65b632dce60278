#!/usr/bin/env python3
"""Clients as PyPI has them, unmodified, against a worker with the embedded model: agents, frameworks and command lines
that speak one of its interfaces. Too large for CI: to be run before a release, with access to PyPI.

usage: clients.py PROGRAM [NAME ...]; a name is a line of versions.txt and a script of this folder, all by default."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serve"))
from service import Worker, check, done  # noqa: E402

PACKAGES = os.path.join(HERE, "..", "..", "build-tools", "clients")


def versions():
    with open(os.path.join(HERE, "versions.txt"), encoding="utf-8") as f:
        lines = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    return {name: packages.split() for name, packages in (line.split(":", 1) for line in lines)}


def installed(name, packages):
    """The folder with the client's packages; they are installed when the list of them has changed."""
    folder = os.path.join(PACKAGES, name)
    stamp = os.path.join(folder, "installed")
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read().split() != packages:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "--upgrade", *packages]
        subprocess.run(command, check=True)
        with open(stamp, "w", encoding="utf-8") as f:
            f.write("\n".join(packages))
    return folder


def run(w, name, packages):
    paths = [installed(name, packages), os.path.join(HERE, "..", "serve")]
    environment = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(paths),
        WORKER_URL="http://127.0.0.1:%d" % w.port,
        PROGRAM=os.path.abspath(sys.argv[1]),
    )
    r = subprocess.run(
        [sys.executable, os.path.join(HERE, name + "_client.py")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    print(r.stdout, end="")
    check("%s as a whole" % name, r.returncode == 0, r.stdout[-2000:])


wanted = sys.argv[2:] or list(versions())
with Worker(sys.argv[1], "--model-alias", "*") as worker:
    for each in wanted:
        run(worker, each, versions()[each])
done()
