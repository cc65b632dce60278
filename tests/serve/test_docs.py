#!/usr/bin/env python3
"""The examples of README.md and docs/http.md as a newcomer copies them: every command of the README's start and every
curl line is run, and what the manual shows as its answer is compared with what comes: members, types, and the values
that do not depend on time, place and processor. usage: test_docs.py PROGRAM SOURCE"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from service import Worker, check, done

program, source = map(os.path.abspath, sys.argv[1:3])
MODEL = "haiku-q4_k_m.gguf"
# Of a moment, a machine or a build, or drawn by a model.
OTHER = set(
    "id job_id created created_at system_fingerprint fingerprint started_at first_token_ms decode_time_ms digest "
    "worker_id uptime_seconds available_bytes total_bytes bytes device device_text content text finish_reason "
    "completion_tokens total_tokens output_tokens tokens_out tokens_cached cached_tokens ready_at startup_seconds "
    "found t queue kv_cache chat_template kv vram_bytes_used version hint secret timestamp loads "
    "modified_at response total_duration load_duration prompt_eval_duration eval_count eval_duration done_reason "
    "size".split()
)
# A model that a newcomer has, and a clone has not.
NAMES = {"gpt-oss-20b.gguf": os.path.join(os.environ["WORKER_GOLDENS"], "harmony.gguf") + " --chat --max-tokens 20"}


def read(name):
    with open(os.path.join(source, name), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """The lines of each block of code."""
    return [[l[4:] for l in b.splitlines()] for b in re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)]


def section(text, title):
    return re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), text, re.M | re.S).group(1)


# ---- the README's commands ------------------------------------------------------------------------------------------


def commands(text, folder):
    """Runs every line that is a command, but for those that serve, measure, fetch or need a GPU."""
    for line in (l for b in blocks(text) for l in b if re.match(r"(worker|echo|printf) ", l)):
        line = re.sub(r" +#.*$", "", line)
        if any(word in line for word in ("cuda", " serve", "bench", "my-plugin", "worker pull")):
            continue
        for name, instead in NAMES.items():
            line = line.replace(name, instead)
        shell = "worker() { %s \"$@\"; }\n%s" % (shlex.quote(program), line)
        r = subprocess.run(
            ["bash", "-c", shell], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=300
        )
        check("$ " + line, r.returncode == 0, (r.returncode, r.stderr.decode()[-500:]))


def files_of_newcomers(folder):
    chat = [{"role": "user", "content": "Hello"}]
    tools = [{"type": "function", "function": {"name": "current_minute"}}]
    written = {
        "text.txt": "Write a haiku about rain",
        "chat.json": json.dumps(chat),
        "tools.json": json.dumps(tools),
        "context.json": json.dumps({"messages": chat}),
        "chat_template.jinja": "{{ messages[0].content }}{{ strftime_now('%Y') }}",
    }
    for name, text in written.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    os.symlink(os.path.join(source, "models/haiku", MODEL), os.path.join(folder, "model.gguf"))
    quantized = os.path.join(os.environ["WORKER_GOLDENS"], "formats-f16.gguf")
    os.symlink(quantized, os.path.join(folder, "in.gguf"))


def readme():
    text = read("README.md")
    with tempfile.TemporaryDirectory() as folder:
        files_of_newcomers(folder)
        for title in ("Start", "JSON Schema", "Chat templates"):
            commands(section(text, title), folder)


def functions(w):
    """The program that calls functions prints what the README says."""
    example = next(b for b in blocks(read("README.md")) if b[0].startswith("import ") and "openai" in b[0])
    try:
        import openai  # noqa: F401
    except ImportError:
        print("not checked: the README's program, for the openai package is not installed (PyPI)")
        return
    cut = next(i for i, l in enumerate(example) if not l)
    said, expected = "\n".join(example[:cut]).replace("7531", str(w.port)), "\n".join(example[cut + 1 :])
    r = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=300)
    check("the README's program prints what stands there", r.stdout.strip() == expected.strip(), r)


# ---- curl lines --------------------------------------------------------------------------------------------------


def request(line):
    """(method, path, body, headers) of a curl line."""
    words, method, body, url, headers = shlex.split(line)[1:], None, None, None, {}
    while words:
        word = words.pop(0)
        if word == "-d":
            body = words.pop(0)
        elif word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, value = words.pop(0).split(": ")
            headers[name] = value
        elif word != "-N":
            url = word
    return method or ("POST" if body else "GET"), re.sub(r"^http://[^/]+", "", url), body, headers


def split(block):
    """The curl line of a block, which may go on over several, and the lines behind it."""
    at = 1
    while at < len(block) and ("\n".join(block[:at]).count("'") % 2 or block[at - 1].endswith("\\")):
        at += 1
    return "\n".join(block[:at]).replace("\\\n", ""), block[at:]


def differs(shown, got, key=""):
    """Where the answer is not like the one that is shown; "": nowhere."""
    if isinstance(shown, dict) and isinstance(got, dict):
        if set(shown) != set(got):
            return "%s: members %s" % (key, sorted(set(shown) ^ set(got)))
        return next((d for d in (differs(shown[k], got[k], k) for k in shown) if d), "") if key not in OTHER else ""
    if isinstance(shown, list) and isinstance(got, list) and key not in OTHER:
        if len(shown) != len(got):
            return "%s: %d entries" % (key, len(got))
        return next((d for d in (differs(a, b, key) for a, b in zip(shown, got)) if d), "")
    if key in OTHER:  # a number is still one
        return key if len({isinstance(v, (int, float)) for v in (shown, got) if v is not None}) > 1 else ""
    return "" if shown == got else "%s: %r" % (key, got)


def as_json(text):
    """None: an answer that is shown in part."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def documents(text):
    """The JSON of a text: an answer, or the data of events."""
    data = [as_json(d) for d in re.findall(r"^data: (.*)$", text, re.M)] or [as_json(text)]
    return [d for d in data if isinstance(d, dict)]


def curl(w, block):
    line, shown = split(block)
    method, path, body, headers = request(line)
    status, _, data = w.ask(method, path, body.encode() if body else None, headers)
    refused = any(d.get("error") or d.get("code") for d in documents("\n".join(shown)))
    check("%s %s %s" % (method, path, body or ""), status >= 400 if refused else status < 300, (status, data))
    answer = data.decode()
    got = documents(answer)
    for d in documents("\n".join(shown)):
        same_kind = [g for g in got if set(g) == set(d)]
        wrong = differs(d, same_kind[0]) if same_kind else "no such answer: " + answer
        check("... answers as it is shown", not wrong, wrong)
    return answer


def shown_stream(w, text):
    """The events of /execute that the manual shows are among those of its example."""
    first, *others = [b for b in blocks(section(text, "Run a job")) if b[0].startswith(("curl", "event"))]
    got = documents(curl(w, first))
    for d in documents("\n".join("\n".join(b) for b in others if b[0].startswith("event"))):
        wrong = [differs(d, g) for g in got if set(g) == set(d)]
        check("an event as the manual shows it", "" in wrong, (d, wrong))


def get_answers(w, text, headers=None):
    """`### `GET /path``, then an answer."""
    for path, rest in re.findall(r"^### `GET (\S+)`\n+(    \{.*\n(?:    .*\n)*)", text, re.M):
        shown = as_json(rest)
        if shown is None or "{" in path:
            continue
        status, _, data = w.ask("GET", path, headers=headers)
        wrong = differs(shown, json.loads(data))
        check("GET %s answers as it is shown" % path, status == 200 and not wrong, wrong)


def parted(block):
    """A block that asks several times, one by one."""
    at = 0
    for end in [i for i, l in enumerate(block) if i and re.match("curl |worker ", l)] + [len(block)]:
        yield block[at:end]
        at = end


def with_keys(text):
    """Examples, one after another, on a worker whose first key is made and that is started as their first lines say."""
    (create, serve, *rest), *others = blocks(text)
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([program, *shlex.split(create, True)[1:]], cwd=folder, stdout=subprocess.PIPE)
        key = json.loads(made.stdout)["secret"]
        with Worker(program, *shlex.split(serve, True)[2:-1], os.path.join(folder, "policy.json")) as w:
            environment = dict(os.environ, WORKER_API_KEY=key, WORKER_URL="http://127.0.0.1:%d" % w.port)
            for block in (part for b in [rest, *others] for part in parted(b)):
                if block[0].startswith("curl "):
                    curl(w, [re.sub(r"\$(KEY|SECRET)", key, l) for l in block])
                elif block[0].startswith("worker admin "):
                    command = [program, *shlex.split(block[0], True)[1:]]
                    r = subprocess.run(command, env=environment, capture_output=True, text=True)
                    check("$ " + block[0], r.returncode == 0, r.stderr)
            get_answers(w, text, {"Authorization": "Bearer " + key})


def deployment():
    """What docs/deployment.md has of worker admin and worker audit, in its order, on a worker as it says."""
    text = section(read("docs/deployment.md"), "Who may use it")
    with tempfile.TemporaryDirectory() as folder:
        passphrase = os.path.join(folder, "passphrase")
        with open(passphrase, "w", encoding="ascii") as f:
            os.chmod(passphrase, 0o600)
            f.write("correct horse battery staple\n")
        lines = "\n".join(l for b in blocks(text) for l in b).replace("\\\n", "")
        lines = lines.replace("/var/lib/worker/haiku", folder).replace("/etc/worker", folder)
        first, *others = re.findall(r"^worker (?:admin|audit) .*$", lines, re.M)
        made = subprocess.run([program, *shlex.split(first, True)[1:]], stdout=subprocess.PIPE)
        options = ["--policy-file", folder + "/policy", "--policy-passphrase-file", passphrase]
        with Worker(program, *options, "--audit-log", folder + "/audit.log") as w:
            secret = json.loads(made.stdout)["secret"]
            environment = dict(os.environ, WORKER_API_KEY=secret, WORKER_URL="http://127.0.0.1:%d" % w.port)
            for line in others:
                command = [program, *shlex.split(line, True)[1:]]
                r = subprocess.run(command, env=environment, capture_output=True, text=True)
                check("$ " + line, r.returncode == 0, r.stderr)
        check("they were not few", len(others) >= 9, others)


def rows(text):
    """Requests for embeddings and scores, of models that give them."""
    models = os.environ["WORKER_GOLDENS"]
    for name, path in (("bert-mean", "/v1/embeddings"), ("bert-score", "/v1/rerank")):
        with Worker(program, "--model", os.path.join(models, name + ".gguf")) as w:
            asked = [b for b in blocks(text) if b[0].startswith("curl ") and path in b[0]]
            check("requests for " + path, asked)
            for block in asked:
                curl(w, block)


def manual():
    text = read("docs/http.md")
    pool, admin = section(text, "Drive a pool"), section(text, "Administration")
    embeddings = section(text, "Embeddings and scores")
    open_to_all = text.replace(pool, "").replace(admin, "").replace(embeddings, "")
    rows(embeddings)
    with_keys(admin)
    with_keys(section(read("README.md"), "Who may use it"))
    with Worker(program) as w:
        shown_stream(w, text)
        get_answers(w, open_to_all)
        for block in blocks(open_to_all) + blocks(section(read("README.md"), "JSON Schema")):
            if block[0].startswith("curl ") and "/shutdown" not in block[0]:
                curl(w, block)
        functions(w)
        curl(w, next(b for b in blocks(text) if "/shutdown" in b[0]))
        check("the worker ends", w.status() == 0, w.said())
    with Worker(program, "--wait-for-commit", "--model-dir", os.path.join(source, "models/haiku"), wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        for block in blocks(pool):
            if block[0].startswith("curl "):
                curl(w, block)


readme()
deployment()
manual()
done()
