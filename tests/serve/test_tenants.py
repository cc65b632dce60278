#!/usr/bin/env python3
"""Tenants beside each other: 64 keys, each with a text of its own in all that it sends, ask for everything at once.
What comes back to one of them must be what it would be alone on a worker: nothing of the others' texts, jobs, counts,
or of what the caches know of them. TENANT_REQUESTS says how many requests: 6400 are a slow test, 640000 take half an
hour. With a sanitizer there are fewer of both."""

import collections
import json
import os
import random
import re
import sys
import threading

from gated import Client, Gated, at_once
from service import Worker, check, done, events, frees_memory

program = sys.argv[1]
QUICK = frees_memory(program)
TENANTS, THREADS = 64 if QUICK else 12, 12
REQUESTS = int(os.environ.get("TENANT_REQUESTS", "1200" if QUICK else "480"))
SHARED = "The lantern over the harbour counts the boats that come home before the rain begins to fall tonight. "
CANARY = re.compile("canary[0-9a-f]{12}")
CHOSEN = ("cmpl-", "chatcmpl-", "completion-", "resp_", "msg_", "ollama-")  # ids that the worker chooses
random.seed(7)


class Tenant:
    def __init__(self, number):
        self.number = number
        self.canary = "canary%012x" % random.getrandbits(48)
        # a text that all have in front, and others that begin with its own
        own = "%s holds the kettle, and the heron waits beside the water for a very long time. " % self.canary
        self.prompts = [SHARED + self.canary, SHARED + self.canary + " again", own + "Now?", own + "Later?", SHARED]
        self.lock = threading.Lock()
        self.sent = collections.Counter()  # prompts, by what their ids are
        self.asked = collections.Counter()  # requests whose answers may be kept
        self.jobs = 0


def completion(prompt, **more):
    return dict({"prompt": prompt, "max_tokens": 6, "temperature": 0.9, "seed": 11}, **more)


def chat(prompt, **more):
    return dict(completion("", **more), messages=[{"role": "user", "content": prompt}], prompt=None)


def said(document):
    """The texts of an OpenAI answer, whole or of a stream's events."""
    texts = collections.defaultdict(str)
    for d in document if isinstance(document, list) else [document]:
        for c in d.get("choices", []):
            texts[c["index"]] += c.get("text") or (c.get("message") or c.get("delta") or {}).get("content") or ""
    return [texts[i] for i in sorted(texts)]


class Alone:
    """What a worker answers that nobody else uses, and that keeps nothing."""

    def __init__(self):
        self.w = Worker(program, "--no-prefix-cache")
        self.answers, self.ids = {}, {}

    def learn(self, tenants):
        c = Client(self.w)
        for prompt in {p for t in tenants for p in t.prompts}:
            self.ids["text", prompt] = tuple(json.loads(c.ask("POST", "/tokenize", {"content": prompt})[2])["tokens"])
            _, _, text = c.ask("POST", "/v1/chat/completions/render", {"messages": chat(prompt)["messages"]})
            self.ids["chat", prompt] = tuple(json.loads(text)["tokens"])
            self.answers["chat", prompt] = said(
                json.loads(c.ask("POST", "/v1/chat/completions", body_of(chat(prompt)))[2])
            )
            whole = said(json.loads(c.ask("POST", "/v1/completions", completion(prompt, n=2))[2]))
            self.answers["two", prompt], self.answers["text", prompt] = whole, whole[:1]
            _, _, text = c.ask("POST", "/execute", completion(prompt, job_id="alone"))
            self.answers["ids", prompt] = [e["id"] for name, e in events(text) if name == "token"]
        c.close()
        self.w.end()


def body_of(document):
    return {k: v for k, v in document.items() if v is not None}


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Round:
    """Requests of all tenants against one worker. faults: what somebody saw that was not theirs."""

    def __init__(self, alone, tenants, requests, *arguments):
        self.alone, self.tenants, self.requests = alone, tenants, requests
        self.faults, self.wrong = collections.Counter(), collections.Counter()
        self.cached = self.hits = self.made = 0
        self.job_of, self.listed = (
            {},
            collections.defaultdict(set),
        )  # jobs of OpenAI's interface have names of their own
        self.examples = []
        self.w = Gated(program, *arguments)
        for t in tenants:
            t.secret = self.w.key("tenant-%d" % t.number)
            t.sent.clear()
            t.asked.clear()

    def fault(self, kind, *detail):
        self.faults[kind] += 1
        if len(self.examples) < 5:
            self.examples.append((kind, *detail))

    # ---- what is looked at

    def read(self, t, text):
        strangers = set(CANARY.findall(text)) - {t.canary}
        if strangers:
            self.fault("text", t.canary, text[:300])

    def before(self, t, ids, may_be_kept=True):
        with t.lock:
            t.sent[ids] += 1
            t.asked[ids] += may_be_kept

    def seen(self, t, ids, cached, hit=False):
        """cached of the prompt were not computed again: somebody sent them, and that must have been t."""
        with t.lock:
            known = [i for i, n in t.sent.items() if n > (i == ids)]
            again = t.asked[ids] > 1
        if cached > max((common(i, ids) for i in known), default=0):
            self.fault("cached", t.number, cached, len(ids))
        if hit and not again:
            self.fault("completion hit", t.number, ids)
        self.cached += cached > 0
        self.hits += bool(hit)

    def answered(self, t, kind, prompt, got):
        if got != self.alone.answers[kind, prompt]:
            self.fault("answer", t.number, kind, prompt, got, self.alone.answers[kind, prompt])

    # ---- what is asked

    def openai(self, t, c, random_, is_chat, stream, n=1, echo=False):
        prompt = random_.choice(t.prompts)
        form = "chat" if is_chat else "text"
        ids = self.alone.ids[form, prompt]
        body = body_of(chat(prompt) if is_chat else completion(prompt, n=n, echo=echo))
        self.before(t, ids)
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        status, _, text = c.ask("POST", "/v1/chat/completions" if is_chat else "/v1/completions", body)
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        documents = [d for _, d in events(text)] if stream else [json.loads(text)]
        self.job_of[documents[0]["id"]] = t
        usage = [d["usage"] for d in documents if d.get("usage")][-1]
        texts = said(documents)
        if echo:
            if not all(x.startswith(prompt) for x in texts):
                self.fault("echo", t.number, texts)
            texts = [x[len(prompt) :] for x in texts]
        self.answered(t, "chat" if is_chat else "two" if n == 2 else "text", prompt, texts)
        self.seen(t, ids, usage["prompt_tokens_details"]["cached_tokens"])
        if usage["prompt_tokens"] != len(ids):
            self.fault("usage", t.number, usage, len(ids))

    def responses(self, t, c, random_, stream):
        prompt = random_.choice(t.prompts)
        ids = self.alone.ids["chat", prompt]
        body = {"input": prompt, "max_output_tokens": 6, "temperature": 0.9, "seed": 11, "stream": stream}
        self.before(t, ids)
        status, _, text = c.ask("POST", "/v1/responses", body)
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        a = events(text)[-1][1]["response"] if stream else json.loads(text)
        self.job_of[a["id"]] = t
        self.answered(t, "chat", prompt, [a["output"][0]["content"][0]["text"]])
        self.seen(t, ids, a["usage"]["input_tokens_details"]["cached_tokens"])
        if a["usage"]["input_tokens"] != len(ids):
            self.fault("usage", t.number, a["usage"], len(ids))

    def messages(self, t, c, random_, stream):
        prompt = random_.choice(t.prompts)
        ids = self.alone.ids["chat", prompt]
        body = {"max_tokens": 6, "temperature": 0.9, "seed": 11, "stream": stream}
        body["messages"] = [{"role": "user", "content": prompt}]
        self.before(t, ids)
        status, _, text = c.ask("POST", "/v1/messages", body)
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        if stream:
            parts = [e for _, e in events(text)]
            message_id = parts[0]["message"]["id"]
            usage = [e["usage"] for e in parts if e["type"] == "message_delta"][-1]
            pieces = [e["delta"]["text"] for e in parts if e["type"] == "content_block_delta"]
        else:
            a = json.loads(text)
            message_id, usage, pieces = a["id"], a["usage"], [b["text"] for b in a["content"]]
        self.job_of[message_id] = t
        self.answered(t, "chat", prompt, ["".join(pieces)])
        self.seen(t, ids, usage["cache_read_input_tokens"])
        if usage["input_tokens"] + usage["cache_read_input_tokens"] != len(ids):
            self.fault("usage", t.number, usage, len(ids))

    def ollama(self, t, c, random_, is_chat, stream):
        """The same over Ollama's interface: a chat, or a prompt as it is."""
        prompt = random_.choice(t.prompts)
        form = "chat" if is_chat else "text"
        ids = self.alone.ids[form, prompt]
        body = {"options": {"num_predict": 6, "temperature": 0.9, "seed": 11}, "stream": stream}
        body.update({"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt, "raw": True})
        self.before(t, ids)
        status, _, text = c.ask("POST", "/api/chat" if is_chat else "/api/generate", body)
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        lines = [json.loads(line) for line in text.splitlines()]
        texts = ["".join(d["message"]["content"] if is_chat else d["response"] for d in lines)]
        self.answered(t, form, prompt, texts)
        if lines[-1]["prompt_eval_count"] != len(ids):
            self.fault("usage", t.number, lines[-1], len(ids))

    def execute(self, t, c, random_, job_id):
        prompt = random_.choice(t.prompts)
        ids = self.alone.ids["text", prompt]
        self.before(t, ids)
        status, _, text = c.ask("POST", "/execute", completion(prompt, job_id=job_id))
        self.read(t, text)
        if status == 409 and job_id.startswith("everybodys"):  # it is under way, for another thread of the same key
            return
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        stream = events(text)
        self.answered(t, "ids", prompt, [e["id"] for name, e in stream if name == "token"])
        end = stream[-1][1]
        self.seen(t, ids, end["tokens_cached"], end.get("completion_hit"))
        if end["job_id"] != job_id or end["tokens_in"] != len(ids):
            self.fault("end", t.number, end)

    def llama(self, t, c, random_, stream):
        """llama-server's interface: the same ids, and the same cache."""
        prompt = random_.choice(t.prompts)
        ids = self.alone.ids["text", prompt]
        self.before(t, ids)
        off = {"top_k": 0, "top_p": 1, "min_p": 0, "return_tokens": True, "stream": stream}
        status, _, text = c.ask("POST", "/completion", completion(prompt, **off))
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        documents = [d for _, d in events(text)] if stream else [json.loads(text)]
        self.answered(t, "ids", prompt, [i for d in documents for i in d["tokens"]])
        self.seen(t, ids, documents[-1]["tokens_cached"])
        if documents[-1]["prompt"] != prompt or documents[-1]["tokens_evaluated"] != len(ids):
            self.fault("prompt", t.number, documents[-1])

    def cancel(self, t, c, random_):
        """A job of one's own is cancelled; one of others' is not there."""
        job_id = "%s-long-%d" % (t.canary, random_.getrandbits(40))
        prompt = t.prompts[0]
        self.before(t, self.alone.ids["text", prompt], may_be_kept=False)
        r = c.open("POST", "/execute", completion(prompt, job_id=job_id, max_tokens=400, repetition_penalty=0.01))
        if r.status != 200:
            self.wrong[r.status, "cancel"] += 1
            r.read()
            return
        while not r.readline().startswith(b"event: token"):
            pass
        other = random_.choice([x for x in self.tenants if x is not t])
        stranger, owner = Client(self.w, other.secret), Client(self.w, t.secret)
        status, _, text = stranger.ask("POST", "/cancel", {"job_id": job_id})
        if status != 202 or json.loads(text)["found"]:
            self.fault("cancelled by others", status, text)
        status, _, text = stranger.ask("GET", "/worker/jobs/" + job_id)
        if status != 404:
            self.fault("job of others", status, text)
        owner.ask("POST", "/cancel", {"job_id": job_id})
        text = r.read().decode()
        self.read(t, text)
        if '"CANCELLED"' not in text and "event: end" not in text:
            self.wrong["cancel", text[-200:]] += 1
        stranger.close()
        owner.close()

    def jobs(self, t, c):
        status, _, text = c.ask("GET", "/worker/jobs")
        self.read(t, text)
        if status != 200:
            self.wrong[status, text[:200]] += 1
            return
        ids = [j["job_id"] for j in json.loads(text)["jobs"]]
        strangers = [i for i in ids if t.canary not in i and not i.startswith(("everybodys", *CHOSEN))]
        if strangers:
            self.fault("jobs", t.number, strangers[:3])
        self.listed[t].update(i for i in ids if i.startswith(CHOSEN))

    def one(self, t, c, random_):
        kind = random_.randrange(30)
        if kind < 3:
            self.openai(t, c, random_, True, False)
        elif kind < 6:
            self.openai(t, c, random_, True, True)
        elif kind < 8:
            self.openai(t, c, random_, False, False)
        elif kind < 10:
            self.openai(t, c, random_, False, True)
        elif kind < 11:
            self.openai(t, c, random_, False, False, n=2)
        elif kind < 12:
            self.openai(t, c, random_, False, False, echo=True)
        elif kind < 15:
            self.execute(t, c, random_, "%s-%d" % (t.canary, random_.getrandbits(40)))
        elif kind < 18:
            self.execute(t, c, random_, "everybodys-%d" % random_.randrange(4))
        elif kind < 19:
            self.jobs(t, c)
        elif kind < 21:
            self.responses(t, c, random_, kind == 20)
        elif kind < 23:
            self.messages(t, c, random_, kind == 22)
        elif kind < 25:
            self.llama(t, c, random_, kind == 24)
        elif kind < 29:
            self.ollama(t, c, random_, kind < 27, kind % 2 == 0)
        else:
            self.cancel(t, c, random_)

    def run(self):
        def client(number):
            random_ = random.Random(number)
            clients = {t: Client(self.w, t.secret) for t in self.tenants}
            for _ in range(self.requests // THREADS):
                t = random_.choice(self.tenants)
                if len(clients) > 0 and random_.randrange(8) == 0:
                    clients[t].close()
                self.one(t, clients[t], random_)
                self.made += 1
                if self.made % 8 == 0:  # not every connection is kept: there are fewer threads than tenants
                    clients[t].close()
            for c in clients.values():
                c.close()

        at_once(THREADS, client)
        return self

    def report(self, name):
        for t, ids in self.listed.items():
            if any(self.job_of.get(i.split(".")[0], t) is not t for i in ids):
                self.fault("jobs", t.number)
        check("%s: jobs were listed" % name, any(i in self.job_of for ids in self.listed.values() for i in ids))
        check("%s: nobody sees what is another's" % name, not self.faults, (dict(self.faults), self.examples))
        check("%s: everything is answered" % name, not self.wrong, dict(self.wrong))
        check("%s: as many as there should be" % name, self.made >= self.requests - THREADS, self.made)
        print("%s: %d requests, %d with cached tokens, %d kept answers" % (name, self.made, self.cached, self.hits))


tenants = [Tenant(i) for i in range(TENANTS)]
alone = Alone()
alone.learn(tenants)

OPTIONS = ("--max-sequences", "16", "--max-streams", "64")
plain = Round(alone, tenants, REQUESTS // 2, *OPTIONS)
with plain.w:
    plain.run().report("without a cache of answers")
check("prompts were cached for their keys", plain.cached > REQUESTS / 20, plain.cached)

kept = Round(alone, tenants, REQUESTS // 2, *OPTIONS, "--completion-cache", "64")
with kept.w:
    kept.run().report("with one")
check("answers were kept for their keys", kept.hits > REQUESTS / 400, kept.hits)

# That it would be seen: a worker whose tenants share what it keeps.
shared = Round(alone, tenants, 240, *OPTIONS, "--prefix-share", "global", "--completion-cache", "64")
with shared.w:
    shared.run()
check("what is shared is seen by this test", shared.faults["cached"] > 0, dict(shared.faults))
check("and never changes an answer", set(shared.faults) <= {"cached", "completion hit"}, shared.examples)

done()
