"""The program under a supervisor: sd_notify datagrams on a real socket, and the unit file. usage: test_supervisor.py
PROGRAM SOURCE"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

from service import LONG, PATIENCE, Job, Worker, cancelled, check, done

program, source = sys.argv[1:3]

with tempfile.TemporaryDirectory() as folder:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(folder + "/notify")
    s.settimeout(PATIENCE)
    with Worker(
        program,
        *LONG,
        "--max-sequences",
        "1",
        "--shutdown-timeout-sec",
        "600",
        environment={"NOTIFY_SOCKET": folder + "/notify", "WATCHDOG_USEC": "3000000"},
    ) as w:
        first = s.recv(4096).decode()
        while first == "WATCHDOG=1":  # it may come while the model is loading
            first = s.recv(4096).decode()
        check("READY=1 with a status", first.startswith("READY=1\nSTATUS=") and "port %d" % w.port in first, first)
        check("only then is it ready", w.get("/readyz")[0] == 200)
        check("the watchdog is fed", s.recv(4096) == b"WATCHDOG=1" and s.recv(4096) == b"WATCHDOG=1")
        long = Job(w, "long").until("token")
        w.process.terminate()
        said = s.recv(4096)
        while said == b"WATCHDOG=1":
            said = s.recv(4096)
        check("STOPPING=1 on SIGTERM, before the end", said.startswith(b"STOPPING=1\n"), said)
        check("the stream goes on", cancelled(long.cancel()), long.events[-1:])
        check("exit status 0", w.status() == 0, w.said())

    with Worker(
        program,
        "--wait-for-commit",
        "--model-dir",
        source + "/models/haiku",
        wait=False,
        environment={"NOTIFY_SOCKET": folder + "/notify"},
    ) as w:
        check("waiting for a commit is started", s.recv(4096) == b"READY=1\nSTATUS=waits for POST /worker/commit")
        check("commit", w.post("/worker/commit", {"model_ref": "haiku-q4_k_m.gguf"})[0] == 200)
        said = s.recv(4096).decode()
        check("then the status says what it serves", said.startswith("STATUS=") and "port %d" % w.port in said, said)
        check("ends", w.end() == 0, w.said())

    unit = open(source + "/systemd/worker@.service.in", encoding="utf-8").read()
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    stop = next(int(line.split("=")[1]) for line in unit.splitlines() if line.startswith("TimeoutStopSec="))
    drain = int(start.split("--shutdown-timeout-sec ")[1].split()[0])
    check("the unit drains for 5 s, and is given longer before it is killed", drain == 5 and stop >= 2 * drain, start)
    options = start.replace("ExecStart=@CMAKE_INSTALL_FULL_BINDIR@/worker serve", "").split()
    with Worker(program, *options, environment={"NOTIFY_SOCKET": folder + "/notify"}) as w:
        check("the options of the unit are the program's", w.get("/readyz")[0] == 200)
        check("ends with status 0", w.end() == 0, w.said())

    if shutil.which("systemd-analyze"):
        check(
            "unit",
            all(
                line in unit
                for line in (
                    "Type=notify",
                    "WatchdogSec=",
                    "DynamicUser=yes",
                    "NoNewPrivileges=yes",
                    "ProtectSystem=strict",
                    "DevicePolicy=closed",
                    "DeviceAllow=/dev/nvidiactl rw",
                )
            ),
        )
        path = folder + "/worker@.service"
        with open(path, "w", encoding="utf-8") as f:
            f.write(
                unit.replace("@CMAKE_INSTALL_FULL_BINDIR@/worker", program).replace("Documentation=man:worker(1)\n", "")
            )  # as installed; the manual page is not, here
        r = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
        mine = [line for line in (r.stdout + r.stderr).splitlines() if "worker" in line]
        check("systemd-analyze verify", not mine, mine)
        r = subprocess.run(
            ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=19", path],
            capture_output=True,
            text=True,
        )
        check("its sandbox scores below 2.0 of systemd-analyze security", r.returncode == 0, r.stdout[-200:] + r.stderr)
    else:
        print("not checked: systemd-analyze is not installed")
done()
