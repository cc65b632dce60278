"""The Helm chart: rendered by Helm itself, checked with Kubernetes' schemas, and its pod's settings, arguments, keys
and probes tried with the real program. usage: test_chart.py SOURCE PROGRAM"""

import base64
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from container import PATIENCE, check, done, environment, free_ports

source, program = sys.argv[1:3]
try:
    import helm_python
    import kubernetes_validate
    import yaml
except ImportError as e:
    print("skipped: PyPI's packages helm-python-sdk and kubernetes-validate are not installed (%s)" % e)
    sys.exit(77)

folder = source + "/packaging/helm/worker"
KUBERNETES = "1.31"
chart = helm_python.Chart.load(folder)


def read(name):
    with open(folder + "/" + name, encoding="utf-8") as f:
        return f.read()


def leaves(values, path=()):
    """The paths of all values: a list, an empty object and whatever is not an object are values."""
    if isinstance(values, dict) and values:
        for name, inner in values.items():
            yield from leaves(inner, (*path, name))
    else:
        yield ".".join(path)


def render(values, name="chat"):
    """The objects that Helm makes, by kind."""
    made = chart.render(values, name=name, namespace="models", is_install=True)
    found = {}
    for path, text in made.items():
        for document in yaml.safe_load_all(text) if path.endswith(".yaml") else ():
            if document:
                check("one %s" % document["kind"], document["kind"] not in found)
                found[document["kind"]] = document
    return found


def refused(name, values, word):
    try:
        chart.render(values, name="chat", namespace="models")
        check(name, False, "it was rendered")
    except helm_python.HelmError as e:
        check(name, word in str(e), e)


def container(objects):
    (c,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return c


def settings_of(objects):
    """The environment of the pod's container."""
    found = dict(objects["ConfigMap"]["data"])
    found.update((e["name"], e["value"]) for e in container(objects).get("env", ()))
    return found


def lawful(name, objects):
    """What holds for every rendering."""
    for kind, document in objects.items():
        try:
            if kind != "PodMonitor":  # a custom resource: Kubernetes has no schema of it
                kubernetes_validate.validate(document, KUBERNETES, strict=True)
            check("%s: %s" % (name, kind), True)
        except kubernetes_validate.ValidationError as e:
            check("%s: %s" % (name, kind), False, e)
        check("%s: %s: labels" % (name, kind), document["metadata"]["labels"]["app.kubernetes.io/name"] == "worker")
    spec = objects["Deployment"]["spec"]
    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
    selectors = {
        "Deployment": "selector.matchLabels",
        "Service": "selector",
        "NetworkPolicy": "podSelector.matchLabels",
        "PodMonitor": "selector.matchLabels",
    }
    for kind, at in selectors.items():
        selector = objects.get(kind, {}).get("spec")
        for part in at.split(".") if selector else ():
            selector = selector[part]
        check("%s: %s selects the pods" % (name, kind), not selector or selector.items() <= labels.items(), selector)
    check("%s: not root, no token, no service links" % name, pod["securityContext"]["runAsNonRoot"]
          and pod["securityContext"]["runAsUser"] and pod["automountServiceAccountToken"] is False
          and pod["enableServiceLinks"] is False)  # fmt: skip
    for c in [*pod["containers"], *pod.get("initContainers", ())]:
        limits = c["securityContext"]
        check("%s: %s: a root that is only read, nothing more allowed" % (name, c["name"]),
              limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
              and limits["capabilities"]["drop"] == ["ALL"])  # fmt: skip
        volumes = {v["name"] for v in pod["volumes"]}
        check("%s: %s: volumes" % (name, c["name"]), {m["name"] for m in c["volumeMounts"]} <= volumes)
    said = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, env=environment(), check=True)
    known = set(re.findall(r"\bWORKER_[A-Z0-9_]+", said.stdout))
    unknown = set(settings_of(objects)) - known
    check("%s: the program knows all variables" % name, not unknown, unknown)
    data = settings_of(objects)
    wait = int(data["WORKER_DRAIN_GRACE_SEC"]) + int(data["WORKER_SHUTDOWN_TIMEOUT_SEC"])
    check("%s: time to end" % name, pod["terminationGracePeriodSeconds"] > wait)
    c = container(objects)
    ports = {p["name"]: p["containerPort"] for p in c["ports"]}
    check("%s: ports" % name, {k: str(v) for k, v in ports.items()}
          == {"http": data["WORKER_PORT"], "admin": data["WORKER_ADMIN_PORT"]}, ports)  # fmt: skip
    probes = {k: c[k]["httpGet"]["path"] for k in ("startupProbe", "readinessProbe", "livenessProbe")}
    check(
        "%s: probes" % name,
        probes == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
        and all(c[k]["httpGet"]["port"] == "admin" for k in probes),
        probes,
    )


def ask(port, path, key=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    c.request("GET", path, headers={"Authorization": "Bearer " + key} if key else {})
    r = c.getresponse()
    return r.status, r.read().decode()


def pod_runs(name, work, objects, key=None):
    """Runs what the pod would: its first container's command, then the worker with the pod's environment, arguments and
    ports (free ones of this machine). Its probes and its autoscaler's metric are then asked for."""
    pod, data = objects["Deployment"]["spec"]["template"]["spec"], settings_of(objects)
    port, admin = free_ports(2)
    place = {"/secrets": work + "/secrets", "/state": work + "/state"}
    shutil.rmtree(place["/state"], ignore_errors=True)
    os.mkdir(place["/state"])

    def here(text):
        for path, real in place.items():
            text = text.replace(path + "/", real + "/")
        return text

    for first in pod.get("initContainers", ()):
        subprocess.run([here(part) for part in first["command"]], check=True)
    data = {k: here(v) for k, v in data.items()}
    data.update(WORKER_PORT=str(port), WORKER_ADMIN_PORT=str(admin), WORKER_DRAIN_GRACE_SEC="0")
    with open(work + "/log", "wb") as log:
        worker = subprocess.Popen([program, *container(objects)["args"]], env={**environment(), **data}, stderr=log)
    try:
        end, ready = time.monotonic() + PATIENCE, 0
        while ready != 200 and worker.poll() is None and time.monotonic() < end:
            try:
                ready = ask(admin, "/readyz")[0]
            except OSError:
                time.sleep(0.1)
        with open(work + "/log", encoding="utf-8") as log:
            check("%s: the pod becomes ready" % name, ready == 200, log.read())
        if ready != 200:
            return
        check("%s: and is alive" % name, ask(admin, "/livez")[0] == 200)
        role = json.loads(ask(admin, "/readyz")[1])["role"]
        check("%s: it has its role" % name, role == data["WORKER_ROLE"], role)
        metrics = ask(admin, "/metrics", key)
        check("%s: the autoscaler's figure" % name, "\nworker_scheduler_queue_depth " in metrics[1], metrics[0])
        if key:
            check("%s: nobody without a key" % name, ask(port, "/v1/models")[0] == 401)
        check("%s: who may is served" % name, ask(port, "/v1/models", key)[0] == 200)
    finally:
        worker.terminate()
        check("%s: it ends" % name, worker.wait(PATIENCE) == 0)


values = yaml.safe_load(read("values.yaml"))
overlays = {n: yaml.safe_load(read("values-%s.yaml" % n)) for n in ("prefill", "decode")}
templates = "".join(read("templates/" + n) for n in sorted(os.listdir(folder + "/templates")))
used = set(re.findall(r"\.Values\.([A-Za-z_.]*[A-Za-z])", templates))
paths = set(leaves(values))
dead = [p for p in paths if not any(p == u or p.startswith(u + ".") for u in used)]
check("every value is used", not dead, dead)
wild = [u for u in used if not any(p == u or p.startswith(u + ".") for p in paths) and u != "settings.OIDC_ISSUER"]
check("every value that is used has a default", not wild, wild)
for name, overlay in overlays.items():
    foreign = [p for p in leaves(overlay) if p not in paths and not p.startswith("podLabels.")]
    check("values-%s.yaml sets values of the chart" % name, not foreign, foreign)

for name, overlay in (("unified", {}), *overlays.items()):
    report = helm_python.lint(folder, {**overlay, "insecure": True}, strict=True, kube_version="v%s.0" % KUBERNETES)
    said = [m for m in report["messages"] if m["severity"] > 1]
    check("helm lint, " + name, not said and not report["errors"], report)

refused("keys have to be said", {}, "who may use the worker?")
refused("a value that does not exist", {"insecure": True, "replica": 2}, "replica")
refused("a role that does not exist", {"insecure": True, "role": "both"}, "role")
refused("a policy without its passphrase", {"keys": {"policy": "e30="}}, "keys.passphrase")

with tempfile.TemporaryDirectory() as work:
    os.mkdir(work + "/secrets")
    passphrase = "a passphrase of this test"
    with open(work + "/secrets/passphrase", "w", encoding="utf-8") as f:
        f.write(passphrase)
    os.chmod(work + "/secrets/passphrase", 0o600)
    policy = ["--policy-file", work + "/secrets/policy", "--policy-passphrase-file", work + "/secrets/passphrase"]
    make = [program, "admin", "api-keys", "create", "chat", "--set", "scopes=inference,metrics", *policy]
    made = subprocess.run(make, capture_output=True, text=True, env=environment(), check=True)
    key = json.loads(made.stdout)["secret"]
    with open(work + "/secrets/policy", "rb") as f:
        kept = base64.b64encode(f.read()).decode()

    everything = {
        "keys": {"policy": kept, "passphrase": passphrase},
        "model": {"file": "chat.gguf", "id": "chat", "volume": {"persistentVolumeClaim": {"claimName": "models"}}},
        "settings": {"MAX_SEQUENCES": 32, "NO_PREFIX_CACHE": True},
        "extraArgs": ["--model-alias", "small"],
        "allowedHosts": ["models.example.org"],
        "gpu": {"count": 1},
        "runtimeClassName": "nvidia",
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "a"},
        "service": {"annotations": {"a": "b"}},
        "autoscaling": {"enabled": True},
        "podMonitor": {"enabled": True, "labels": {"a": "b"}, "keySecret": {"name": "key", "key": "metrics"}},
        "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"app": "router"}}}]},
    }
    objects = render(everything)
    lawful("everything", objects)
    kinds = ["ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodMonitor", "Secret", "Service"]
    check("all kinds of objects", sorted(objects) == kinds, sorted(objects))
    secret = {k: base64.b64decode(v) for k, v in objects["Secret"]["data"].items()}
    check("the Secret holds the policy", secret["policy"] == base64.b64decode(kept))
    check("and its passphrase", secret["passphrase"] == passphrase.encode())
    check("autoscaled: nobody else says how many", "replicas" not in objects["Deployment"]["spec"])
    scaled = objects["HorizontalPodAutoscaler"]["spec"]
    check("what is scaled", scaled["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"])
    check("a GPU", container(objects)["resources"]["limits"]["nvidia.com/gpu"] == 1
          and settings_of(objects)["WORKER_DEVICE"] == "cuda")  # fmt: skip

    one = render({"keys": {"policy": kept, "passphrase": passphrase}})
    lawful("unified", one)
    pod_runs("unified", work, one, key)
    for name, overlay in overlays.items():
        objects = render({**overlay, "insecure": True, "podMonitor": {"enabled": True}}, name=name)
        lawful(name, objects)
        pod_runs(name, work, objects)
        limits = container(objects)["resources"]["limits"]
        data = settings_of(objects)
        pools = (data["WORKER_PREFILL_POOL_SIZE"], data["WORKER_DECODE_POOL_SIZE"], data["WORKER_KV_TRANSPORT"])
        replicas = objects["Deployment"]["spec"]["replicas"]
        if name == "prefill":
            check("prefill: 2 pods of 8 GiB, no decode pool", replicas == 2 and limits["memory"] == "8Gi"
                  and pools == ("64", "0", "shm"), pools)  # fmt: skip
        else:
            check("decode: 4 pods, no prefill pool", replicas == 4 and pools == ("0", "4", "shm"), pools)
done()
