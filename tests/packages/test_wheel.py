"""The wheel: `pip install` in a clean environment of a machine that has none of the libraries, by root and by a user
whose umask lets his group write; then the program runs, and nothing but glibc is the machine's own. usage:
test_wheel.py SOURCE BUILD"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from container import Container, check, done, environment, need

source, build = sys.argv[1:3]
need("debootstrap", "systemd-nspawn", "nsenter", "pgrep", "patchelf", "readelf", "dpkg-query")

with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Container(source) as c:
    for again in ("/one", "/two"):
        made = [sys.executable, source + "/packaging/wheel", build, folder + again]
        subprocess.run(made, env=environment(), check=True, stdout=subprocess.DEVNULL)
    (path,), (second,) = glob.glob(folder + "/one/*.whl"), glob.glob(folder + "/two/*.whl")
    with open(path, "rb") as a, open(second, "rb") as b:
        check("the same bytes each time", a.read() == b.read())
    print("%.1f MB" % (os.path.getsize(path) / 1e6))
    wheel = c.put(path, "/var/tmp")
    c.boot()
    c.good("useradd", "--create-home", "own")
    user = ("setpriv", "--reuid=own", "--regid=own", "--init-groups")
    for place, run, umask in (("/opt/root", (), "022"), ("/home/own/env", user, "002")):
        name = " by a user" if run else " by root"
        c.good(*run, "sh", "-c", "umask %s; python3 -m venv %s" % (umask, place))
        before = {f for f in c.files() if f.startswith(place)}
        pip = place + "/bin/pip"
        said = c.run(*run, "sh", "-c", "umask %s; %s install --no-index %s" % (umask, pip, wheel))
        check("pip install" + name, said.returncode == 0, said.stdout + said.stderr)
        program = place + "/bin/worker"
        text = c.run(*run, program, "run", "--raw", "--temperature", "0", "--max-tokens", "8", "--prompt", "Rain")
        check("worker run" + name, text.returncode == 0 and text.stdout.strip(), text.stderr)
        plugins = json.loads(c.good(*run, program, "plugin", "list", "--json"))["plugins"]
        good = [p for p in plugins if p["state"] == "found" and p["path"].startswith(place)]
        check("all plugins are its own" + name, len(good) == len(plugins) >= 9, plugins)
        for binary in (program, *(c.good("find", place + "/libexec", "-type", "f").split())):
            used = re.findall(r"(?:=> )?(/\S+) \(0x", c.good("ldd", binary))
            foreign = [os.path.basename(p) for p in used if not os.path.normpath(p).startswith(place)]
            glibc = re.compile(r"(ld-linux-x86-64|libc|libm|libpthread|libresolv)\.so\.\d")
            check("%s: of the machine glibc alone" % binary, all(glibc.fullmatch(n) for n in foreign), used)
        if run:
            c.good("systemd-run", "--unit=wheel", "--uid=own", "--gid=own", program, "serve", "--port", "9400")
            ask = (program, "status", "--url", "http://127.0.0.1:9400")
            c.until("worker serve, and worker-fetch asks it", lambda: c.run(*ask).returncode == 0)
            c.good("systemctl", "stop", "wheel")
        c.good(*run, pip, "uninstall", "--yes", "worker")
        left = {f for f in c.files() if f.startswith(place)} - before
        check("pip uninstall leaves no file" + name, not [f for f in left if not os.path.isdir(c.root + f)], left)
done()
