"""A Debian 12 of a test's own, in a folder, with systemd as its first process: what a user's machine is to a package.

It needs root, debootstrap (packaging/base) and systemd-nspawn. Its network is its own and reaches nothing."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 120  # seconds until something that hangs fails the test; no check is about time
failures = []


def check(name, good, detail=""):
    """One line a check; the exit status of done() is what all of them make."""
    print(("ok      " if good else "FAILED  ") + name + ("" if good or detail == "" else ": " + str(detail)[-2000:]))
    sys.stdout.flush()
    if not good:
        failures.append(name)


def done():
    if failures:
        print("%d failed: %s" % (len(failures), ", ".join(failures)))
    sys.exit(1 if failures else 0)


def need(*programs, root=True):
    """Skips the test, by name, where a program or the rights are missing."""
    missing = [p for p in programs if not shutil.which(p, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")]
    if missing:
        print("skipped: not installed: " + ", ".join(missing))
        sys.exit(77)
    if root and os.geteuid() != 0:
        print("skipped: this test makes a machine of its own in a folder, which root alone can")
        sys.exit(77)


def environment():
    """Of the test's, nothing that the worker or its build would read."""
    return {k: v for k, v in os.environ.items() if not k.startswith("WORKER_")}


def free_ports(n):
    """Ports of 127.0.0.1 that nobody listens at."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Container:
    """`with Container(source) as c`: a fresh system in c.root. c.run(...) runs a program in it, before and after
    c.boot()."""

    def __init__(self, source):
        self.source, self.process, self.leader = source, None, None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(dir="/var/tmp")  # not /tmp, which a memory file system may be
        self.root = self.folder + "/root"
        subprocess.run([self.source + "/packaging/base", self.root], check=True)
        return self

    def __exit__(self, *_):
        self.halt()
        shutil.rmtree(self.folder)

    def nspawn(self, *arguments):
        return ["systemd-nspawn", "--quiet", "--directory=" + self.root, "--register=no", "--keep-unit", *arguments]

    def boot(self):
        """Starts systemd and waits until it is up."""
        self.log = open(self.folder + "/boot", "wb")
        self.process = subprocess.Popen(
            self.nspawn("--private-network", "--console=pipe", "--boot"),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = subprocess.run(
                ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True
            ).stdout.split()
            if found:
                self.leader = found[0]
                state = self.run("systemctl", "is-system-running").stdout.strip()
                if state in ("running", "degraded"):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        self.halt()
        with open(self.folder + "/boot", encoding="utf-8", errors="replace") as f:
            print("skipped: systemd does not start in a container here: " + f.read()[-500:])
        shutil.rmtree(self.folder)
        sys.exit(77)

    def run(self, *command, input=None):
        """The finished process of a command in the container: returncode, stdout, stderr."""
        if self.leader:
            enter = ["nsenter", "--target", self.leader, "--all", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        else:
            enter = self.nspawn("--private-network", "--pipe")
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, input=input, timeout=PATIENCE, errors="replace"
        )

    def good(self, *command, input=None):
        """The standard output of a command that must succeed."""
        r = self.run(*command, input=input)
        if r.returncode:
            check(" ".join(command), False, r.stdout + r.stderr)
            done()
        return r.stdout

    def until(self, what, question):
        """Asks until the answer is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if question():
                check(what, True)
                return
            time.sleep(0.1)
        check(what, False, "not within %d s" % PATIENCE)

    def write(self, path, text):
        path = self.root + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def put(self, path, folder="/root"):
        """Copies a file of the host into the container, and gives its path there."""
        shutil.copy(path, self.root + folder)
        return folder + "/" + os.path.basename(path)

    def files(self):
        """All that lies in it, but for what systems write for themselves: caches, logs, lists of packages."""
        own = ("/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var/cache", "/var/log", "/var/tmp", "/var/lib/apt",
               "/var/lib/dpkg", "/var/lib/systemd", "/var/lib/private", "/etc/ld.so.cache", "/etc/machine-id",
               "/var/lib/dbus")  # fmt: skip
        found = set()
        for folder, folders, names in os.walk(self.root):
            here = folder[len(self.root) :]
            folders[:] = [n for n in folders if here + "/" + n not in own]
            found.update(here + "/" + n for n in folders + names if here + "/" + n not in own)
        private = self.root + "/var/lib/private"  # systemd's; what is in it is a service's
        return found | {"/var/lib/private/" + n for n in (os.listdir(private) if os.path.isdir(private) else [])}

    def halt(self):
        """Ends it as a power button would."""
        if not self.process:
            return
        if self.leader and self.process.poll() is None:
            os.kill(int(self.leader), signal.SIGRTMIN + 4)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process, self.leader = None, None
        self.log.close()
