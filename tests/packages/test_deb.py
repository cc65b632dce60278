"""The Debian packages, as a machine's administrator meets them: built, checked by lintian, installed, started and
watched by systemd, upgraded, removed, purged. usage: test_deb.py SOURCE FOLDER"""

import glob
import json
import os
import re
import subprocess
import sys

from container import Container, check, done, environment, need

source, folder = sys.argv[1:3]
need("dpkg-buildpackage", "dh", "debootstrap", "systemd-nspawn", "nsenter", "pgrep")

with open(source + "/CMakeLists.txt", encoding="utf-8") as f:
    version = re.search(r"project\(worker VERSION (\S+)", f.read())[1]
with open(source + "/packaging/debian/changelog", encoding="utf-8") as f:
    check("the packages' version is the program's", f.readline().startswith("worker (1:%s) " % version), version)
subprocess.run([source + "/packaging/deb", folder], env=environment(), check=True)
(package,), (sdk,) = glob.glob(folder + "/worker_*.deb"), glob.glob(folder + "/worker-sdk_*.deb")
try:
    r = subprocess.run(["lintian", "--fail-on", "error,warning", package, sdk], capture_output=True, text=True)
    check("lintian has neither errors nor warnings", r.returncode == 0, r.stdout + r.stderr)
except FileNotFoundError:
    print("not checked: lintian is not installed")


def show(c, unit, name):
    return c.good("systemctl", "show", unit, "--property=" + name, "--value").strip()


def answers(c, port=9400):
    return c.run("worker", "status", "--url", "http://127.0.0.1:%d" % port).returncode == 0


def command_line(c):
    """What a user gets by the package alone."""
    said = c.run("worker", "run", "--raw", "--temperature", "0", "--max-tokens", "8", "--prompt", "Rain")
    check("worker run", said.returncode == 0 and said.stdout.strip(), said.stderr)
    listed = json.loads(c.good("worker", "plugin", "list", "--json"))["plugins"]
    check("its plugins are found", len(listed) >= 9 and all(p["state"] == "found" for p in listed), listed)
    commands = [n.split()[0] for n in c.good("worker", "--help").split("commands:\n")[1].split("\n\n")[0].splitlines()]
    pages = {os.path.basename(p) for p in glob.glob(c.root + "/usr/share/man/man1/worker*")}
    check(
        "a manual page for each command",
        pages == {"worker.1.gz"} | {"worker-%s.1.gz" % n for n in commands} and len(commands) > 20,
        pages,
    )
    check("settings are a file for the administrator", os.path.isfile(c.root + "/etc/default/worker"))


def service(c):
    """An instance: its settings, its rights, its ends."""
    c.write("/etc/default/worker-haiku", "WORKER_PORT=9400\nWORKER_MAX_SEQUENCES=3\nWORKER_MODEL_ID=rain\n")
    c.write(
        "/etc/systemd/system/worker@haiku.service.d/test.conf",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=0\n",
    )
    c.good("systemctl", "daemon-reload")
    started = c.run("systemctl", "enable", "--now", "worker@haiku")
    if started.returncode:
        check("started", False, c.run("journalctl", "--no-pager", "-u", "worker@haiku").stdout)
        done()
    check("it is started when it is ready", answers(c), c.run("journalctl", "-u", "worker@haiku").stdout)
    check("the settings are its own", "rain" in c.good("worker", "models", "--url", "http://127.0.0.1:9400"))
    pid = show(c, "worker@haiku", "MainPID")
    status = dict(line.split(":\t", 1) for line in c.good("cat", "/proc/%s/status" % pid).splitlines() if ":\t" in line)
    check("a user of its own", status["Uid"].split()[0] not in ("0", "65534"), status["Uid"])
    check(
        "no capabilities, no new privileges, a filter of system calls",
        int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2",
        status,
    )
    score = c.run("systemd-analyze", "security", "--no-pager", "--threshold=19", "worker@haiku.service")
    check("systemd-analyze security: below 2.0", score.returncode == 0, score.stdout[-300:])
    check("systemd watches it", show(c, "worker@haiku", "WatchdogUSec") == "2min")

    # Connections are open when it is started again: its port is free all the same, without a socket unit.
    talk = [
        "import socket,sys",
        "s=[socket.create_connection(('127.0.0.1',9400)) for _ in range(8)]",
        "print(1,flush=True)",
    ]
    talker = subprocess.Popen(
        ["nsenter", "--target", c.leader, "--all", "python3", "-c", "\n".join([*talk, "sys.stdin.read()"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    talker.stdout.read(2)
    c.good("systemctl", "restart", "worker@haiku")
    check("started again while clients hold connections", show(c, "worker@haiku", "MainPID") != pid and answers(c))
    talker.communicate()

    restarts = int(show(c, "worker@haiku", "NRestarts"))
    c.good("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "worker@haiku")
    c.until(
        "killed, it is started again", lambda: int(show(c, "worker@haiku", "NRestarts")) == restarts + 1 and answers(c)
    )
    c.write("/etc/systemd/system/worker@haiku.service.d/watch.conf", "[Service]\nWatchdogSec=3\n")
    c.good("systemctl", "daemon-reload")
    c.good("systemctl", "restart", "worker@haiku")
    c.good("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "worker@haiku")
    journal = ("journalctl", "--no-pager", "-u", "worker@haiku")
    c.until("hanging, it is started again", lambda: "Failed with result 'watchdog'" in c.good(*journal))
    c.until("and answers", lambda: answers(c))
    os.remove(c.root + "/etc/systemd/system/worker@haiku.service.d/watch.conf")
    c.good("systemctl", "daemon-reload")
    c.good("systemctl", "restart", "worker@haiku")

    c.write("/etc/default/worker-wrong", "WORKER_PORT=1\n")
    check("a wrong setting fails the start", c.run("systemctl", "start", "worker@wrong").returncode != 0)
    check(
        "and is no reason to try again",
        show(c, "worker@wrong", "ExecMainStatus") == "2" and show(c, "worker@wrong", "NRestarts") == "0",
    )


ROUTER = """
import json, sys, urllib.request
def ask(port, **members):
    body = {"prompt": " ".join("rain snow wind moon tide leaf".split() * 20), "temperature": 0, **members}
    request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    return json.load(urllib.request.urlopen(request, timeout=60))
first = ask(9410, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
second = ask(9420, max_tokens=8, kv_transfer_params=first["kv_transfer_params"])
print(second["choices"][0]["text"] == ask(9400, max_tokens=8)["choices"][0]["text"])
"""


def apart(c):
    """Two instances hand a prompt over by shared memory, inside of their sandboxes, as one user."""
    for name, role, port in (("read", "prefill", 9410), ("write", "decode", 9420)):
        c.write(
            "/etc/default/worker-" + name, "WORKER_ROLE=%s\nWORKER_KV_TRANSPORT=shm\nWORKER_PORT=%d\n" % (role, port)
        )
        c.write("/etc/systemd/system/worker@%s.service.d/user.conf" % name, "[Service]\nUser=worker-apart\n")
    c.good("systemctl", "daemon-reload")
    c.good("systemctl", "start", "worker@read", "worker@write")
    said = c.run("python3", "-c", ROUTER)
    check("prefill and decode apart: the same answer", said.stdout == "True\n", said.stdout + said.stderr)
    figures = c.good("worker", "metrics", "--url", "http://127.0.0.1:9420").split("\n")
    shm = [line for line in figures if line.startswith('worker_kv_transfer_duration_seconds_count{backend="shm"')]
    check(
        "its pages came by shared memory",
        len(shm) == 1 and shm[0].endswith(" 1"),
        [n for n in figures if "_kv_tr" in n],
    )


with Container(source) as c:
    before = c.files()
    c.boot()
    install = ("apt-get", "install", "-qq", "--yes", "--no-install-recommends")
    c.good(*install, c.put(package), c.put(sdk))
    command_line(c)
    check("the SDK's headers", os.path.isfile(c.root + "/usr/include/worker/plugin.h"))
    service(c)
    apart(c)
    pid = show(c, "worker@haiku", "MainPID")
    c.good(*install, "--reinstall", c.put(package))
    c.until("an upgrade starts it again", lambda: show(c, "worker@haiku", "MainPID") != pid and answers(c))
    state = c.root + "/var/lib/private/worker/haiku"
    check("its state is in a folder of its own", os.path.isdir(state))
    c.good("apt-get", "remove", "-qq", "--yes", "worker")
    check("removed, it has ended", show(c, "worker@haiku", "ActiveState") in ("inactive", "failed"))
    check(
        "and settings and state are kept", os.path.isdir(state) and os.path.isfile(c.root + "/etc/default/worker-haiku")
    )
    c.good("apt-get", "purge", "-qq", "--yes", "--autoremove", "worker", "worker-sdk")
    left = sorted(c.files() - before)
    check("purged, nothing is left", not left, left)
    check("nor anything else lost", not sorted(before - c.files()), sorted(before - c.files())[:20])
done()
