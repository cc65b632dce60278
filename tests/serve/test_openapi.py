"""contracts/openapi.json: its paths are the program's routes, and real answers of every endpoint are what it says,
errors included. usage: test_openapi.py PROGRAM SOURCE"""

import glob
import json
import re
import shutil
import subprocess
import sys

from service import LONG, Job, Worker, cancelled, check, done, events, skip

program, source = sys.argv[1:3]
try:
    from jsonschema import Draft202012Validator, FormatChecker
except ImportError:
    skip("python's jsonschema is not installed (package python3-jsonschema)")

document = json.load(open(source + "/contracts/openapi.json", encoding="utf-8"))


def routes():
    """METHOD /path of every table of routes in serve/."""
    out = set()
    for name in glob.glob(source + "/serve/*.c"):
        for table in re.findall(
            r"const struct http_route \w+\[\] = \{(.*?)\};", open(name, encoding="utf-8").read(), re.S
        ):
            for method, path in re.findall(r'\{ "([A-Z]+)", "([^"]+)"', table):
                out.add(
                    method
                    + " "
                    + (
                        path + ("{model}" if "/models/" in path else "{job_id}")
                        if path.endswith("/") and path != "/"
                        else path
                    )
                )
    return out


def absolute(node):
    """References into the document as a validator of one part finds them: the components go along."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"], **node}


def problems(schema, value):
    return "; ".join(
        e.json_path + ": " + e.message[:200]
        for e in Draft202012Validator(absolute(schema), format_checker=FormatChecker()).iter_errors(value)
    )


def response(method, path, status):
    r = document["paths"][path][method.lower()]["responses"].get(str(status))
    return document["components"]["responses"][r["$ref"].rsplit("/", 1)[1]] if r and "$ref" in r else r


def wrong_events(schema, stream):
    known = schema["x-events"]
    return "; ".join(
        name + ": " + (problems(known[name], e) if name in known else "unknown")
        for name, e in stream
        if name not in known or problems(known[name], e)
    )


seen = set()


def fits(what, method, path, status, headers, data, template=None):
    """The answer is one that the document has for this operation."""
    template = template or path
    seen.add(method + " " + template)
    r = response(method, template, status)
    kind = headers.get("content-type", "")
    if not check_one(what, r is not None, "status %d is not documented: %s" % (status, data[:300])):
        return
    media = next((m for m in r["content"] if m.split(";")[0] == kind.split(";")[0]), None)
    if not check_one(
        what,
        media is not None and "x-request-id" in headers,
        "%s is not one of %s; %s" % (kind, list(r["content"]), headers),
    ):
        return
    schema = r["content"][media]["schema"]
    if kind.startswith("application/json"):
        wrong = problems(schema, json.loads(data))
    elif kind.startswith("text/event-stream"):
        wrong = wrong_events(schema, events(data.decode()))
    else:
        wrong = problems(schema, data.decode())
    check(what, not wrong, wrong)


def check_one(what, good, detail):
    if not good:
        check(what, False, detail)
    return good


def ask(w, method, path, body=None, headers=None, template=None, port=None, want=None):
    status, head, data = w.ask(method, path, body, headers, port)
    name = "%s %s %s -> %d" % (
        method,
        path,
        "" if body is None else (json.dumps(body) if isinstance(body, dict) else repr(body))[:70],
        status,
    )
    if want is not None and status != want:
        check(name, False, "expected %d: %r" % (want, data[:300]))
    fits(name, method, path, status, head, data, template)
    return status, data


def schemathesis(w):
    """Generated requests, where the tool is installed: no 5xx, and only what the document says."""
    tool = shutil.which("schemathesis")
    if not tool:
        print("not checked: schemathesis is not installed (PyPI)")
        return
    r = subprocess.run(
        [
            tool,
            "run",
            "http://127.0.0.1:%d/openapi.json" % w.port,
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            "--exclude-path",
            "/shutdown",
            "--exclude-path",
            "/worker/commit",
            "--exclude-path",
            "/execute",
            "--exclude-path",
            "/worker/execute",
            "--exclude-path-regex",
            "^/v1/.*completions",
            "--max-examples",
            "20",
            "--seed",
            "1",
            "--no-color",
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    check("schemathesis", r.returncode == 0, (r.stdout + r.stderr)[-3000:])


described = {
    m.upper() + " " + p
    for p, item in document["paths"].items()
    for m in item
    if m in ("get", "post", "put", "delete", "patch")
}
check("every route is documented", not routes() - described, routes() - described)
check("every documented path has a route", not described - routes(), described - routes())
manual = open(source + "/docs/http.md", encoding="utf-8").read()
headed = set(re.findall(r"`((?:GET|POST) /[^`]*)`", "".join(re.findall(r"^### .*$", manual, re.M))))
check("docs/http.md has a section for each", headed == described, headed ^ described)
tabled = dict(
    (c, (int(n), r == "yes")) for c, n, r in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \| (yes|no) \|", manual, re.M)
)
coded = dict(
    (c, (int(n), r == "true"))
    for c, n, r in re.findall(
        r'"([A-Z_]+)", (\d{3}), (true|false),', open(source + "/serve/codes.c", encoding="utf-8").read()
    )
)
check(
    "and every error code as it is answered",
    coded and all(tabled.get(c) == v for c, v in coded.items()),
    {c: (v, tabled.get(c)) for c, v in coded.items() if tabled.get(c) != v},
)
below = {
    (c, int(n))
    for n, c in re.findall(
        r'\{ (4\d\d|5\d\d), "[^"]*", "([A-Z_]+)", ', open(source + "/http/failure.c", encoding="utf-8").read()
    )
} - {("UNAUTHORIZED", 401), ("CONFLICT", 409)}
check(
    "those of the HTTP layer too",
    len(below) > 10 and all(tabled.get(c, (0,))[0] == n for c, n in below),
    [b for b in below if tabled.get(b[0], (0,))[0] != b[1]],
)
unused = [
    n
    for n in document["components"]["schemas"]
    if json.dumps({"$ref": "#/components/schemas/" + n})[1:-1] not in json.dumps(document)
]
check("no schema is left over", not unused, unused)

model_dir = source + "/models/haiku"
with Worker(program, *LONG, "--max-tokens-in", "500", "--max-sequences", "2", "--model-dir", model_dir) as w:
    status, data = ask(w, "GET", "/openapi.json", want=200)
    check("the document that is served is the repository's", json.loads(data) == document)
    for path in (
        "/health",
        "/livez",
        "/readyz",
        "/healthz",
        "/metrics",
        "/capabilities",
        "/tokenizer_info",
        "/worker/ready",
    ):
        ask(w, "GET", path, want=200)
        ask(w, "GET", path, want=200, port=w.admin)
    ask(w, "GET", "/", want=200)
    haiku = {
        "job_id": "haiku",
        "prompt": "Write a haiku about GPU computing",
        "max_tokens": 30,
        "temperature": 0.7,
        "seed": 42,
        "chat": True,
        "metrics": True,
    }
    ask(w, "POST", "/execute", haiku, want=200)
    ask(
        w,
        "POST",
        "/execute",
        {"job_id": "big", "prompt": "Hello", "max_tokens": 4, "seed": 18446744073709551615, "stop": ["zq", "qz"]},
        want=200,
    )
    ask(
        w,
        "POST",
        "/execute",
        {
            "job_id": "text",
            "prompt": "Hello",
            "max_tokens": 4,
            "seed": "18446744073709551615",
            "priority": 7,
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
        },
        want=200,
    )
    for bad in (
        {},
        {"job_id": "x"},
        {"job_id": "x", "prompt": ""},
        {"job_id": "x", "prompt": "y", "temperature": 3},
        {"job_id": "x", "prompt": "y", "other": 1},
        {"job_id": "", "prompt": "y"},
        {"job_id": "x", "prompt": "y", "stop": ["1", "2", "3", "4", "5"]},
        {"job_id": "x", "prompt": "y", "seed": -1},
        b"{",
        b"[]",
        b'{"job_id":"x","job_id":"y","prompt":"z"}',
    ):
        ask(w, "POST", "/execute", bad, want=400)
    ask(w, "POST", "/execute", {"job_id": "long", "prompt": "word " * 6000}, want=400)
    ask(w, "POST", "/execute", {"job_id": "late", "prompt": "y"}, {"X-Deadline": "2001-01-01T00:00:00Z"}, want=504)
    ask(w, "POST", "/execute", b"prompt", {"Content-Type": "text/plain"}, want=415)
    ask(w, "POST", "/execute", {"job_id": "far", "prompt": "y"}, {"Origin": "https://elsewhere.example"}, want=403)
    handle = json.loads(ask(w, "GET", "/worker/ready", want=200)[1])["handles"][0]["shard_id"]
    ask(w, "POST", "/worker/execute", {"handle_id": handle, "prompt": "Hello", "params": {"max_tokens": 3}}, want=200)
    ask(w, "POST", "/worker/execute", {"handle_id": "none", "prompt": "Hello"}, want=404)
    ask(w, "POST", "/worker/plan", {"model_ref": "haiku-q4_k_m.gguf"}, want=200)
    ask(
        w,
        "POST",
        "/worker/plan",
        {"model_ref": "haiku-q4_k_m.gguf", "shard_layout": "tensor_parallel", "tp_degree": 2},
        want=200,
    )
    ask(w, "POST", "/worker/plan", {"model_ref": "../../../etc/passwd"}, want=400)
    ask(w, "POST", "/worker/commit", {"model_ref": "haiku-q4_k_m.gguf"}, want=409)
    ask(w, "GET", "/worker/jobs", want=200)
    ask(w, "GET", "/worker/jobs/haiku", want=200, template="/worker/jobs/{job_id}")
    ask(w, "GET", "/worker/jobs/nobody", want=404, template="/worker/jobs/{job_id}")
    for body in (
        {"content": "Hello"},
        {"content": "Hello", "add_special": True, "with_pieces": True},
        {"prompt": "Hello", "return_token_strs": True},
        {"content": ""},
    ):
        ask(w, "POST", "/tokenize", body, want=200)
    for body in ({}, {"content": "a", "prompt": "b"}, {"content": 5}, {"content": "a", "messages": []}):
        ask(w, "POST", "/tokenize", body, want=400)
    ask(w, "POST", "/tokenize", {"prompt": "a", "model": "another"}, want=404)
    render = "/v1/chat/completions/render"
    user = {"role": "user", "content": "Hi"}
    ask(w, "POST", render, {"messages": [user]}, want=200)
    ask(w, "POST", render, {"messages": [user], "tools": [{"type": "function", "function": {"name": "f"}}]}, want=200)
    ask(w, "POST", render, {"messages": [user], "tools": [{"type": "another"}]}, want=400)
    ask(w, "POST", render, {"messages": [user], "model": "another"}, want=404)
    ask(w, "POST", "/detokenize", {"tokens": [1, 2, 3]}, want=200)
    ask(w, "POST", "/detokenize", {"tokens": [-1]}, want=400)
    chat = {"model": "haiku", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    for more in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
        ask(w, "POST", "/v1/chat/completions", dict(chat, **more), want=200)
        ask(w, "POST", "/v1/completions", dict({"prompt": "Hello", "max_tokens": 5}, **more), want=200)
        probs = dict(more, n=2, max_tokens=2)
        ask(w, "POST", "/v1/chat/completions", dict(chat, logprobs=True, top_logprobs=2, **probs), want=200)
        ask(w, "POST", "/v1/completions", dict(probs, prompt=["Hello", [5, 6]], logprobs=1, echo=True), want=200)
    minute = {"type": "function", "function": {"name": "current_minute", "strict": False}}
    call = [{"role": "user", "content": "Write a haiku about rivers that includes the current minute"}]
    call = {"messages": call, "tools": [minute], "temperature": 0, "max_tokens": 60}
    for more in (
        {},
        {"stream": True},
        {"tool_choice": "none"},
        {"tool_choice": "required"},
        {"tool_choice": "auto", "parallel_tool_calls": False},
    ):
        ask(w, "POST", "/v1/chat/completions", dict(call, **more), want=200)
    ask(w, "POST", "/v1/chat/completions", dict(chat, prompt_logprobs=2), want=200)
    ask(w, "POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 0, "prompt_logprobs": 2}, want=200)
    for body in (
        {},
        dict(chat, messages=[]),
        dict(chat, n=17),
        dict(chat, tools=[{}]),
        b"{",
        dict(chat, messages=[{"role": "user", "content": "word " * 6000}]),
    ):
        ask(w, "POST", "/v1/chat/completions", body, want=400)
    ask(w, "POST", "/v1/chat/completions", dict(chat, model="another"), want=404)
    ask(w, "POST", "/v1/completions", {"prompt": ""}, want=400)
    ask(w, "POST", "/v1/completions", b"prompt", {"Content-Type": "text/plain"}, want=415)
    ask(w, "POST", "/v1/completions", {"prompt": "y"}, {"Origin": "https://elsewhere.example"}, want=403)
    ask(w, "POST", "/v1/completions", {"prompt": "y"}, {"X-Deadline": "2001-01-01T00:00:00Z"}, want=504)
    ask(w, "GET", "/v1/models", want=200)
    ask(w, "GET", "/v1/models/haiku", want=200, template="/v1/models/{model}")
    ask(w, "GET", "/v1/models/another", want=404, template="/v1/models/{model}")
    ask(w, "POST", "/cancel", {"job_id": "nobody"}, want=202)
    ask(w, "POST", "/cancel", {}, want=400)
    ask(w, "POST", "/cancel", {"job_id": "nobody"}, port=w.admin, want=202)

    long = Job(w, "long", metrics=True).until("started", "token", "metrics")
    ask(w, "GET", "/worker/jobs", want=200)
    ask(w, "POST", "/execute", {"job_id": "long", "prompt": "y"}, want=409)
    ask(w, "POST", "/cancel", {"job_id": "long"}, want=202)
    check("a stream is cancelled", cancelled(long.over()))
    wrong = wrong_events(response("POST", "/execute", 200)["content"]["text/event-stream"]["schema"], long.events)
    check("its events are as documented", not wrong, wrong)
    schemathesis(w)
    ask(w, "POST", "/shutdown", {"now": True}, want=400)
    ask(w, "POST", "/shutdown", want=202)
    check("the worker ends", w.status() == 0, w.said())
check("every operation was asked", not described - seen, described - seen - {"POST /worker/commit"})

with Worker(program, "--wait-for-commit", "--model-dir", model_dir, wait=False) as w:
    w.until(lambda: w.get("/health")[1]["state"] == "waiting")
    for path in ("/health", "/readyz", "/healthz"):
        ask(w, "GET", path, want=503)
    ask(w, "GET", "/capabilities", want=200)
    ask(w, "GET", "/metrics", want=200)
    ask(w, "GET", "/worker/ready", want=200)
    ask(w, "POST", "/execute", {"job_id": "x", "prompt": "y"}, want=503)
    ask(w, "POST", "/tokenize", {"content": "x"}, want=503)
    ask(w, "POST", "/v1/completions", {"prompt": "x"}, want=503)
    ask(w, "GET", "/v1/models", want=200)
    ask(w, "POST", "/worker/commit", {"model_ref": "nothing.gguf"}, want=400)
    ask(w, "POST", "/worker/commit", {"model_ref": "haiku-q4_k_m.gguf"}, want=200)
    ask(w, "GET", "/health", want=200)
    ask(w, "GET", "/worker/ready", want=200)
done()
