"""Embeddings and scores: every interface, rows against those of `worker embed`, many requests at once, what is refused,
keys, rates, the audit log, a client that leaves, and the end. Models are small and random, those of the goldens; with
the packages openai and ollama of PyPI, where they are installed, their own clients too. usage: test_embeddings.py
PROGRAM SOURCE"""

import base64
import http.client
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading

from service import Worker, check, done

program, source = sys.argv[1:3]
sys.path.insert(0, os.path.join(source, "tests", "reference"))
import families  # noqa: E402
import gguf  # noqa: E402

GOLDENS = os.environ["WORKER_GOLDENS"]
MEAN, SCORE, PAIR = (os.path.join(GOLDENS, "bert-%s.gguf" % name) for name in ("mean", "score", "pair"))
TEXTS = ["word1 word2", "word3", "Word4, unknown WORD5!", "word6 " * 300, "word7"]
MODEL = ("--model-id", "bert")
WIDTH = 48


def rows_of(model, texts, *more):
    """What the command gives, a process by itself."""
    r = subprocess.run([program, "embed", "-m", model, *more, "--", *texts], capture_output=True, check=True)
    return [json.loads(line) for line in r.stdout.splitlines()]


def embed(w, **body):
    return w.post("/v1/embeddings", body)


def numbers(text):
    data = base64.b64decode(text, validate=True)
    return list(struct.unpack("<%df" % (len(data) // 4), data))


def rows(w):
    want = rows_of(MEAN, TEXTS)
    status, a = embed(w, input=TEXTS, model="bert")
    check("rows", status == 200 and [d["embedding"] for d in a["data"]] == [r["embedding"] for r in want], a)
    check("... in OpenAI's form", a["object"] == "list" and a["model"] == "bert", a["model"])
    check("... numbered", [(d["object"], d["index"]) for d in a["data"]] == [("embedding", i) for i in range(5)])
    n = sum(r["tokens"] for r in want)
    check("... and counted", a["usage"] == {"prompt_tokens": n, "total_tokens": n}, a["usage"])
    check("... of length 1", all(abs(math.fsum(x * x for x in d["embedding"]) - 1) < 1e-5 for d in a["data"]))
    for i, text in enumerate(TEXTS):
        status, b = embed(w, input=text, encoding_format="base64")
        same = [struct.unpack("<f", struct.pack("<f", x))[0] for x in want[i]["embedding"]]
        check("text %d alone, as bytes" % i, status == 200 and numbers(b["data"][0]["embedding"]) == same, b)
    ids = [[2, 6, 7, 3], [2, 8, 3]]
    _, tokenized = w.post("/tokenize", {"content": "word1 word2", "add_special": True})
    check("ids of a text", tokenized["tokens"] == ids[0], tokenized)
    _, b = embed(w, input=ids)
    check("ids", [d["embedding"] for d in b["data"]] == [r["embedding"] for r in want[:2]], b)
    _, b = embed(w, input=ids[1])
    check("... of one text", [d["embedding"] for d in b["data"]] == [want[1]["embedding"]], b)
    _, b = embed(w, input="word3", add_special_tokens=False)
    check("without the ends", b["usage"]["prompt_tokens"] == 1 and b["data"][0]["embedding"] != want[1]["embedding"])
    many = ["word%d word%d" % (i % 50, i % 7) for i in range(2048)]
    status, a = embed(w, input=many)
    check("2048 texts", status == 200 and len(a["data"]) == 2048 and a["usage"]["prompt_tokens"] == 4 * 2048)
    check("... equal ones alike", a["data"][0]["embedding"] == a["data"][350]["embedding"])


def the_command():
    """Lines of a file, whatever ends them, and what it refuses."""
    run = lambda *args, **more: subprocess.run(  # noqa: E731
        [program, "embed", *args], capture_output=True, text=True, **more
    )
    want = [r["embedding"] for r in rows_of(MEAN, TEXTS[:2])]
    for end in ("\n", "\r\n"):
        said = run("-m", MEAN, input=end + end.join(TEXTS[:2]) + end).stdout.splitlines()
        check("lines that end in %r" % end, [json.loads(line)["embedding"] for line in said] == want, said)
    for args, text in (
        (("-m", MEAN, "word3", "word6 " * 511), "CONTEXT_LENGTH_EXCEEDED: text 1 has 513 tokens, the context is 512"),
        (("-m", MEAN, "--query", "x", "y"), "leave --query out"),
        (("-m", SCORE, "y"), "it needs --query TEXT"),
        (("-m", "embedded:haiku", "y"), "with --pooling mean, first or last"),
        (("-m", MEAN, "--pooling", "last", "y"), "bert.pooling_type is 1 (mean)"),
        (("-m", os.path.join(GOLDENS, "bert.gguf"), "y"), "give a tokenizer.json with --tokenizer"),
    ):
        r = run(*args)
        check("embed: " + text, r.returncode == 1 and text in r.stderr, r)
    r = run("-m", MEAN, "--pooling", "mean", "--", TEXTS[0])
    check("the pooling of the file", r.returncode == 0 and json.loads(r.stdout)["embedding"] == want[0], r)


def other_interfaces(w):
    want = [r["embedding"] for r in rows_of(MEAN, TEXTS[:2])]
    for path in ("/embedding", "/embeddings"):
        for member in ("content", "input"):
            status, a = w.post(path, {member: TEXTS[:2]})
            good = [{"index": i, "embedding": [row]} for i, row in enumerate(want)]
            check("%s %s" % (path, member), status == 200 and a == good, a)
    status, a = w.post("/api/embed", {"model": "bert:latest", "input": TEXTS[:2], "keep_alive": "5m"})
    check("/api/embed", status == 200 and a["embeddings"] == want and a["prompt_eval_count"] == 7, a)
    check("... its name and times", a["model"] == "bert:latest" and a["total_duration"] > 0, a)
    check("... one text", w.post("/api/embed", {"input": TEXTS[0]})[1]["embeddings"] == want[:1])
    for nothing in ({}, {"input": ""}, {"input": []}):
        check("... %s" % nothing, w.post("/api/embed", nothing)[1]["embeddings"] == [])
    long = "word1 " * 600
    status, a = w.post("/api/embed", {"input": long})
    _, cut = embed(w, input=[[2] + [6] * 510 + [3]])
    same = status == 200 and a["embeddings"][0] == cut["data"][0]["embedding"]
    check("... a long text loses its end", same and a["prompt_eval_count"] == 512, a)
    status, a = w.post("/api/embed", {"input": long, "truncate": False})
    check("... or is refused", status == 400 and "512" in a["error"], a)
    check("/api/embeddings", w.post("/api/embeddings", {"prompt": TEXTS[0]}) == (200, {"embedding": want[0]}))
    check("... of nothing", w.post("/api/embeddings", {"prompt": ""}) == (200, {"embedding": []}))


def cut_texts(w):
    """Texts that are too long, in the words of several servers, against the ids that are left."""

    def same(answer, ids):
        status, a = answer
        row = embed(w, input=[ids])[1]["data"][0]["embedding"]
        return status == 200 and a["data"][0]["embedding"] == row and a["usage"]["prompt_tokens"] == len(ids)

    long, whole = "word1 " * 600 + "word2", [2] + [6] * 510 + [3]
    for body, ids in (
        ({"truncate": True}, whole), ({"truncation": True}, whole), ({"truncate_prompt_tokens": -1}, whole),
        ({"truncate_prompt_tokens": 512, "truncate": False}, whole),
        ({"truncate_prompt_tokens": 5}, [2, 6, 6, 6, 3]), ({"truncate_prompt_tokens": 1}, [3]),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, [2, 6, 6, 7, 3]),
        ({"truncate_prompt_tokens": 1, "truncation_direction": "Left"}, [3]),
        ({"truncate_prompt_tokens": 3, "add_special_tokens": False}, [6, 6, 6]),
        ({"truncate_prompt_tokens": 2, "add_special_tokens": False, "truncation_side": "left"}, [6, 7]),
    ):  # fmt: skip
        check("cut: %s" % body, same(embed(w, input=long, **body), ids))
    check("... not what fits", same(embed(w, input="word1", truncate_prompt_tokens=3), [2, 6, 3]))
    check("... ids", same(embed(w, input=[[5, 6, 7, 8]], truncate_prompt_tokens=2, add_special_tokens=False), [5, 6]))
    check("... false", embed(w, input=long, truncate=False)[0] == 400)


def text_embeddings_inference(w):
    want = [r["embedding"] for r in rows_of(MEAN, TEXTS[:2])]
    check("/embed", w.post("/embed", {"inputs": TEXTS[:2], "normalize": True}) == (200, want))
    check("... one text", w.post("/embed", {"inputs": TEXTS[0], "truncation_direction": "Right"}) == (200, want[:1]))
    status, a = w.post("/embed", {"inputs": "word1 " * 600})
    check("... a long text", status == 400 and "512" in a["error"]["message"], a)
    status, a = w.post("/embed", {"inputs": "word1 " * 600, "truncate": True})
    check("... cut", status == 200 and len(a[0]) == WIDTH, a)


def lengths(w):
    """llama-server's measures of a row."""
    row = rows_of(MEAN, TEXTS[:1])[0]["embedding"]
    for power in (0, 1, 2, 3):
        length = max(map(abs, row)) / 32760 if not power else math.fsum(abs(x) ** power for x in row) ** (1 / power)
        status, a = w.post("/embedding", {"content": TEXTS[0], "embd_normalize": power})
        near = [abs(x * length - y) < 1e-6 for x, y in zip(a[0]["embedding"][0], row, strict=True)]
        check("embd_normalize %d" % power, status == 200 and all(near), a)


def refused(w):
    for body, field in (
        ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": ["a", ""]}, "input"),
        ({"input": 5}, "input"), ({"input": [5, "a"]}, "input"), ({"input": [[]]}, "input"), ({"input": [-1]}, "input"),
        ({"input": [64]}, "input"), ({"input": ["a"] * 2049}, "input"), ({"input": {"a": 1}}, "input"),
        ({"input": "word1 " * 511}, "input"), ({"input": [1] * 513}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": WIDTH + 1}, "dimensions"), ({"input": "a", "dimensions": 8}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 513}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate": "END"}, "truncate"), ({"input": "a", "truncation_side": "up"}, "truncation_side"),
        ({"input": "a", "normalize": False}, "normalize"), ({"input": "a", "priority": 11}, "priority"),
        ({"input": "a", "model": 5}, "model"),
    ):  # fmt: skip
        status, a = embed(w, **body)
        check("%s is refused" % str(body)[:60], status == 400 and a["error"]["param"] == field, a)
    status, a = embed(w, input="word1 " * 511)
    check(
        "too long: by how much", a["error"]["code"] == "context_length_exceeded" and "512" in a["error"]["message"], a
    )
    status, a = embed(w, input="a", model="another")
    check("another model", status == 404 and a["error"]["code"] == "model_not_found", a)
    check("all dimensions", embed(w, input="a", dimensions=WIDTH)[0] == 200)
    for power in (-1, 65, 1.5):
        status, a = w.post("/embedding", {"content": "a", "embd_normalize": power})
        check("length by %s" % power, status == 400 and a["error"]["param"] == "embd_normalize", a)
    for body, field in (({}, "inputs"), ({"inputs": "a", "normalize": False}, "normalize"),
                        ({"inputs": "a", "prompt_name": "query"}, "prompt_name")):  # fmt: skip
        status, a = w.post("/embed", body)
        check("/embed %s is refused" % body, status == 400 and a["error"]["param"] == field, a)
    status, a = w.post("/api/embed", {"model": "x", "input": "a"})
    check("Ollama's form", status == 404 and list(a) == ["error"], a)
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/completion", {"prompt": "Hi"}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}),
        ("/api/chat", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/execute", {"job_id": "x", "prompt": "Hi"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ):
        status, a = w.post(path, body)
        check("%s of a model of embeddings" % path, status == 400 and "/v1/embeddings" in json.dumps(a), (status, a))
    _, models = w.get("/v1/models")
    check("what it does", models["data"][0]["capabilities"] == ["embedding"], models)
    check("... in Ollama's words", w.post("/api/show", {})[1]["capabilities"] == ["embedding"])


def together(w):
    """Many clients at once: each row is that of the text alone."""
    want = {text: r["embedding"] for text, r in zip(TEXTS, rows_of(MEAN, TEXTS), strict=True)}
    wrong = []

    def ask(i):
        mine = [TEXTS[(i + k) % len(TEXTS)] for k in range(1 + i % 4)]
        status, a = embed(w, input=mine)
        if status != 200 or [d["embedding"] for d in a["data"]] != [want[t] for t in mine]:
            wrong.append((i, status, str(a)[:200]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("24 clients at once", not wrong, wrong[:2])
    _, figures = w.get("/metrics")
    before = embed(w, input=["word1"] * 3)[1]["usage"]["prompt_tokens"]
    after = w.get("/metrics")[1]

    def total(text):
        return next(
            float(line.split()[-1]) for line in text.splitlines() if line.startswith("worker_prompt_tokens_total")
        )

    check("their tokens are counted", total(after) - total(figures) == before, (before, total(after), total(figures)))


def leaving(w):
    """Who leaves cancels; nothing is left of it."""
    c = http.client.HTTPConnection("127.0.0.1", w.port)
    body = json.dumps({"input": ["word1 " * 500] * 2000}).encode()
    c.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    w.until(lambda: any(j["state"] in ("prefill", "queued") for j in w.get("/worker/jobs")[1]["jobs"]))
    c.close()
    w.until(lambda: all(j["state"] in ("cancelled", "finished") for j in w.get("/worker/jobs")[1]["jobs"]))
    last = w.get("/worker/jobs")[1]["jobs"][0]
    check("a client that leaves", last["state"] == "cancelled", last)
    check("... and the next one is served", embed(w, input="word1")[0] == 200)


def dimensions():
    want = rows_of(MEAN, TEXTS[:1])[0]["embedding"]
    with Worker(program, "--model", MEAN, *MODEL, "--matryoshka") as w:
        for n in (1, 8, WIDTH):
            _, a = embed(w, input=TEXTS[0], dimensions=n)
            got = a["data"][0]["embedding"]
            length = math.sqrt(math.fsum(x * x for x in want[:n]))
            near = all(abs(x - y / length) < 1e-6 for x, y in zip(got, want[:n], strict=True))
            check("%d dimensions" % n, near and (n < WIDTH or got == want), got)


def scores():
    query, documents = "word1 word2", ["word3", "word4 word5", "word3", "word6 " * 30]
    raw = [r["scores"] for r in rows_of(SCORE, documents, "--query", query)]
    check("the command's scores", all(len(r) == 1 for r in raw) and raw[0] == raw[2] != raw[1], raw)
    order = sorted(range(4), key=lambda i: (-raw[i][0], i))
    with Worker(program, "--model", SCORE, *MODEL) as w:
        for path in ("/v1/rerank", "/v2/rerank", "/v1/reranking", "/rerank", "/reranking"):
            status, a = w.post(path, {"model": "bert", "query": query, "documents": documents, "raw_scores": True})
            good = status == 200 and [(r["index"], r["relevance_score"]) for r in a["results"]] == [
                (i, raw[i][0]) for i in order
            ]
            check(path, good and a["usage"]["prompt_tokens"] == a["usage"]["total_tokens"] > 20, a)
        _, a = w.post("/v1/rerank", {"query": query, "documents": [{"text": t} for t in documents], "top_n": 2})
        near = [abs(r["relevance_score"] - 1 / (1 + math.exp(-raw[r["index"]][0]))) < 1e-7 for r in a["results"]]
        check("from 0 to 1, the best two", near == [True, True] and "document" not in a["results"][0], a)
        _, a = w.post("/v1/rerank", {"query": query, "documents": documents, "return_documents": True})
        check("with documents", all(r["document"] == {"text": documents[r["index"]]} for r in a["results"]), a)
        for body, field in (
            ({"documents": ["a"]}, "query"), ({"query": "a"}, "documents"),
            ({"query": "a", "documents": ["b"], "texts": ["c"]}, "texts"),
            ({"query": "a", "documents": []}, "documents"),
            ({"query": "a", "documents": [5]}, "documents"), ({"query": "", "documents": ["a"]}, "query"),
            ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
            ({"query": "a", "documents": ["b"], "max_tokens_per_doc": 0}, "max_tokens_per_doc"),
            ({"query": "a", "documents": ["b"], "max_chunks_per_doc": 9}, "max_chunks_per_doc"),
            ({"query": "a", "documents": ["b"], "truncate_prompt_tokens": 3}, "documents"),
            ({"query": "a", "documents": ["word1 " * 511]}, "documents"), ({"query": "a", "texts": "b"}, "texts"),
        ):  # fmt: skip
            status, a = w.post("/v1/rerank", body)
            check("%s is refused" % str(body)[:60], status == 400 and a["error"]["param"] == field, a)
        cut_documents(w)
        body = {"query": query, "texts": documents, "raw_scores": True, "return_text": True}
        for path in ("/rerank", "/reranking"):
            listed = [{"index": i, "score": raw[i][0], "text": documents[i]} for i in order]
            check(path + " with texts", w.post(path, body) == (200, listed))
        many = {"query": "a", "documents": ["b"] * 100000}
        status, a = w.post("/v1/rerank", many)
        check("100000 documents", status == 400 and a["error"]["param"] == "documents", a)
        status, a = embed(w, input="x")
        check("embeddings of a reranker", status == 400 and "/v1/rerank" in a["error"]["message"], a)
        check("what it does", w.get("/v1/models")[1]["data"][0]["capabilities"] == ["rerank"])


def cut_documents(w):
    """Pairs that are too long, against those of the words that are left: the longer text is cut, at last both."""

    def words(name, n):
        return " ".join([name] * n)

    def score(query, document, **more):
        status, a = w.post("/v1/rerank", {"query": query, "documents": [document], "raw_scores": True, **more})
        tokens = a["usage"]["prompt_tokens"] if status == 200 else a
        return (status, a["results"][0]["relevance_score"], tokens) if status == 200 else a

    q, d = words("word1", 10), words("word2", 600) + " word3"
    for more, left in (
        ({"truncate": True}, (q, words("word2", 499))), ({"truncate_prompt_tokens": -1}, (q, words("word2", 499))),
        ({"max_tokens_per_doc": 7}, (q, words("word2", 7))), ({"truncate_prompt_tokens": 23}, (q, words("word2", 10))),
        ({"truncate_prompt_tokens": 16}, (words("word1", 6), words("word2", 7))),
        ({"truncate_prompt_tokens": 23, "truncation_direction": "left"}, (q, words("word2", 9) + " word3")),
        ({"max_tokens_per_doc": 7, "truncation_side": "left"}, (q, words("word2", 6) + " word3")),
    ):  # fmt: skip
        check("cut: %s" % more, score(q, d, **more) == score(*left) and score(*left)[0] == 200, score(q, d, **more))
    check("... a query, too", score(d, q, truncate=True) == score(words("word2", 499), q))
    check("... and not what fits", score(q, "word2", truncate=True, max_tokens_per_doc=5) == score(q, "word2"))
    # A word of any length is one token: what a long query costs does not grow with the documents.
    body = {"query": "x" * (1 << 20), "documents": ["word1"] * 2048}
    status, a = w.post("/v1/rerank", body)
    check("a long query of many documents", status == 200 and a["usage"]["prompt_tokens"] == 2048 * 5, str(a)[:200])


def with_template(path, template):
    """The reranker with a template of its own: a key before all others, of as many bytes as keep tensors aligned."""
    with open(SCORE, "rb") as f:
        model = f.read()
    key = b"tokenizer.chat_template.rerank"
    template += b" " * (-(len(key) + 20 + len(template)) % 32)
    (n,) = struct.unpack_from("<Q", model, 16)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(template)) + template
    with open(path, "wb") as f:
        f.write(model[:16] + struct.pack("<Q", n + 1) + entry + model[24:])


def templates():
    """A file's own template, in either order: the same as the tokenizer's pair, and as the pair turned round."""
    query, document = "word1 word2", "word4 word5 {query}"
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "reranker.gguf")
        for template, pair in (
            (b"[CLS] {query} [SEP] {document} [SEP]", (query, document)),
            (b"[CLS] {document} [SEP] {query} [SEP]", (document, query)),
        ):
            with_template(model, template)
            want = rows_of(SCORE, pair[1:], "--query", pair[0])[0]["scores"][0]
            said = rows_of(model, [document], "--query", query)[0]["scores"][0]
            check("the command, %s" % template, said == want, (said, want))
            with Worker(program, "--model", model, *MODEL) as w:
                body = {"query": query, "documents": [document], "raw_scores": True}
                _, a = w.post("/v1/rerank", body)
                check("... the server", a["results"][0]["relevance_score"] == want, a)
                for more, field in (
                    ({"truncate": True}, "truncate"), ({"truncate_prompt_tokens": 5}, "truncate"),
                    ({"max_tokens_per_doc": 5}, "max_tokens_per_doc"),
                    ({"query": "x" * 33000, "documents": ["a"] * 2048}, "query"),
                ):  # fmt: skip
                    status, a = w.post("/v1/rerank", {**body, **more})
                    check("... refuses %s" % field, status == 400 and a["error"]["param"] == field, a)
        with_template(model, b"[CLS] {query} [SEP]")
        r = subprocess.run([program, "embed", "-m", model, "--query", query, "--", document], capture_output=True)
        check("without {document}", r.returncode == 1 and b"{document} is missing" in r.stderr, r)
        with Worker(program, "--model", model, *MODEL) as w:
            status, a = w.post("/v1/rerank", {"query": query, "documents": [document]})
            check("... is refused", status == 400 and "{document} is missing" in a["error"]["message"], a)


def pairs():
    """A reranker whose tokens have types, against a forward pass in float64."""
    meta, tensors = gguf.read(PAIR)
    model = families.model(meta, tensors, 512)
    ids = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    encode = lambda text: [ids["\u2581" + word] for word in text.split()]  # noqa: E731
    query, documents = "word1 word2", ["word3", "word4 word5", "word6 " * 30]
    first = [2, *encode(query), 3]
    want = [model.embed([*first, *encode(d), 3], len(first))[0] for d in documents]
    plain = [model.embed([*first, *encode(d), 3])[0] for d in documents]
    far = min(abs(x - y) for x, y in zip(want, plain, strict=True))
    got = [r["scores"][0] for r in rows_of(PAIR, documents, "--query", query)]
    off = max(abs(x - y) for x, y in zip(want, got, strict=True))
    check("types of tokens: the command", off < far / 10, (off, far, want, got))
    with Worker(program, "--model", PAIR, *MODEL) as w:
        status, a = w.post("/v1/rerank", {"query": query, "documents": documents, "raw_scores": True})
        same = status == 200 and all(r["relevance_score"] == got[r["index"]] for r in a["results"])
        check("... the service", same and len(a["results"]) == 3, a)
    r = subprocess.run([program, "embed", "-m", PAIR, "--pooling", "mean", "a"], capture_output=True, text=True)
    check("... and no other pooling", r.returncode == 1 and "goes by the file alone" in r.stderr, r.stderr)


def a_model_that_generates():
    pooled = ("--pooling", "last")
    want = rows_of("embedded:haiku", ["Write a haiku", "rain"], *pooled)
    with Worker(program, *pooled) as w:
        status, a = embed(w, input=["Write a haiku", "rain"], model="haiku")
        same = status == 200 and [d["embedding"] for d in a["data"]] == [r["embedding"] for r in want]
        check("--pooling", same and len(want[0]["embedding"]) == 256, a)
        check("... and it generates no more", w.post("/v1/completions", {"prompt": "x"})[0] == 400)
    with Worker(program) as w:
        for path, body in (
            ("/v1/embeddings", {"input": "x"}), ("/embedding", {"content": "x"}), ("/api/embed", {"input": "x"}),
            ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ):  # fmt: skip
            status, a = w.post(path, body)
            check(path + " of a model that generates", status == 400 and "generates" in json.dumps(a), (status, a))


def the_gate():
    """Scopes, rates and the audit log."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = os.path.join(folder, "policy"), os.path.join(folder, "audit.log")
        keys = {}
        for name, scope, more in (
            ("both", "embed,inference", []), ("embeds", "embed", ["--set", "limits.tokens_per_minute=20"]),
            ("talks", "inference", []), ("root", "admin", []),
        ):  # fmt: skip
            r = subprocess.run(
                [
                    program,
                    "admin",
                    "api-keys",
                    "create",
                    name,
                    "--policy-file",
                    policy,
                    "--set",
                    "scopes=" + scope,
                    *more,
                ],
                capture_output=True,
                check=True,
            )
            keys[name] = {"Authorization": "Bearer " + json.loads(r.stdout)["secret"]}
        with Worker(program, "--model", MEAN, *MODEL, "--policy-file", policy, "--audit-log", log) as w:
            ask = lambda key, texts: w.ask("POST", "/v1/embeddings", {"input": texts}, keys[key])  # noqa: E731
            check("without the scope", ask("talks", "word1")[0] == 403)
            status, head, _ = ask("embeds", ["word1"] * 4)
            check("with it", status == 200 and head["x-ratelimit-remaining-tokens"] == "8", (status, head))
            check("... no more tokens than a minute's", ask("embeds", ["word1"] * 4)[0] == 429)
            check("another key", ask("both", ["word1"] * 4)[0] == 200)
            with open(log, encoding="utf-8") as f:
                entries = [json.loads(line) for line in f]
        mine = [e for e in entries if e.get("route") == "/v1/embeddings"]
        good = [e for e in mine if e.get("status") == 200]
        check("the log", len(mine) == 4 and [e["tokens_in"] for e in good] == [12, 12], mine)
        guarded(policy, keys)


def guarded(policy, keys):
    """Guardrails see texts as they were sent, also what the tokenizer makes of them, and the query."""
    blocklist = ["word1-word2", "\u4f60\u597d", "unheard of", "word3 word4"]
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "audit.log")
        with Worker(program, "--model", MEAN, *MODEL, "--policy-file", policy) as w:
            status, _, said = w.ask("PUT", "/admin/guardrails", {"blocklist": blocklist}, keys["root"])
            check("a blocklist", status == 200, said)
            for text in ("a Word1-word2", "\u4f60\u597d", "it is UNHEARD of", [8, 9]):
                status, _, said = w.ask("POST", "/v1/embeddings", {"input": ["word5", text]}, keys["both"])
                check("blocked: %s" % (text,), status == 403 and b"blocklist" in said, (status, said))
            status = w.ask("POST", "/v1/embeddings", {"input": "word2 word1"}, keys["both"])[0]
            check("the others are not", status == 200, status)
        with Worker(program, "--model", SCORE, *MODEL, "--policy-file", policy, "--audit-log", log) as w:
            ask = lambda query, text: w.ask(  # noqa: E731
                "POST", "/v1/rerank", {"query": query, "documents": [text]}, keys["both"]
            )
            for query, text in (("\u4f60\u597d", "word1"), ("word1", "\u4f60\u597d")):
                status, _, said = ask(query, text)
                check("blocked: %s, %s" % (query, text), status == 403 and b"blocklist" in said, (status, said))
            check("scores", [ask("word1", "word5")[0], ask("word2", "word5")[0]] == [200, 200])
        with open(log, encoding="utf-8") as f:
            entries = [json.loads(line) for line in f]
        asked = [e["prompt_hmac"] for e in entries if e.get("status") == 200 and e.get("route") == "/v1/rerank"]
        check("the query is a part of what was asked", len(set(asked)) == 2, entries)


def the_log_of_scores():
    """The query is part of what was asked."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "audit.log")
        with Worker(program, "--model", SCORE, *MODEL, "--audit-log", log, "--audit-raw") as w:
            for query in ("word1", "word2", "word1"):
                check("asked", w.post("/v1/rerank", {"query": query, "documents": ["word3", "word4"]})[0] == 200)
            with open(log, encoding="utf-8") as f:
                entries = [e for e in map(json.loads, f) if e.get("route") == "/v1/rerank"]
        asked = [e["prompt"] for e in entries]
        check("the log of scores", asked == ["word%d\nword3\nword4" % i for i in (1, 2, 1)], asked)
        a, b, c = (e["prompt_hmac"] for e in entries)
        check("... its digests", a == c != b, entries)


def drained():
    """What had begun ends, within the time that there is."""
    w = Worker(program, "--model", MEAN, *MODEL, "--shutdown-timeout-sec", "60")
    got = []
    t = threading.Thread(target=lambda: got.append(embed(w, input=["word1 " * 400] * 200)))
    t.start()
    begun = ("prefill", "finished")  # a job is listed before the engine has it
    w.until(lambda: any(j["state"] in begun for j in w.get("/worker/jobs")[1]["jobs"]))
    w.post("/shutdown", {})
    t.join()
    check("what was running when it drained", got[0][0] == 200 and len(got[0][1]["data"]) == 200, str(got)[:200])
    w.process.wait()


def clients(w):
    url = "http://127.0.0.1:%d" % w.port
    want = [r["embedding"] for r in rows_of(MEAN, TEXTS[:2])]
    try:
        import openai

        c = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        a = c.embeddings.create(model="bert", input=TEXTS[:2])  # it asks for base64
        near = [
            abs(x - y) < 1e-7
            for d, row in zip(a.data, want, strict=True)
            for x, y in zip(d.embedding, row, strict=True)
        ]
        check("client: OpenAI's", all(near) and len(near) == 2 * WIDTH and a.usage.prompt_tokens == 7, a)
    except ImportError:
        print("not checked: the openai package is not installed")
    try:
        import ollama

        c = ollama.Client(url)
        check("client: Ollama's", [list(r) for r in c.embed("bert", TEXTS[:2]).embeddings] == want)
        check("client: ... one", list(c.embeddings("bert", TEXTS[0]).embedding) == want[0])
    except ImportError:
        print("not checked: the ollama package is not installed")


with Worker(program, "--model", MEAN, *MODEL) as w:
    rows(w)
    other_interfaces(w)
    cut_texts(w)
    text_embeddings_inference(w)
    lengths(w)
    refused(w)
    together(w)
    clients(w)
    leaving(w)
the_command()
dimensions()
scores()
templates()
pairs()
a_model_that_generates()
the_gate()
the_log_of_scores()
drained()
done()
