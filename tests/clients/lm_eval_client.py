"""lm-eval, its command line with tasks of our own: answers through chats and completions, and log-likelihoods through
completions, which are those of `worker score`."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

from service import check, done

URL = os.environ["WORKER_URL"]
TOPICS = ["rain", "a frog", "the first snow"]
PAIRS = [
    ("an old silent pond", [" and a frog", " frog frog frog"]),
    ("the gutter learns", [" a new song", " nothing nothing"]),
    ("snow falls", [" on the garden", " umbrella seven"]),
]
ROLLING = ["an old silent pond\na frog jumps into the pond\nsplash! silence again", "snow " * 700]

TASK = """task: %(name)s
dataset_path: json
dataset_kwargs: {data_files: {test: "%(folder)s/%(name)s.jsonl"}}
test_split: test
output_type: %(kind)s
%(more)s
"""
GENERATE = """doc_to_text: "Write a haiku about {{topic}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["</s>"], max_gen_toks: 40, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]"""
CHOICE = """doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc}]"""
TEXT = """doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte}]"""


def ask(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as r:
        return json.load(r)


def ids_of(text):
    return ask("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def score(ids):
    """The sum of the log probabilities of all ids but the first."""
    command = [os.environ["PROGRAM"], "score", "--ids", " ".join(map(str, ids))]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    return -(said["nll"] or 0) * said["scored"]


def add_task(folder, name, kind, more, docs):
    with open("%s/%s.jsonl" % (folder, name), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(d) + "\n" for d in docs)
    with open("%s/%s.yaml" % (folder, name), "w", encoding="utf-8") as f:
        f.write(TASK % {"name": name, "kind": kind, "more": more, "folder": folder})


def evaluate(folder, model, path, task, *more, **arguments):
    """The samples of a task, each with its answers and what they scored."""
    out = "%s/out-%s-%s" % (folder, model, task)
    given = {"model": "haiku", "base_url": URL + path, "tokenized_requests": True, **arguments}
    command = [
        sys.executable, "-m", "lm_eval", "run", "--model", model, "--tasks", task, "--include_path", folder,
        "--model_args", ",".join("%s=%s" % pair for pair in given.items()), "--output_path", out,
        "--log_samples", *more,
    ]  # fmt: skip
    home = {"HF_HOME": folder + "/hub", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    r = subprocess.run(command, env=dict(os.environ, **home), capture_output=True, text=True, timeout=400)
    files = glob.glob(out + "/**/samples_*.jsonl", recursive=True)
    check("lm-eval: %s with %s" % (task, model), r.returncode == 0 and len(files) == 1, r.stderr[-3000:])
    if not files:
        return []
    with open(files[0], encoding="utf-8") as f:
        return sorted((json.loads(line) for line in f), key=lambda s: s["doc_id"])


def near(a, b):
    return abs(a - b) < 1e-4 * max(1, abs(b))


with tempfile.TemporaryDirectory() as folder:
    prefix = ask("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "x"}]})["token_ids"][0]
    remote = {"tokenizer_backend": "remote", "custom_prefix_token_id": prefix, "max_length": 512}

    prompts = ["Write a haiku about " + t for t in TOPICS]
    greedy = {"model": "haiku", "max_tokens": 40, "temperature": 0}
    chats = [ask("/v1/chat/completions", dict(greedy, messages=[{"role": "user", "content": p}])) for p in prompts]
    texts = [ask("/v1/completions", dict(greedy, prompt=p)) for p in prompts]
    answers = {"chat": [c["choices"][0]["message"]["content"] for c in chats],
               "raw": [c["choices"][0]["text"] for c in texts]}  # fmt: skip
    for name, list_ in answers.items():
        docs = [{"topic": t, "answer": a} for t, a in zip(TOPICS, list_)]
        add_task(folder, "haiku_" + name, "generate_until", GENERATE, docs)
    samples = evaluate(
        folder, "local-chat-completions", "/v1/chat/completions", "haiku_chat", "--apply_chat_template",
        tokenized_requests=False,
    )  # fmt: skip
    said = [s["resps"][0][0] for s in samples]
    check("lm-eval: the answers of a chat", said == answers["chat"] and all(said), (said, answers["chat"]))
    for tokenized in (True, False):
        samples = evaluate(
            folder, "local-completions", "/v1/completions", "haiku_raw", **dict(remote, tokenized_requests=tokenized)
        )
        said = [s["resps"][0][0] for s in samples]
        check("lm-eval: ... of a completion", said == answers["raw"] and all(said), (said, answers["raw"]))

    add_task(folder, "choices", "multiple_choice", CHOICE, [{"text": t, "choices": c} for t, c in PAIRS])
    samples = evaluate(folder, "local-completions", "/v1/completions", "choices", "--batch_size", "2", **remote)
    got = [[float(r[0][0]) for r in s["resps"]] for s in samples]
    want = [[score(ids_of(t + c)) - score(ids_of(t)) for c in choices] for t, choices in PAIRS]
    good = len(got) == len(want) and all(near(a, b) for g, w in zip(got, want) for a, b in zip(g, w))
    check("lm-eval: log-likelihoods are those of worker score", good, (got, want))

    add_task(folder, "rolling", "loglikelihood_rolling", TEXT, [{"text": t} for t in ROLLING])
    samples = evaluate(folder, "local-completions", "/v1/completions", "rolling", **remote)
    got = [float(s["resps"][0][0]) for s in samples]
    short = score([prefix, *ids_of(ROLLING[0])])
    check("lm-eval: a text's is, too", len(got) == 2 and near(got[0], short), (got, short))
    ids = [prefix, *ids_of(ROLLING[1])]  # its windows are of max_length - 1 ids; what is left ends a whole one
    n_left = len(ids) - 511
    want = score(ids[:511]) + score(ids[-511:]) - score(ids[-511:-n_left])
    check(
        "lm-eval: also one that is longer than the context",
        0 < n_left < 511 and len(got) == 2 and near(got[1], want),
        (got, want),
    )
done()
