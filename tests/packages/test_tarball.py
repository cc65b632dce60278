"""The tarball: unpacked into any folder, by root or not, it runs with the libraries that the README names and nothing
else of this machine. usage: test_tarball.py SOURCE BUILD CPACK"""

import glob
import json
import re
import shutil
import subprocess
import sys
import tempfile

from container import Container, check, done, environment, need

source, build, cpack = sys.argv[1:4]
need("debootstrap", "systemd-nspawn", "nsenter", "pgrep")

with open(source + "/README.md", encoding="utf-8") as f:
    said = re.search(r"`apt-get install (lib[^`]*)` and\s+(libutf8proc2) \(Debian 12\)", f.read())
libraries = said[1].split() + [said[2]]

with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Container(source) as c:
    subprocess.run(
        [cpack, "-G", "TGZ", "--config", build + "/CPackConfig.cmake", "-B", folder],
        env=environment(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (path,) = glob.glob(folder + "/worker-*.tar.gz")
    top = path.rsplit("/", 1)[1].removesuffix(".tar.gz")
    c.boot()
    c.good("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *libraries)
    shutil.copy(path, c.root + "/var/tmp")
    c.good("mkdir", "-p", "/opt/two words")
    c.good("tar", "-C", "/opt/two words", "-xf", "/var/tmp/" + top + ".tar.gz")
    c.good("useradd", "--create-home", "own")
    user = ("setpriv", "--reuid=own", "--regid=own", "--init-groups")
    c.good(*user, "sh", "-c", "umask 002; mkdir /home/own/bin && tar -C /home/own/bin -xf /var/tmp/" + top + ".tar.gz")
    for where, run in (("/opt/two words/", ()), ("/opt/two words/", user), ("/home/own/bin/", user)):
        program = where + top + "/bin/worker"
        name = where + (" as a user" if run else " as root")
        text = c.run(*run, program, "run", "--raw", "--temperature", "0", "--max-tokens", "8", "--prompt", "Rain")
        check("worker run, " + name, text.returncode == 0 and text.stdout.strip(), text.stderr)
        plugins = json.loads(c.good(*run, program, "plugin", "list", "--json"))["plugins"]
        good = [p for p in plugins if p["state"] == "found" and p["path"].startswith(where)]
        check("all plugins are its own, " + name, len(good) == len(plugins) >= 9, plugins)
    c.good("systemd-run", "--unit=tarball", "--uid=own", "--gid=own", program, "serve", "--port", "9400")
    ask = (program, "status", "--url", "http://127.0.0.1:9400")
    c.until("worker serve, and worker-fetch asks it", lambda: c.run(*ask).returncode == 0)
    c.good("systemctl", "stop", "tarball")
    check("it ends", c.run("systemctl", "is-failed", "tarball").stdout.strip() == "inactive")
    man = c.root + "/opt/two words/" + top + "/share/man/man1/worker*.1"
    check("manual pages", len(glob.glob(man)) > 20)
done()
