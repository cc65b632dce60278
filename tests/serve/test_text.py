"""/tokenize, /detokenize and /capabilities give what the command line gives; the probes say what state the worker is
in. usage: test_text.py PROGRAM SOURCE"""

import json
import subprocess
import sys

from service import DEVICE, LONG, Job, Worker, cancelled, check, done, frees_memory

program, source = sys.argv[1:3]
TEXTS = [
    "Hello",
    "",
    " two  spaces ",
    "你好世界",
    "Hello 👋 World 🌍",
    "Mixed: 日本語 English العربية",
    "line\nend\ttab",
    "<|im_start|>user",
    "a" * 3000,
    "\u0000zero",
]


def command(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def text_routes(w):
    for text in TEXTS:
        llama, vllm = w.post("/tokenize", {"content": text})[1], w.post("/tokenize", {"prompt": text})[1]
        check(
            "count %r" % text[:12],
            llama["count"] == len(llama["tokens"]) and vllm["count"] == len(vllm["tokens"]),
            llama,
        )
        if "\0" not in text and text:
            said = [
                int(i)
                for i in command("tokenize", "--model", source + "/models/haiku/haiku-q4_k_m.gguf", "--", text).split()
            ]
            check("as the command line has it %r" % text[:12], vllm["tokens"] == said, (vllm["tokens"][:8], said[:8]))
        with_special = w.post("/tokenize", {"content": text, "add_special": True})[1]
        check("add_special %r" % text[:12], with_special["tokens"] == vllm["tokens"])
        back = w.post("/detokenize", {"tokens": vllm["tokens"]})[1]
        check("there and back %r" % text[:12], back == {"content": text, "prompt": text}, back)
    pieces = w.post("/tokenize", {"content": "Hello world", "with_pieces": True, "return_token_strs": True})[1]
    check(
        "pieces join to the text",
        "".join(t["piece"] for t in pieces["tokens"]) == "Hello world" == "".join(pieces["token_strs"]),
        pieces,
    )
    plain, special = (
        w.post("/tokenize", {"content": "<|im_start|>", "parse_special": p})[1]["tokens"] for p in (False, True)
    )
    check("text is no control token unless it is asked for", len(plain) > 1 and plain != special, (plain, special))
    control = w.get("/health")[1]["eos_ids"][0]
    check(
        "control tokens are shown on request",
        w.post("/detokenize", {"tokens": [control]})[1]["content"] == ""
        and w.post("/detokenize", {"tokens": [control], "special": True})[1]["content"] != "",
    )
    vocab = w.get("/health")[1]["vocab_size"]
    for tokens in ([vocab], [-1], [1.5], ["1"], [None], "1 2", 5, None):
        status, e = w.post("/detokenize", {"tokens": tokens})
        check("tokens %r" % (tokens,), status == 400 and e["code"] == "INVALID_REQUEST" and e["field"] == "tokens", e)
    status, e = w.post("/tokenize", {"content": "x", "model": "another"})
    check("another model", status == 404 and e["field"] == "model", e)
    check("this model", w.post("/tokenize", {"content": "x", "model": w.get("/health")[1]["model"]})[0] == 200)
    check("the largest text", w.post("/tokenize", {"content": "a" * (4 << 20)})[0] == 200)
    check(
        "pieces of a large one",
        len(
            w.post("/tokenize", {"content": "a " * (1 << 19), "with_pieces": True, "return_token_strs": True})[1][
                "token_strs"
            ]
        )
        > 1 << 18,
    )
    status, e = w.ask("POST", "/tokenize", b'{"content":"","x":[' + b"{}," * (5 << 20) + b"{}]}")[::2]
    check("what would take gigabytes once parsed", status == 413 and json.loads(e)["code"] == "PAYLOAD_TOO_LARGE", e)
    check("a larger one", w.post("/tokenize", {"content": "a" * ((8 << 20) + 1)})[0] == 400)


def memory_comes_back(w):
    """Large requests leave no memory behind, whatever threads serve them."""
    if not frees_memory(program):
        print("not checked: a sanitizer keeps what was freed")
        return
    before = w.metrics()("process_resident_memory_bytes")
    chat = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(40001)]
    for _ in range(3):
        for path, body in [("/tokenize", {"content": "ab" * (1 << 20)})] * 3 + [
            ("/detokenize", {"tokens": [5] * 500000}),
            ("/v1/completions", {"prompt": [1] * 500000}),
            ("/v1/chat/completions", {"messages": chat}),
        ]:
            w.post(path, body)
    after = w.metrics()("process_resident_memory_bytes")
    check("memory of large requests comes back", after < before + (150 << 20), (before, after))


def capabilities(w):
    c = w.get("/capabilities")[1]
    profile = json.loads(command("capabilities", "--json"))
    # the command tells of every device of the machine, the service of its own
    own = ("worker_id", "devices", "vram_bytes")
    check(
        "profile",
        {k: v for k, v in c["worker"].items() if k not in own} == {k: v for k, v in profile.items() if k not in own}
        and set(c["worker"]["devices"]) <= set(profile["devices"]),
        (c["worker"], profile),
    )
    check(
        "descriptor",
        c["model"]["model_id"] == w.get("/health")[1]["model"]
        and c["model"]["architecture"] in c["worker"]["supports_architecture"]
        and set(c["model"]["quant"]) <= set(c["worker"]["supports_quant"]),
        c["model"],
    )


def draining(w):
    """Readiness goes first; a running stream goes on; probes of the admin port answer until the end."""
    long = Job(w, "long").until("token")
    w.post("/shutdown", {}, port=w.admin)
    w.until(lambda: w.get("/readyz", w.admin)[0] == 503)
    states = [w.get(path, w.admin)[0] for path in ("/readyz", "/livez", "/healthz")] + [
        w.get("/health", w.admin)[1]["state"]
    ]
    check("draining is alive and healthy, but not ready", states == [503, 200, 503, "draining"], states)
    n = len(long.events)
    w.until(lambda: len(long.events) > n)
    check("the stream goes on, and can be cancelled", cancelled(long.cancel()), long.events[-1:])
    check("exit status", w.status() == 0, w.said())


with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "600") as w:
    health = w.get("/health")[1]
    check(
        "health",
        health["status"] == "healthy"
        and health["state"] == "ready"
        and health["reason"] is None
        and health["device"] == DEVICE
        and health["resident"] is (DEVICE == "cuda")
        and (health["vram_bytes_used"] > 0) is (DEVICE == "cuda")
        and health["quant_kind"]
        and health["tokenizer_kind"] == "gguf-bpe"
        and health["queue"]["running"] == 0,
        health,
    )
    health = w.with_digest()
    check("the admin port says the same", w.get("/health", w.admin)[1]["fingerprint"] == health["fingerprint"])
    memory_comes_back(w)
    text_routes(w)
    capabilities(w)
    check("HEAD", w.ask("HEAD", "/health")[0] == 200 and w.ask("HEAD", "/health")[2] == b"")
    draining(w)

with Worker(program, "--wait-for-commit", "--model-dir", source + "/models/haiku", wait=False) as w:
    w.until(lambda: w.get("/health")[1]["state"] == "waiting")
    check("waiting: alive", w.get("/livez") == (200, {"status": "alive"}))
    check(
        "waiting: not ready",
        w.get("/readyz") == (503, {"status": "not_ready", "role": "unified", "reason": "no model backend loaded"}),
        w.get("/readyz"),
    )
    check(
        "waiting: degraded",
        w.get("/healthz") == (503, {"status": "degraded", "reason": "model_not_loaded"}),
        w.get("/healthz"),
    )
    status, h = w.get("/health")
    check(
        "waiting: unhealthy",
        status == 503 and h["status"] == "unhealthy" and h["state"] == "waiting" and "model" not in h,
        h,
    )
    check("waiting: a profile and no descriptor", w.get("/capabilities")[1]["model"] is None)
    check("waiting: ends", w.end() == 0, w.said())
done()
