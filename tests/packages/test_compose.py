"""The compose file: valid, and what its containers would run works: two workers with its environment and nginx with its
configuration before them. usage: test_compose.py SOURCE PROGRAM"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from container import PATIENCE, check, done, environment, free_ports
from images import stages_of

source, program = sys.argv[1:3]
nginx = shutil.which("nginx", path="%s:/usr/sbin:%s/build-tools/nginx/usr/sbin" % (os.environ["PATH"], source))
try:
    import compose_spec
    import yaml
except ImportError as e:
    print("skipped: PyPI's packages compose-spec and PyYAML are not installed (%s)" % e)
    sys.exit(77)
if not nginx:
    print("skipped: nginx is not installed")
    sys.exit(77)

folder = source + "/packaging/compose"
with open(folder + "/compose.yaml", encoding="utf-8") as f:
    text = f.read()
compose_spec.PyCompose.from_yaml(text).validate()
services = yaml.safe_load(text)["services"]
(_, image) = stages_of(source + "/packaging/image/Dockerfile")
check("a router and two workers", sorted(services) == ["one", "router", "two"] and services["one"] == services["two"])
check("workers can be reached by the router alone", services["one"]["networks"] == ["workers"]
      and yaml.safe_load(text)["networks"]["workers"]["internal"] and "ports" not in services["one"])  # fmt: skip
check("from this machine alone", services["router"]["ports"] == ["127.0.0.1:8000:8000"])
check("roots that are only read", all(s["read_only"] and s["cap_drop"] == ["ALL"] for s in services.values()))
context = os.path.normpath(folder + "/" + services["one"]["build"]["context"])
check("it is built of this checkout", os.path.samefile(context, source)
      and os.path.isfile(context + "/" + services["one"]["build"]["dockerfile"]))  # fmt: skip


class Service:
    def __init__(self, work, port):
        variables = {**environment(), **image.environment(), **services["one"]["environment"], "WORKER_PORT": str(port)}
        self.log = open("%s/log%d" % (work, port), "wb")
        command = [program, *image.command("CMD")]
        self.process = subprocess.Popen(command, env=variables, stderr=self.log, stdout=subprocess.DEVNULL)
        self.port = port


def ask(port, method, path, body=None):
    """(status, headers, text), or None where nobody listens."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        return r.status, r.read().decode()
    except OSError:
        return None
    finally:
        c.close()


def until_ready(port):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = ask(port, "GET", "/readyz")
        if answer and answer[0] == 200:
            return True
        time.sleep(0.1)
    return False


def complete(stream=False, tokens=8):
    body = {"prompt": "Rain", "max_tokens": tokens, "temperature": 0, "stream": stream}
    return ask(front, "POST", "/v1/completions", body)


with tempfile.TemporaryDirectory(dir="/tmp") as work:
    os.chmod(work, 0o755)
    ports = free_ports(3)
    front = ports.pop()
    with open(folder + "/nginx.conf", encoding="utf-8") as f:
        conf = f.read()
    for old, new in (("one:7531", "127.0.0.1:%d" % ports[0]), ("two:7531", "127.0.0.1:%d" % ports[1]),
                     ("listen 8000", "listen 127.0.0.1:%d" % front), ("/tmp/", work + "/")):  # fmt: skip
        check("nginx.conf has " + old, old in conf)
        conf = conf.replace(old, new)
    with open(work + "/nginx.conf", "w", encoding="utf-8") as f:
        f.write(conf)
    workers = [Service(work, port) for port in ports]
    router = subprocess.Popen([nginx, "-c", work + "/nginx.conf", "-e", "stderr", "-g", "daemon off;"])
    try:
        check("both workers come up", all([until_ready(port) for port in ports]))
        check("and the router", until_ready(front))
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(complete())) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check("16 requests at once", len(answers) == 16 and all(a and a[0] == 200 for a in answers), answers)
        texts = {json.loads(a[1])["choices"][0]["text"] for a in answers}
        check("the same answer by both", len(texts) == 1, texts)
        events = [line for line in complete(stream=True)[1].split("\n") if line.startswith("data: ")]
        check("a stream", len(events) > 4 and events[-1] == "data: [DONE]", events)
        seen = [ask(p, "GET", "/worker/jobs")[1] for p in ports]
        check("both were asked", all('"job_id"' in s for s in seen), seen)
        workers[0].process.send_signal(signal.SIGTERM)
        again = [complete() for _ in range(8)]
        check("one ends: the other answers", all(a and a[0] == 200 for a in again), again)
        check("it ends well", workers[0].process.wait(PATIENCE) == 0)
        workers[1].process.send_signal(signal.SIGKILL)
        workers[1].process.wait(PATIENCE)
        nobody = complete()
        check("without workers it says so", nobody and nobody[0] == 502, nobody)
    finally:
        router.terminate()
        for w in workers:
            w.process.kill()
            w.process.wait()
            w.log.close()
        check("the router ends", router.wait(PATIENCE) == 0)
done()
