"""The package worker-cuda, of the modules of a build with CUDA: checked by lintian, and found by an installed worker.
usage: test_cuda.py SOURCE BUILD FOLDER"""

import glob
import json
import os
import subprocess
import sys

from container import Container, check, done, environment, need

source, build, folder = sys.argv[1:4]
need("dpkg-buildpackage", "dh", "debootstrap", "systemd-nspawn")

subprocess.run([source + "/packaging/deb", folder, "--cuda", build], env=environment(), check=True)
(package,), (cuda,) = glob.glob(folder + "/worker_*.deb"), glob.glob(folder + "/worker-cuda_*.deb")
try:
    r = subprocess.run(["lintian", "--fail-on", "error,warning", cuda], capture_output=True, text=True)
    check("lintian has neither errors nor warnings", r.returncode == 0, r.stdout + r.stderr)
except FileNotFoundError:
    print("not checked: lintian is not installed")
said = subprocess.run(["dpkg-deb", "--field", cuda, "Recommends"], capture_output=True, text=True, check=True).stdout
check("it recommends cuBLASLt of its version", "libcublas-1" in said and "libcublaslt1" in said, said)
made = {os.path.basename(p) for p in glob.glob(build + "/plugins/*-cuda.so")}
with Container(source) as c:
    c.good("apt-get", "install", "-qq", "--yes", "--no-install-recommends", c.put(package, "/var/tmp"))
    c.good("dpkg", "--install", c.put(cuda, "/var/tmp"))
    plugins = json.loads(c.good("worker", "plugin", "list", "--json"))["plugins"]
    found = {os.path.basename(p["cuda"]) for p in plugins if p.get("cuda")}
    check("the kernels of each format are found", found == made and found, (found, made))
    modules = glob.glob(c.root + "/usr/lib/*/worker/device-cuda.so")
    check("and the device", len(modules) == 1, modules)
    where = subprocess.run(["readelf", "--dynamic", *modules], capture_output=True, text=True, check=True).stdout
    paths = [line.split("[")[1].rstrip("]").split(":") for line in where.splitlines() if "RUNPATH" in line]
    check("it looks for CUDA's libraries in absolute folders", all(p.startswith("/") for n in paths for p in n), paths)
    c.good("dpkg", "--purge", "worker-cuda")
    check("purged, they are gone", not glob.glob(c.root + "/usr/lib/*/worker/**/*-cuda.so", recursive=True))
done()
