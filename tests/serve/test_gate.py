"""The gate as clients and operators meet it: keys and scopes on every route, rates, guardrails, tenants, the audit log,
the administrator's interface and `worker admin`."""

import json
import os
import re
import subprocess
import sys

from gated import bearer, stored_key, verify
from service import CHAT, HAIKU, LONG, Job, Worker, cancelled, check, done, events, scratch

program, root = sys.argv[1:3]
folder = scratch("worker-gate-")
policy, passphrase = os.path.join(folder, "policy"), os.path.join(folder, "passphrase")
with open(passphrase, "w", encoding="ascii") as f:
    os.chmod(passphrase, 0o600)
    f.write("correct horse battery staple\n")
KEPT = ("--policy-file", policy, "--policy-passphrase-file", passphrase)


def admin(*words, environment=None):
    """(exit status, JSON or None, standard error) of worker admin."""
    done_ = subprocess.run(
        [program, "admin", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env=dict(os.environ, **(environment or {})),
    )
    return done_.returncode, json.loads(done_.stdout) if done_.stdout.strip() else None, done_.stderr


def create(key, *sets):
    return stored_key(program, policy, key, *sets, options=KEPT[2:])


# ---- the file, and how a worker starts with it -------------------------------------------------------------

SECRET = {
    "root": create("root", "scopes=admin,inference"),
    "alice": create("alice", "scopes=inference", "tenant=blue"),
    "bob": create("bob", "scopes=inference"),
    "reader": create("reader", "scopes=admin:read"),
    "looker": create("looker", "scopes=inference,admin:read"),
    "scraper": create("scraper", "scopes=metrics"),
    "embedder": create("embedder", "scopes=embed"),
    "nothing": create("nothing"),
    "few": create("few", "scopes=inference", "limits.requests_per_minute=3"),
    "thrifty": create("thrifty", "scopes=inference", "limits.tokens_per_minute=400"),
    "metered": create("metered", "scopes=inference", "limits.tokens_per_minute=100000"),
    "urgent": create("urgent", "scopes=inference", "max_priority=3"),
}
with open(policy, "rb") as f:
    stored = f.read()
check("keys are well formed", all(re.fullmatch("wk_[0-9A-Za-z]{36}", s) for s in SECRET.values()))
check("the policy's file shows nothing", b"alice" not in stored and not stored.startswith(b"{"))
check("the policy's file is its owner's", os.stat(policy).st_mode & 0o777 == 0o600)


def refused(text, *arguments, environment=None):
    w = subprocess.run(
        [program, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        env=dict(os.environ, **(environment or {})),
    )
    check("the start is refused: " + text, w.returncode != 0 and text in w.stderr, w.stderr)


wrong = os.path.join(folder, "wrong")
with open(wrong, "w", encoding="ascii") as f:
    os.chmod(wrong, 0o600)
    f.write("incorrect horse")
refused("passphrase", "--policy-file", policy, "--policy-passphrase-file", wrong)
refused("GATE_FAILED", "--policy-file", policy)
refused("needs keys or tokens", "--host", "0.0.0.0")
refused("has no key", "--policy-file", os.path.join(folder, "empty"))
refused("has no key", "--host", "0.0.0.0", "--policy-file", os.path.join(folder, "empty"))
refused("others can see a command line", "--policy-file", policy, "--policy-passphrase", "correct horse battery")
refused("is of --oidc-issuer", "--oidc-audience", "worker")
os.chmod(wrong, 0o644)
refused("others than its owner", "--policy-file", policy, "--policy-passphrase-file", wrong)
with Worker(program, "--host", "0.0.0.0", "--insecure") as w:
    check("--insecure serves all the same", w.get("/worker/jobs")[0] == 200 and "exposed" in w.said())

# ---- who may what ------------------------------------------------------------------------------------------


def scope_table():
    """(method, path, scopes) of the table that the service itself asks; one of them is enough."""
    with open(os.path.join(root, "serve", "scopes.c"), encoding="utf-8") as f:
        rows = re.findall(r'\{ "(\w+)", "([^"]+)", SCOPE_(\w+(?: \| SCOPE_\w+)*) \}', f.read())
    return [(method, path, scopes.split(" | SCOPE_")) for method, path, scopes in rows]


HAS = {"INFERENCE": "alice", "EMBED": "embedder", "METRICS": "scraper", "ADMIN_READ": "reader", "ADMIN": "root"}


def routes(w):
    forms = 0
    for method, path, scopes in scope_table():
        if path in ("/shutdown", "/worker/commit"):
            ask = {"unknown": 1}  # refused for its body, once it is let in
        else:
            ask = {} if method in ("POST", "PUT", "PATCH") else None
        full = path + ("nobody" if path.endswith("/") and path != "/" else "")

        def status(headers):
            if path == "/worker/live":  # goes on
                return w.some_events(path, 0, headers)[0]
            return w.ask(method, full, ask, headers=headers)[0]

        none, bad = status({}), status({"x-api-key": "wk_" + "0" * 36, "X-Forwarded-For": "1.2.3.4"})
        forms += 1
        if scopes == ["OPEN"]:
            check("%s %s is everybody's" % (method, path), none in (200, 503), none)
            continue
        for scope in scopes:
            right = SECRET[HAS[scope]]
            check(
                "%s %s asks for %s" % (method, path, scope),
                none in (401, 429)
                and bad in (401, 429)
                and status(bearer(SECRET["nothing"])) == 403
                and status(bearer(right)) not in (401, 403)
                and status({"x-api-key": right}) not in (401, 403),
                (none, bad, status(bearer(SECRET["nothing"])), status(bearer(right))),
            )
        if scopes == ["ADMIN"]:
            check("%s %s is not for readers" % (method, path), status(bearer(SECRET["reader"])) == 403)
    check("all routes were asked", forms > 25)


def credentials(w):
    good = SECRET["alice"]
    flipped = good[:10] + ("a" if good[10] != "a" else "b") + good[11:]
    for name, headers, expected in (
        ("Bearer", bearer(good), 200),
        ("bearer in small letters", {"Authorization": "bearer " + good}, 200),
        ("two spaces", {"Authorization": "Bearer  " + good}, 200),
        ("x-api-key", {"x-api-key": good}, 200),
        ("the same twice", dict(bearer(good), **{"x-api-key": good}), 200),
        ("two keys", dict(bearer(good), **{"x-api-key": SECRET["bob"]}), 401),
        ("Basic", {"Authorization": "Basic " + good}, 401),
        ("no scheme", {"Authorization": good}, 401),
        ("empty", {"Authorization": "Bearer "}, 401),
        ("a longer scheme", {"Authorization": "Bearers " + good}, 401),
        ("one letter short", bearer(good[:-1]), 401),
        ("one letter long", bearer(good + "a"), 401),
        ("another letter", bearer(flipped), 401),
        ("other case", bearer(good.swapcase()), 401),
        ("10 KB", bearer("wk_" + "a" * 10000), 401),
        ("a token", bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."), 401),
    ):
        status, answer, body = w.ask("GET", "/v1/models", headers=headers)
        check("credentials: " + name, status in ((expected,) if expected == 200 else (401, 429)), (status, body))
        if status == 401:
            check("401 says how: " + name, answer.get("www-authenticate", "").startswith("Bearer"))
            check(
                "... and whether a key is missing: " + name, ("no key follows" in str(body)) == (name == "empty"), body
            )
    status, _, _ = w.ask("GET", "/v1/models?api_key=" + good)
    check("a key in the query is none", status in (401, 429), status)
    check("no secret is in the log", not any(s in w.said() for s in SECRET.values()))


def attempts(w):
    """From one address: ten failures at once, then 429; a good key is always let in."""
    statuses = [w.ask("GET", "/v1/models", headers=bearer("wrong"))[0] for _ in range(30)]
    status, headers, _ = w.ask("GET", "/v1/models", headers=bearer("wrong"))
    check("failures are limited", 429 in statuses and status == 429, statuses)
    check("and say when", int(headers["retry-after"]) >= 1)
    check("good keys are not", w.ask("GET", "/v1/models", headers=bearer(SECRET["bob"]))[0] == 200)


def preflight(w):
    headers = {"Origin": "https://chat.example.org", "Access-Control-Request-Method": "POST"}
    status, answer, _ = w.ask("OPTIONS", "/v1/chat/completions", headers=headers)
    check("OPTIONS comes before keys", status == 204 and "access-control-allow-methods" in answer, status)


def health(w):
    status, document = w.get("/health")
    check("health without a key: the state alone", status == 200 and "model" not in document, document)
    _, _, body = w.ask("GET", "/health", headers=bearer(SECRET["alice"]))
    check("health with a key: all", "model" in json.loads(body))
    check("a bad key is no key", w.ask("GET", "/health", headers=bearer("wk_wrong"))[0] in (401, 429))


# ---- how much ----------------------------------------------------------------------------------------------


def chat(w, key, **more):
    status, headers, body = w.ask("POST", "/v1/chat/completions", dict(CHAT, **more), headers=bearer(SECRET[key]))
    return status, headers, json.loads(body) if headers["content-type"].startswith("application/json") else body


def rates(w):
    answers = [chat(w, "few", max_tokens=1) for _ in range(4)]
    check("three requests a minute", [a[0] for a in answers] == [200, 200, 200, 429], [a[0] for a in answers])
    headers, error = answers[3][1:]
    check("429 has Retry-After", 1 <= int(headers["retry-after"]) <= 20, headers)
    check("429 has OpenAI's form", error["error"]["code"] == "rate_limit_exceeded", error)
    check(
        "rates are told",
        answers[0][1]["x-ratelimit-limit-requests"] == "3" and answers[0][1]["x-ratelimit-remaining-requests"] == "2",
        answers[0][1],
    )
    status, headers, _ = chat(w, "thrifty", max_tokens=300)
    check("tokens are reserved", status == 200 and headers["x-ratelimit-limit-tokens"] == "400", (status, headers))
    left = int(headers["x-ratelimit-remaining-tokens"])
    status, headers, _ = chat(w, "thrifty", max_tokens=10)
    check("and given back", status == 200 and int(headers["x-ratelimit-remaining-tokens"]) > left, (left, headers))
    status, headers, error = chat(w, "thrifty", max_tokens=450)
    check("more than the limit is refused for good", status == 400 and "fewer" in error["error"]["message"], error)
    check(
        "priorities are the key's",
        w.ask("POST", "/execute", dict(HAIKU, job_id="p", priority=4), headers=bearer(SECRET["urgent"]))[0] == 400,
    )


# ---- tenants -----------------------------------------------------------------------------------------------


class Theirs:
    """The worker as one key's client, for Job."""

    def __init__(self, w, key):
        self.port, self.w, self.headers = w.port, w, bearer(SECRET[key])

    def until(self, what):
        self.w.until(what)


def tenants(w):
    long = {"prompt": "The quick brown fox jumps over the lazy dog. " * 20, "max_tokens": 4, "temperature": 0}

    def cached(key):
        _, _, body = w.ask("POST", "/execute", dict(long, job_id="long-" + key), headers=bearer(SECRET[key]))
        return events(body.decode())[-1][1]["tokens_cached"]

    check("a prompt is cached for its key", cached("alice") == 0 and cached("alice") > 0)
    check("and for nobody else", cached("bob") == 0 and cached("bob") > 0)

    body = json.dumps(dict(HAIKU, job_id="the-same", max_tokens=5))
    for key in ("alice", "bob"):
        status, _, _ = w.ask("POST", "/execute", body.encode(), headers=bearer(SECRET[key]))
        check("%s may call a job as others do" % key, status == 200)

    def jobs(key):
        _, _, text = w.ask("GET", "/worker/jobs", headers=bearer(SECRET[key]))
        return [j["job_id"] for j in json.loads(text)["jobs"]]

    w.ask("POST", "/execute", dict(HAIKU, job_id="of-alice", max_tokens=3), headers=bearer(SECRET["alice"]))
    check("one's own jobs", "of-alice" in jobs("alice") and jobs("alice").count("the-same") == 1)
    check("nobody else's", "of-alice" not in jobs("bob"), jobs("bob"))
    check("an administrator's: all", jobs("reader").count("the-same") == 2 and "of-alice" in jobs("reader"))
    look = [w.ask("GET", "/worker/jobs/of-alice", headers=bearer(SECRET[k]))[0] for k in ("alice", "bob", "reader")]
    check("a job by name", look == [200, 404, 200], look)

    def cancel(key):
        return json.loads(w.ask("POST", "/cancel", {"job_id": "endless"}, headers=bearer(SECRET[key]))[2])["found"]

    job = Job(Theirs(w, "alice"), "endless").until("started")
    check("nobody cancels another's job", not cancel("bob") and not cancel("looker"))
    check("one's own, everybody does", cancel("alice") and cancelled(job.over()))
    job = Job(Theirs(w, "alice"), "endless").until("started")
    check("an administrator, any", cancel("root") and cancelled(job.over()))


# ---- guardrails --------------------------------------------------------------------------------------------


def put(w, path, body):
    status, _, text = w.ask("PUT", path, body, headers=bearer(SECRET["root"]))
    return status, json.loads(text)


def guardrails(w):
    _, _, before = chat(w, "alice")
    text = before["choices"][0]["message"]["content"]
    words = [x for x in re.findall(r"[A-Za-z]{4,}", text)]
    word = words[len(words) // 2]
    status, answer = put(
        w, "/admin/guardrails", {"blocklist": ["Forbidden Fruit", "*qux", "straße", word], "block_output": True}
    )
    check("guardrails are replaced", status == 200, answer)
    for name, prompt in (
        ("as it is", "eat the forbidden fruit now"),
        ("other case, wide letters", "eat the FORBIDDEN \uff26ruit now"),
        ("zero-width joiners", "eat the forbid\u200dden fruit"),
        ("a soft hyphen", "forbid\u00adden fruit"),
        ("within a word, as it asks for", "a fluxquxes"),
        ("folded", "Hauptstrasse, and STRASSE"),
    ):
        status, _, answer = chat(w, "alice", messages=[{"role": "user", "content": prompt}])
        check("blocked: " + name, status == 403 and answer["error"]["code"] == "guardrail_blocked", (status, answer))
    status, _, ids = w.ask("POST", "/tokenize", {"content": "eat the forbidden fruit"}, headers=bearer(SECRET["alice"]))
    ids = json.loads(ids)["tokens"] if status == 200 else []
    status, _, answer = w.ask(
        "POST", "/v1/completions", {"prompt": ids, "max_tokens": 2}, headers=bearer(SECRET["alice"])
    )
    check("blocked: as ids", status == 403, (status, answer))
    status, _, answer = chat(w, "alice", messages=[{"role": "user", "content": "forbidden fruits are fine"}])
    check("a longer word is another one", status == 200 or "answer" in answer["error"]["message"], answer)

    status, _, answer = chat(w, "alice")
    check("an answer is blocked", status == 403 and answer["error"]["code"] == "guardrail_blocked", (status, answer))
    status, _, body = w.ask("POST", "/v1/chat/completions", dict(CHAT, stream=True), headers=bearer(SECRET["alice"]))
    body = body.decode()
    said = "".join(c["delta"].get("content") or "" for _, e in events(body) if "choices" in e for c in e["choices"])
    check("no byte of it leaves", status == 200 and text.startswith(said) and word not in said, said)
    check("the stream says why", "guardrail_blocked" in body, body[-300:])
    at = text.index(word)
    check("what comes before it does", len(said) >= at - 40 or not said == "", (said, text))
    headers = chat(w, "metered", messages=[{"role": "user", "content": "eat the forbidden fruit"}])[1]
    check("a refused request keeps no tokens", headers["x-ratelimit-remaining-tokens"] == "100000", headers)
    status, answer = put(w, "/admin/guardrails", {"blocklist": ["\u200d"]})
    check("a phrase of nothing is refused", status == 400, answer)
    status, answer = put(w, "/admin/guardrails", {})
    check("guardrails are gone", status == 200 and chat(w, "alice")[0] == 200)
    opa = {"opa": {"url": "http://127.0.0.1:9", "path": "worker/allow"}}
    status, answer = put(w, "/admin/guardrails", opa)
    status, _, answer = chat(w, "alice")
    check("an unreachable policy server refuses", status == 403, (status, answer))
    put(w, "/admin/guardrails", {})


# ---- the administrator -------------------------------------------------------------------------------------


def administration(w):
    url = ("--url", "http://127.0.0.1:%d" % w.port)
    me = {"WORKER_API_KEY": SECRET["root"]}
    status, document, said = admin("api-keys", "create", "carol", "--set", "scopes=inference", *url, environment=me)
    check("worker admin creates a key", status == 0 and "secret" in document, said)
    carol = document["secret"]
    check("it works at once", w.ask("GET", "/v1/models", headers=bearer(carol))[0] == 200)
    status, document, said = admin("api-keys", "list", *url, environment=me)
    check("lists", status == 0 and "carol" in [k["id"] for k in document["keys"]], said)
    check("shows no secret", carol not in json.dumps(document) and "hash" not in json.dumps(document))
    status, document, said = admin("api-keys", "rotate", "carol", "--set", "grace_seconds=0", *url, environment=me)
    check("rotates", status == 0 and document["secret"] != carol, said)
    fresh = document["secret"]
    check("the old secret is over", w.ask("GET", "/v1/models", headers=bearer(carol))[0] in (401, 429))
    check("the new one is not", w.ask("GET", "/v1/models", headers=bearer(fresh))[0] == 200)
    w.ask("POST", "/execute", dict(HAIKU, job_id="of-carol", max_tokens=2), headers=bearer(fresh))
    check("her job is listed", w.ask("GET", "/worker/jobs/of-carol", headers=bearer(fresh))[0] == 200)
    status, document, said = admin("api-keys", "update", "carol", "--set", "disabled=true", *url, environment=me)
    check("disables", status == 0 and w.ask("GET", "/v1/models", headers=bearer(fresh))[0] in (401, 429), said)
    status, document, said = admin("api-keys", "delete", "carol", *url, environment=me)
    check("deletes", status == 0, said)
    status, document, said = admin("api-keys", "show", "carol", *url, environment=me)
    check("is gone", status != 0 and "NOT_FOUND" in said, said)
    again = admin("api-keys", "create", "carol", "--set", "scopes=inference", *url, environment=me)[1]["secret"]
    status = w.ask("GET", "/worker/jobs/of-carol", headers=bearer(again))[0]
    check("a key made again is another one", status == 404, status)
    admin("api-keys", "delete", "carol", *url, environment=me)
    status, document, said = admin("api-keys", "create", "alice", "--set", "scopes=inference", *url, environment=me)
    check("an id is taken once", status != 0 and "CONFLICT" in said, said)
    status, document, said = admin("api-keys", "create", "x", "--set", "scopes=everything", *url, environment=me)
    check("scopes are checked", status != 0 and "scopes[0]" in said, said)
    status, document, said = admin("rate-limits", "replace", "--set", "tokens_per_minute=100000", *url, environment=me)
    check("rates", status == 0 and document["tokens_per_minute"] == 100000, (document, said))
    status, _, said = admin("rate-limits", "replace", "--set", "tokens_per_minute=4294967296", *url, environment=me)
    check("a limit that cannot be counted is refused", status != 0 and "tokens_per_minute" in said, said)
    admin("rate-limits", "replace", *url, environment=me)
    status, document, said = admin(
        "scheduler", "replace", "--set", "preempt=true", "--set", "timeslice_tokens=64", *url, environment=me
    )
    check(
        "the scheduler is changed live",
        status == 0 and document["preempt"] and document["timeslice_tokens"] == 64,
        said,
    )
    status, document, said = admin("models", "show", *url, environment=me)
    check("models", status == 0 and document["models"][0]["state"] == "ready", said)
    status, document, said = admin("audit", "show", *url, environment=me)
    check("audit", status == 0 and document["enabled"] and document["written"] > 0, said)
    status, document, said = admin("api-keys", "list", *url, environment={"WORKER_API_KEY": SECRET["alice"]})
    check("not for everybody", status != 0 and "FORBIDDEN" in said, said)
    status, document, said = admin("api-keys", "list", *url)
    check("without a key it says how to give one", status != 0 and "WORKER_API_KEY" in said, said)
    status, document, said = admin("api-keys", "list", "--url", "http://127.0.0.1:1")
    check("without a worker, how to name one", status != 0 and "WORKER_URL" in said, said)
    status, document, said = admin("guardrails", "delete", *url)
    check("of a wrong verb, the right ones", status == 2 and "expected show, replace, got delete" in said, said)
    status, document, said = admin("api-keys", "list", *KEPT)
    check("the file is the running worker's", status != 0 and "another process" in said, said)


log = os.path.join(folder, "audit.log")
with Worker(program, *KEPT, *LONG, "--audit-log", log, "--origin", "https://chat.example.org") as w:
    health(w)
    routes(w)
    credentials(w)
    preflight(w)
    rates(w)
    tenants(w)
    guardrails(w)
    administration(w)
    attempts(w)
    m = w.ask("GET", "/metrics", headers=bearer(SECRET["scraper"]))[2].decode()
    check(
        "metrics count",
        re.search(r'worker_gate_refused_total\{reason="forbidden",model="[^"]+"\} [1-9]', m) is not None,
    )
    check("the worker ends in order", w.end() == 0)

with open(log, encoding="utf-8") as f:
    lines = [json.loads(x) for x in f]
kinds = [x["kind"] for x in lines]
check("the log begins and ends", kinds[0] == "start" and "stop" in kinds[-2:], kinds[-3:])
check(
    "requests are written down",
    any(x["kind"] == "request" and x.get("key_id") == "alice" and x.get("tokens_in") for x in lines),
)
check("refusals, too", any(x.get("code") == "GUARDRAIL_BLOCKED" for x in lines))
check("and changes", any(x.get("action") == "api-keys.create" and x.get("target") == "carol" for x in lines))
with open(log, encoding="utf-8") as f:
    whole = f.read()
check("no secret and no text", not any(s in whole for s in SECRET.values()) and "forbidden fruit" not in whole.lower())
status, said = verify(program, log, key=log + ".key")
check("worker audit verify", status == 0, said)
with open(log, "w", encoding="utf-8") as f:
    f.write(whole.replace('"alice"', '"alibi"', 1))
status, said = verify(program, log, key=log + ".key")
check("a change shows", status != 0 and "edited" in said, said)

# What was changed while it ran is there after the next start.
with Worker(program, *KEPT, "--open-metrics", "--prefix-share", "global") as w:
    check("--open-metrics", w.get("/metrics")[0] == 200)
    status, _, body = w.ask("GET", "/admin/scheduler", headers=bearer(SECRET["root"]))
    check("the scheduler's figures were kept", json.loads(body)["timeslice_tokens"] == 64, body)

# Guardrails that cannot be used come into no policy; one that has them all the same refuses, and tells no tenant why.
plain = ("--policy-file", os.path.join(folder, "plain"))
root = stored_key(program, plain[1], "root", "scopes=admin,inference")
server = {"url": "http://name:hunter2@policy.test", "path": "worker/allow"}
for sets in (['blocklist=[" "]'], ["opa=" + json.dumps(server)]):
    status, document, said = admin("guardrails", "replace", *plain, "--set", *sets)
    check("not into the file: %s" % sets[0][:12], status != 0 and document is None, said)
with open(plain[1], encoding="utf-8") as f:
    document = dict(json.load(f), guardrails={"opa": server})
with open(plain[1], "w", encoding="utf-8") as f:
    json.dump(document, f)
with Worker(program, *plain) as w:
    status, _, body = w.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=bearer(root))
    check("nobody is let in", status == 503 and b"guardrails" in body and b"policy server" not in body, body)
    check("the log says why", "a policy server is" in w.said() and "hunter2" not in w.said(), w.said()[-500:])

done()
