"""contracts/openapi.json: its paths are the program's routes, and real answers of every endpoint are what it says,
errors and what asks for keys included. usage: test_openapi.py PROGRAM SOURCE"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from handover import ASKS, request, text, until_it_gives
from service import LONG, Job, Worker, cancelled, check, done, events, skip

program, source = sys.argv[1:3]
try:
    from jsonschema import Draft202012Validator, FormatChecker
except ImportError:
    skip("python's jsonschema is not installed (package python3-jsonschema)")

document = json.load(open(source + "/contracts/openapi.json", encoding="utf-8"))


def template_of(method, path):
    """A path of serve/ that ends with / has something behind it."""
    if path == "/" or not path.endswith("/"):
        return path
    if path == "/admin/api-keys/":
        return path + ("{id}/rotate" if method == "POST" else "{id}")
    return path + ("{model}" if "/models/" in path else "{job_id}")


def routes():
    """METHOD /path of every table of routes in serve/."""
    out = set()
    for name in glob.glob(source + "/serve/*.c"):
        for table in re.findall(
            r"const struct http_route \w+\[\] = \{(.*?)\};", open(name, encoding="utf-8").read(), re.S
        ):
            for method, path in re.findall(r'\{ "([A-Z]+)", "([^"]+)"', table):
                out.add(method + " " + template_of(method, path))
    return out


def scopes():
    """METHOD /path -> scopes of which one is needed, of the table that the service asks."""
    out = {}
    table = open(source + "/serve/scopes.c", encoding="utf-8").read()
    for method, path, names in re.findall(r'\{ "(\w+)", "([^"]+)", (SCOPE_\w+(?: \| SCOPE_\w+)*) \}', table):
        named = [n.replace("SCOPE_", "").lower().replace("admin_read", "admin:read") for n in names.split(" | ")]
        out[method + " " + template_of(method, path)] = [] if named == ["open"] else named
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
    elif kind.startswith("application/x-ndjson"):
        wrong = wrong_events(schema, [("", json.loads(line)) for line in data.decode().splitlines()])
    elif kind.startswith("text/event-stream"):
        wrong = wrong_events(schema, events(data.decode()))
    else:
        wrong = problems(schema, data.decode("utf-8" if kind.startswith("text/") else "latin-1"))
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


def ollama(w, call):
    """Ollama's interface; call: a chat that ends in a call."""
    few = {"options": {"num_predict": 4}, "logprobs": True, "top_logprobs": 1}
    called = {"messages": call["messages"], "tools": call["tools"], "options": {"temperature": 0, "num_predict": 60}}
    for more in ({}, {"stream": False}):
        ask(w, "POST", "/api/chat", dict(few, messages=[{"role": "user", "content": "Hi"}], **more), want=200)
        ask(w, "POST", "/api/chat", dict(called, **more), want=200)
        ask(w, "POST", "/api/generate", dict(few, prompt="Hi", **more), want=200)
        for path in ("/api/chat", "/api/generate"):
            ask(w, "POST", path, dict(more), want=200)
            ask(w, "POST", path, dict(more, model="another"), want=404)
            ask(w, "POST", path, dict(more, options={"num_ctx": 10**9}, prompt="x", messages=[{}]), want=400)
    for path in ("/api/version", "/api/tags", "/api/ps"):
        ask(w, "GET", path, want=200)
    ask(w, "POST", "/api/show", {"model": "haiku"}, want=200)
    ask(w, "POST", "/api/show", {"model": "another"}, want=404)
    ask(w, "POST", "/api/show", {"verbose": True}, want=400)


def embeddings():
    """Models that give rows: of texts, and scores."""
    models = os.environ["WORKER_GOLDENS"]
    with Worker(program, "--model", os.path.join(models, "bert-mean.gguf"), "--model-id", "haiku") as w:
        for body in ({"input": "a"}, {"input": [[2, 3], [5]], "encoding_format": "base64", "model": "haiku"}):
            ask(w, "POST", "/v1/embeddings", body, want=200)
        ask(w, "POST", "/v1/embeddings", {"input": "a", "model": "another"}, want=404)
        for path in ("/embedding", "/embeddings"):
            ask(w, "POST", path, {"content": ["a", "b"]}, want=200)
            ask(w, "POST", path, {}, want=400)
        for path, text in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
            for body in ({text: "a"}, {}):
                ask(w, "POST", path, body, want=200)
            ask(w, "POST", path, {"model": "another", text: "a"}, want=404)
        for body in ({"inputs": ["a", "b"]}, {"inputs": "a", "truncate": True, "truncation_direction": "Left"}):
            ask(w, "POST", "/embed", body, want=200)
        ask(w, "POST", "/embed", {}, want=400)
        for path in (
            "/health",
            "/props",
            "/tokenizer_info",
            "/capabilities",
            "/worker/jobs",
            "/v1/loads",
            "/server_info",
        ):
            ask(w, "GET", path, want=200)
        _, info = ask(w, "GET", "/model_info", want=200)
        check("... which generates nothing", json.loads(info)["is_generation"] is False, info)
        ask(w, "GET", "/v1/models", want=200)
        ask(w, "POST", "/api/show", {}, want=200)
    with Worker(program, "--model", os.path.join(models, "bert-score.gguf")) as w:
        for path in ("/v1/rerank", "/v2/rerank", "/v1/reranking", "/rerank", "/reranking"):
            ask(w, "POST", path, {"query": "a", "documents": ["b", {"text": "c"}], "return_documents": True}, want=200)
            ask(w, "POST", path, {"query": "a"}, want=400)
            ask(w, "POST", path, {"query": "a", "texts": ["b", "c"], "return_text": True}, want=200)
        ask(w, "GET", "/v1/models", want=200)


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
            "/worker/live",
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
headed = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`", "".join(re.findall(r"^### .*$", manual, re.M))))
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
}
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
operations = {
    m.upper() + " " + p: o for p, item in document["paths"].items() for m, o in item.items() if m != "parameters"
}
differ = {o: (v, operations[o]["x-scope"]) for o, v in scopes().items() if operations[o]["x-scope"] != v}
check("scopes are those of the table", scopes().keys() == operations.keys() and not differ, differ)
lacking = [
    o
    for o, d in operations.items()
    if not {"401", "429", "503"} <= set(d["responses"]) or (d["x-scope"] and "403" not in d["responses"])
]
check("every operation has the answers of the gate", not lacking, lacking)
named = {s["name"] for s in document["tags"]}
check("every tag is named", all(set(d["tags"]) <= named for d in operations.values()))

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
    status, head, stream = w.some_events("/worker/live", 3)
    whole = "".join("event: %s\ndata: %s\n\n" % (n, json.dumps(d)) for n, d in stream)
    fits("GET /worker/live", "GET", "/worker/live", status, head, whole.encode())
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
    for path in ("/completion", "/completions"):
        ask(w, "POST", path, {"prompt": "Hello", "n_predict": 3}, want=200)
        ask(w, "POST", path, {"prompt": "Hello", "n_predict": 3, "stream": True, "n_probs": 2}, want=200)
    ask(w, "POST", "/completion", {"prompt": ["Hello", [5, "x"]], "n_predict": 3, "n_probs": 2}, want=200)
    ask(w, "POST", "/completion", {"prompt": "x", "n_predict": 1, "response_fields": ["timings/prompt_n"]}, want=200)
    post = {"prompt": "x", "n_predict": 2, "n_probs": 2, "post_sampling_probs": True, "top_k": 5}
    ask(w, "POST", "/completion", post, want=200)
    for body in ({}, {"prompt": []}, {"prompt": "x", "mirostat": 1}, b"{"):
        ask(w, "POST", "/completion", body, want=400)
    ask(w, "POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, want=400)
    hello = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    ask(w, "POST", "/chat/completions", hello, want=200)
    ask(w, "POST", "/responses", {"input": "Hello", "max_output_tokens": 5}, want=200)
    for path in ("/chat/completions", "/responses", "/apply-template", "/completions"):
        ask(w, "POST", path, {}, want=400)
    for path in (
        "/props",
        "/lora-adapters",
        "/models",
        "/version",
        "/v1/health",
        "/v1/loads",
        "/server_info",
        "/get_server_info",
        "/model_info",
        "/get_model_info",
    ):
        ask(w, "GET", path, want=200)
    ask(w, "POST", "/props", {}, want=400)
    ask(w, "POST", "/lora-adapters", [], want=400)
    for path in ("/apply-template", "/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        ask(w, "POST", path, {"messages": [{"role": "user", "content": "Hi"}]}, want=200)
        ask(w, "POST", path, {"messages": []}, want=400)
    ask(w, "POST", "/responses/input_tokens", {"input": "Hi"}, want=200)
    ask(w, "POST", "/responses/input_tokens", {}, want=400)
    told = {"timings_per_token": True, "return_progress": True}
    for stream in (False, True):
        ask(w, "POST", "/chat/completions", dict(hello, stream=stream, **told), want=200)
        ask(w, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 2, "stream": stream, **told}, want=200)
        ask(w, "POST", "/responses", {"input": "Hi", "max_output_tokens": 2, "stream": stream, **told}, want=200)
        ask(w, "POST", "/completion", {"prompt": "x", "n_predict": 2, "stream": stream, **told}, want=200)
    ask(w, "POST", "/v1/completions/render", {"prompt": ["Hi", [1, 2]]}, want=200)
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
    for more in ({}, {"stream": True}):
        ask(w, "POST", "/v1/responses", dict({"input": "Hello", "max_output_tokens": 5}, **more), want=200)
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        ask(w, "POST", path, {"input": 3}, want=400)
    ask(w, "POST", "/v1/responses/input_tokens", {"input": "Hello"}, want=200)
    hello = {"model": "haiku", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}
    minutes = {"tools": [{"name": "current_minute", "input_schema": {"type": "object"}}], "temperature": 0}
    minutes.update(messages=call["messages"], max_tokens=60, context_management={"edits": []})
    for more in ({}, {"stream": True}, minutes, dict(minutes, stream=True)):
        ask(w, "POST", "/v1/messages", dict(hello, **more), want=200)
    for body in ({}, dict(hello, max_tokens="5"), dict(hello, messages=[{"role": "user", "content": "word " * 6000}])):
        ask(w, "POST", "/v1/messages", body, want=400)
    ask(w, "POST", "/v1/messages", dict(hello, model="another"), want=404)
    ask(w, "POST", "/v1/messages", b"prompt", {"Content-Type": "text/plain"}, want=415)
    ask(w, "POST", "/v1/messages/count_tokens", hello, want=200)
    ask(w, "POST", "/v1/messages/count_tokens", {}, want=400)
    ollama(w, call)
    embeddings()
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

# ---- with keys ------------------------------------------------------------------------------------------------------


def documented_headers(r, headers):
    """What the document promises of the gate's headers, and what came."""
    return {h.lower() for h in r["headers"]}, {
        h for h in headers if h.startswith("x-ratelimit-") or h in ("retry-after", "www-authenticate")
    }


def gate_answer(w, name, method, path, body, headers, want, must=()):
    """An answer of the gate has the headers that the document promises, and no other one."""
    status, head, data = w.ask(method, path, body, headers)
    check("%s -> %d" % (name, want), status == want, (status, data))
    fits(name, method, path, status, head, data)
    known, came = documented_headers(response(method, path, status), head)
    check("... its headers", set(must) <= came <= known, (came, known))
    return data


def keys(w, key):
    """Keys, sections of the policy and what there is, as an administrator asks."""
    me = {"Authorization": "Bearer " + key}

    def by_me(method, path, body=None, want=200, template=None):
        return json.loads(ask(w, method, path, body, me, template, want=want)[1])

    one, rotation = "/admin/api-keys/{id}", "/admin/api-keys/{id}/rotate"
    made = {
        "id": "alice",
        "name": "Alice",
        "tenant": "blue",
        "scopes": ["inference"],
        "expires": 4102444800,
        "limits": {"requests_per_minute": 2, "tokens_per_minute": "none"},
        "max_priority": 3,
    }
    alice = by_me("POST", "/admin/api-keys", made, 201)["secret"]
    by_me("POST", "/admin/api-keys", made, 409)
    by_me("POST", "/admin/api-keys", dict(made, id="Alice"), 400)
    by_me("GET", "/admin/api-keys")
    by_me("GET", "/admin/api-keys/alice", template=one)
    by_me("GET", "/admin/api-keys/nobody", None, 404, one)
    by_me("PATCH", "/admin/api-keys/alice", {"name": None, "disabled": False}, template=one)
    by_me("PATCH", "/admin/api-keys/alice", {"id": "bob"}, 400, one)
    by_me("PATCH", "/admin/api-keys/nobody", {}, 404, one)
    alice = by_me("POST", "/admin/api-keys/alice/rotate", {"grace_seconds": 60}, template=rotation)["secret"]
    by_me("GET", "/admin/api-keys/alice", template=one)
    by_me("POST", "/admin/api-keys/alice/rotate", None, 409, rotation)
    by_me("POST", "/admin/api-keys/alice/rotate", {"grace_seconds": -1}, 400, rotation)
    by_me("POST", "/admin/api-keys/nobody/rotate", None, 404, rotation)
    for section, body, bad in (
        ("rate-limits", {"requests_per_minute": 600, "tokens_per_minute": "none"}, {"tokens_per_minute": -1}),
        ("guardrails", {"blocklist": ["forbidden fruit"], "block_output": True}, {"blocklist": [""]}),
        ("guardrails", {"opa": {"url": "http://127.0.0.1:9", "path": "worker/allow", "send_text": True}}, {"opa": {}}),
        ("guardrails", {"blocklist": ["forbidden fruit"]}, {"other": 1}),
        ("roles", {"analyst": {"scopes": ["inference"], "tenant": "red", "limits": {}, "max_priority": 1}}, {"x": 1}),
    ):
        by_me("GET", "/admin/" + section)
        by_me("PUT", "/admin/" + section, body)
        by_me("GET", "/admin/" + section)
        by_me("PUT", "/admin/" + section, bad, 400)
    by_me("GET", "/admin/scheduler")
    by_me("PUT", "/admin/scheduler", {"timeslice_tokens": 64})
    by_me("PUT", "/admin/scheduler", {"timeslice_tokens": -1}, 400)
    by_me("PUT", "/admin/scheduler")
    by_me("GET", "/admin/models")
    by_me("GET", "/admin/audit")
    return {"x-api-key": alice}


def gate(w, key):
    alice = keys(w, key)
    rates = ["x-ratelimit-%s-requests" % what for what in ("limit", "remaining", "reset")]
    job = {"job_id": "x", "prompt": "Hello", "max_tokens": 1}
    gate_answer(w, "without a key", "POST", "/execute", job, {}, 401, ["www-authenticate"])
    gate_answer(w, "without one, for OpenAI", "POST", "/v1/completions", {}, {}, 401, ["www-authenticate"])
    gate_answer(w, "without one, for Ollama", "POST", "/api/chat", {}, {}, 401, ["www-authenticate"])
    gate_answer(w, "without one, for its lists", "GET", "/api/tags", None, {}, 401, ["www-authenticate"])
    gate_answer(w, "without the scope", "GET", "/metrics", None, alice, 403)
    gate_answer(w, "without one for the administrator", "GET", "/admin/roles", None, {}, 401, ["www-authenticate"])
    blocked = dict(job, prompt="eat the Forbidden Fruit")
    gate_answer(w, "a phrase", "POST", "/execute", blocked, alice, 403)
    gate_answer(w, "a job of a key with rates", "POST", "/execute", job, alice, 200, rates)
    gate_answer(w, "too many", "POST", "/execute", job, alice, 429, ["retry-after", *rates])
    gate_answer(
        w, "too many, for OpenAI", "POST", "/v1/completions", {"prompt": "x"}, alice, 429, ["retry-after", *rates]
    )
    for path in ("/health", "/livez", "/readyz", "/healthz"):
        ask(w, "GET", path, want=200)
    short = set(w.get("/health")[1])
    check("health without a key is short", short == set(document["components"]["schemas"]["Health"]["required"]), short)
    ask(w, "GET", "/health", headers=alice, want=200)
    statuses = {ask(w, "GET", "/livez", headers={"x-api-key": "wrong"})[0] for _ in range(20)}
    check("wrong keys are 401, then 429", statuses == {401, 429}, statuses)
    delete = "/admin/api-keys/{id}"
    me = {"Authorization": "Bearer " + key}
    ask(w, "DELETE", "/admin/api-keys/alice", headers=me, template=delete, want=200)
    ask(w, "DELETE", "/admin/api-keys/alice", headers=me, template=delete, want=404)


def handovers(p):
    """A prompt's pages, as a decode worker asks for them."""
    body = {"prompt": text(1), "max_tokens": 1}
    until_it_gives(p)
    _, data = ask(p, "POST", "/v1/completions", dict(body, kv_transfer_params=ASKS), want=200)
    asked = request(p, body, json.loads(data)["kv_transfer_params"])
    ask(p, "POST", "/worker/handover", dict(asked, tokens="0" * 64), want=409)
    ask(p, "POST", "/worker/handover", asked, want=200)
    ask(p, "POST", "/worker/handover", asked, want=404)
    ask(p, "POST", "/worker/handover", {}, want=400)
    streamed = dict(body, stream=True, kv_transfer_params=ASKS)
    ask(p, "POST", "/v1/completions", streamed, want=200)
    talk = {"messages": [{"role": "user", "content": text(2)}], "max_tokens": 1, "kv_transfer_params": ASKS}
    ask(p, "POST", "/v1/chat/completions", talk, want=200)
    ask(p, "POST", "/v1/chat/completions", dict(talk, stream=True), want=200)
    ask(p, "POST", "/v1/completions", dict(body, prompt="Hi", kv_transfer_params=ASKS), want=200)
    ask(p, "GET", "/readyz", want=200)


with Worker(program, "--role", "prefill") as p:
    handovers(p)
with tempfile.TemporaryDirectory() as folder:
    policy = os.path.join(folder, "policy")
    first = subprocess.run(
        [program, "admin", "api-keys", "create", "root", "--set", "scopes=admin", "--policy-file", policy],
        stdout=subprocess.PIPE,
        check=True,
    )
    wrong = problems({"$ref": "#/components/schemas/ApiKeyMade"}, json.loads(first.stdout))
    check("worker admin prints what the interface answers", not wrong, wrong)
    with Worker(program, "--policy-file", policy, "--audit-log", os.path.join(folder, "audit.log")) as w:
        gate(w, json.loads(first.stdout)["secret"])
check("every operation was asked", not described - seen, described - seen)
done()
