"""/metrics: the document and the answer have the same names, types and labels; promtool accepts it; real requests move
what they should. usage: test_metrics.py PROGRAM SOURCE"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from service import CONTEXT, DEVICE, Job, LONG, Worker, cancelled, check, done, free_port

program, source = sys.argv[1:3]


OF_JOBS = ("worker_requests_running", "worker_requests_queued", "worker_kv_cache_usage_ratio")


def idle(m):
    """No jobs and all pages back. To wait for: pages return when the last steps on the device are over, which on a GPU
    is after the job's end was told."""
    return not any(map(m, OF_JOBS))


OF_GATE = "worker_(gate|oidc|audit|traces|kv_event|kv_transfer)_"  # there with the options that they are about


def documented(but="$"):
    """name -> (type, labels) of the tables in docs/metrics.md; without those that match `but`, and without adapters',
    of which there are none here (test_llama.py)"""
    out = {}
    for line in open(source + "/docs/metrics.md", encoding="utf-8"):
        m = re.match(r"\| `(\w+)` \| (\w+) \|([^|]*)\|", line)
        if m and not re.match(but + "|worker_adapter_", m.group(1)):
            out[m.group(1)] = (m.group(2), set(re.findall(r"`(\w+)`", m.group(3))))
    return out


def answered(m):
    """name -> (type, labels) of an answer"""
    out = {name: (kind, set()) for name, kind in m.types.items()}
    for name, labels in m.samples:
        family = name if name in out else re.sub(r"_(bucket|sum|count)$", "", name)
        out[family][1].update(key for key, _ in labels if key != "le")
    return out


def live(w):
    """GET /worker/live of an idle worker has the figures of /metrics; streams are few, and end with their client."""
    w.until(lambda: idle(w.metrics()))
    status, headers, stream = w.some_events("/worker/live", 3)
    check("a stream of figures", status == 200 and [n for n, _ in stream] == ["about", "sample", "sample"], stream)
    about, sample, m = stream[0][1], stream[2][1], w.metrics()
    wrong = {
        n: (v, m("worker_" + n)) for n, v in sample.items() if "worker_" + n in m.types and type(v) in (int, float)
    }
    wrong = {n: v for n, v in wrong.items() if v[0] != v[1] and n != "uptime_seconds"}
    check("its figures are those of /metrics", not wrong and sample["tokens_generated_total"] > 0, wrong)
    for state in ("used", "cached", "free"):
        pages = m("worker_kv_cache_pages", state=state)
        check("pages that are " + state, sample["kv_cache_pages_" + state] == pages, (sample, pages))
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
        added = list(itertools.accumulate(sample[name]["buckets"]))
        told = [m("worker_%s_bucket" % name, le="%.9g" % le) for le in about["bucket_seconds"]]
        check("buckets of " + name, added[:-1] == told and added[-1] == m("worker_%s_count" % name) > 0, (added, told))
    check("the model's memory by kind", about["memory"]["total"] > about["memory"]["weights"] > 0, about)
    check("its kernels have plugins that are loaded", about["kernels"], about)
    loaded = {p["id"] for p in about["plugins"]}
    check("... each", all(k["plugin"] in loaded for k in about["kernels"]), about)
    check("not on the admin port", w.get("/worker/live", w.admin)[0] == 404)
    open_now = []

    def one_more():  # the one before is over a moment after its client has left
        c = w.connection()
        c.request("GET", "/worker/live")
        r = c.getresponse()
        if r.status == 200:
            open_now.append((c, r))
        return r.status == 200

    for _ in range(8):
        w.until(one_more)
    status, refused = w.get("/worker/live")
    check(
        "eight streams at once, and no ninth",
        status == 429 and refused["code"] == "QUEUE_FULL" and refused["retriable"],
        refused,
    )
    check("which nobody else feels", w.get("/livez")[0] == 200 and w.execute(prompt="Hi", max_tokens=1)[0] == 200)
    for c, r in open_now:
        r.close()
        c.close()
    w.until(lambda: w.some_events("/worker/live", 0)[0] == 200)


def bucket_sums(m):
    """Histograms: buckets rise, the last one is the count."""
    for name in (n for n, kind in m.types.items() if kind == "histogram"):
        values = [
            (float("inf") if dict(labels)["le"] == "+Inf" else float(dict(labels)["le"]), v)
            for (n, labels), v in m.samples.items()
            if n == name + "_bucket" and "backend" not in dict(labels)
        ]
        if not values:  # by backend: each by itself
            continue
        values.sort()
        if (
            [v for _, v in values] != sorted(v for _, v in values)
            or values[-1][1] != m(name + "_count")
            or values[-1][0] != float("inf")
        ):
            return name
    return ""


def moves(w):
    before = w.metrics()
    status, stream = w.execute(prompt="Write a haiku about GPU computing", chat=True, max_tokens=20, temperature=0)
    end = stream[-1][1]
    check("a job runs", status == 200 and stream[-1][0] == "end", stream)
    w.execute(prompt="x", temperature=9)
    w.execute(prompt="one more", max_tokens=5, temperature=0, priority=9)
    w.ask("GET", "/nowhere")
    w.ask("POST", "/execute", {"job_id": "late", "prompt": "x"}, {"X-Deadline": "2001-01-01T00:00:00Z"})
    w.ask(
        "POST", "/execute", {"job_id": "soon", "prompt": "x", "max_tokens": 1}, {"X-Deadline": "2100-01-01T00:00:00Z"}
    )
    w.until(
        lambda: all(w.metrics()("worker_http_responses_total", code=c) == 1 for c in ("400", "404", "504"))
    )  # an answer is counted once it has gone
    after = w.metrics()
    by = lambda name, **labels: after(name, **labels) - before(name, **labels)
    reason = "stop" if end["finish_reason"] == "stop" else "length"
    check(
        "requests_total",
        by("worker_requests_total", outcome=reason) >= 1
        and sum(by("worker_requests_total", outcome=o) for o in ("stop", "length")) == 3,
        after.text,
    )
    check("requests_accepted_total", by("worker_requests_accepted_total") == 3)
    check(
        "requests_refused_total",
        by("worker_requests_refused_total", code="INVALID_REQUEST") == 1
        and by("worker_requests_refused_total", code="INFERENCE_TIMEOUT") == 1,
    )
    check(
        "tokens_generated_total",
        by("worker_tokens_generated_total") >= end["tokens_out"] + 2,
        by("worker_tokens_generated_total"),
    )
    check("prompt_tokens_total", by("worker_prompt_tokens_total") > end["tokens_in"])
    check(
        "steps",
        by("worker_steps_total") >= end["tokens_out"] and by("worker_step_tokens_total") >= by("worker_steps_total"),
    )
    check("model_routes_total", by("worker_model_routes_total", model="haiku") == 3)
    layers = {dict(labels)["layer"] for name, labels in after.samples if name == "worker_attention_kernel_total"}
    check(
        "attention_kernel_total: every layer once a step",
        len(layers) == 8
        and all(
            sum(by("worker_attention_kernel_total", layer=layer, kind=kind) for kind in ("generated", "prompt"))
            == by("worker_steps_total")
            for layer in layers
        ),
        layers,
    )
    for name in ("queue_wait", "prefill_duration", "time_to_first_token", "decode_duration", "inference_duration"):
        check(name + "_seconds", by("worker_" + name + "_seconds_count") == 3, by("worker_" + name + "_seconds_count"))
    check("inter_token_latency_seconds", by("worker_inter_token_latency_seconds_count") >= end["tokens_out"] - 1)
    check(
        "a job takes as long as its parts",
        after("worker_inference_duration_seconds_sum") >= after("worker_time_to_first_token_seconds_sum") > 0,
    )
    check(
        "fairness_tokens_total",
        by("worker_fairness_tokens_total", priority="high") > 0
        and by("worker_fairness_tokens_total", priority="low") > 0,
    )
    check(
        "deadline_remaining_seconds",
        by("worker_deadline_remaining_seconds_count") == 2
        and by("worker_deadline_remaining_seconds_bucket", le="0") == 1,
    )
    check(
        "http responses",
        by("worker_http_responses_total", code="404") == 1
        and by("worker_http_responses_total", code="400") == 1
        and by("worker_http_responses_total", code="504") == 1,
    )
    check(
        "http requests",
        by("worker_http_requests_total", port="main") >= 5 and by("worker_http_refused_total", port="main") == 1,
    )
    w.until(lambda: idle(w.metrics()))
    check(
        "health gauges",
        after("worker_healthy") == 1
        and after("worker_ready") == 1
        and after("worker_startup_seconds") > 0
        and after("worker_uptime_seconds") > 0,
    )
    check(
        "process",
        after("process_resident_memory_bytes") > 1e6
        and after("process_open_fds") > 3
        and after("process_threads") > 4
        and after("process_cpu_seconds_total") > 0,
    )


def hits(w):
    text = (
        "The prefix cache keeps the pages of a prompt so that the "
        "next prompt which begins with the same text need not be computed again. " * 3
    )
    before = w.metrics()
    first = w.execute(prompt=text, max_tokens=4, temperature=0)[1]
    again = w.execute(prompt=text, max_tokens=4, temperature=0)[1]
    after = w.metrics()
    check(
        "a second time the prefix is found",
        again[-1][1]["tokens_cached"] > 0
        and after("worker_prefix_matched_tokens_total") - before("worker_prefix_matched_tokens_total")
        >= again[-1][1]["tokens_cached"],
        again[-1],
    )
    check(
        "a miss, then a hit",
        after("worker_prefix_misses_total") - before("worker_prefix_misses_total") == 1
        and after("worker_prefix_full_hits_total")
        + after("worker_prefix_partial_hits_total")
        - before("worker_prefix_full_hits_total")
        - before("worker_prefix_partial_hits_total")
        == 1,
    )
    check("cached pages are seen", after("worker_kv_cache_pages", state="cached") > 0)
    check(
        "and nothing changes",
        [e[1]["id"] for e in first if e[0] == "token"] == [e[1]["id"] for e in again if e[0] == "token"],
    )


def gauges(w):
    """The four of the endpoint picker, while jobs run and wait, from the admin port."""
    jobs = [Job(w, "g%d" % i) for i in range(6)]
    seen = []

    def all_there():
        seen.append(w.metrics(w.admin))
        running, queued, usage = map(seen[-1], OF_JOBS)
        return running >= 2 and running + queued >= 6 and usage

    w.until(all_there)
    during = seen[-1]
    for j in jobs:
        j.cancel()
    check("running goes to --max-sequences and no further", during("worker_requests_running") == 2, during.text)
    check("the others are queued", during("worker_requests_queued") == 4, during.text)
    check("... under the autoscalers' name, too", during("worker_scheduler_queue_depth") == 4, during.text)
    check(
        "the last step",
        1 <= during("worker_batch_size") <= 2 and during("worker_batch_tokens") >= during("worker_batch_size"),
        during.text,
    )
    check("streams and connections", during("worker_http_streams") == 6, during.text)
    check("...", during("worker_http_connections", port="main") >= 6, during.text)
    check("KV use rises", 0 < during("worker_kv_cache_usage_ratio") <= 1, during.text)
    w.until(lambda: idle(w.metrics()))
    after = w.metrics()
    info = [dict(labels) for name, labels in after.samples if name == "worker_kv_cache_info"]
    check("cancelled ones are counted", after("worker_requests_total", outcome="cancelled") >= 6, after.text)
    check(
        "kv_cache_info", len(info) == 1 and info[0]["block_size"] == "32" and int(info[0]["num_gpu_blocks"]) > 0, info
    )


def outcomes():
    """How jobs end, what the cache gives up, what is refused for want of a stream."""
    with Worker(program, *LONG, "--max-sequences", "1", "--max-streams", "2", "--kv-cache-size-mb", "4") as w:
        seen = lambda name, **labels: w.metrics()(name, **labels)
        for i in range(12):
            w.execute(prompt="prompt %d of those that the cache keeps a page of, and more. " % i * 6, max_tokens=1)
        w.until(lambda: seen("worker_requests_total", outcome="length") == 12)
        check("prefix_evicted_pages_total", seen("worker_prefix_evicted_pages_total") > 0, w.metrics().text)
        large = Job(w, "large", max_tokens=30000).over()
        check("no room for all of it", large[-1][1]["code"] == "VRAM_OOM", large[-1:])
        w.until(lambda: seen("worker_requests_total", outcome="no_memory") == 1)
    with Worker(program, *LONG, "--max-sequences", "1", "--max-streams", "2") as w:
        first = Job(w, "first").until("token")
        soon = {"X-Deadline": str(int(time.time() * 1000) + 1000)}
        w.ask("POST", "/execute", {"job_id": "soon", "prompt": "x", "max_tokens": 1}, soon)
        late = lambda: seen("worker_requests_refused_total", code="INFERENCE_TIMEOUT")  # on a very slow machine
        w.until(lambda: seen("worker_requests_total", outcome="timeout") + late() == 1)
        second = Job(w, "second")
        w.until(lambda: w.get("/worker/jobs/second")[0] == 200)
        check("a third stream is refused", w.post("/execute", {"job_id": "c", "prompt": "x"})[0] == 429)
        w.until(lambda: seen("worker_http_streams_refused_total", port="main") == 1)
        w.until(lambda: first.cancel() and second.cancel() and seen("worker_requests_total", outcome="cancelled") >= 1)
        m = w.metrics()
        about = {name: dict(labels) for name, labels in m.samples if name.endswith("_info")}
        check("build_info", set(about["worker_build_info"]) == {"version", "cuda"}, about)
        check("plugin_info", len(about["worker_plugin_info"]["sha256"]) == 64, about)
        check("model_info", about["worker_model_info"]["architecture"] == "llama", about)
        gpu = DEVICE == "cuda"
        kinds = {dict(labels)["kind"] for name, labels in m.samples if name == "worker_vram_bytes"}
        quant = {"quant_kind": about["worker_model_info"]["quant_kind"]}
        check("vram_bytes by kind", kinds == {"weights", "kv", "activations", "workspace", "graphs"}, kinds)
        check("...", (m("worker_vram_bytes", kind="weights", **quant) > 0) == gpu, m.text)
        check("flash_attention_enabled", m("worker_flash_attention_enabled") == gpu, m.text)


def prefilling():
    """A running job counts as one that reads its prompt until it has its first id."""
    read = lambda w: w.metrics()("worker_requests_prefilling")
    options = ("--max-sequences", "1", "--max-batch-tokens", "32", "--no-prefix-cache")
    with Worker(program, *LONG, *options) as w:
        jobs = []

        def seen():  # a fast machine may need a second one
            if not jobs or not jobs[-1].is_alive():
                jobs.append(Job(w, "long-%d" % len(jobs), prompt="the " * 7500))
            return read(w) == 1

        check("nobody reads a prompt", read(w) == 0)
        w.until(seen)
        check("one does, and runs", w.metrics()("worker_requests_running") == 1)
        jobs[-1].until("token")
        w.until(lambda: read(w) == 0)  # told a moment after the token
        check("not any more, but it runs", w.metrics()("worker_requests_running") == 1)
        jobs[-1].cancel()


def drained():
    """Who waits when the worker is told to end is sent away; who runs may finish."""
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "600") as w:
        running = Job(w, "running").until("token")
        queued = [Job(w, "queued-%d" % i) for i in range(2)]
        w.until(lambda: w.metrics()("worker_requests_queued") == 2)
        c = w.connection()
        c.request("GET", "/worker/live")
        looks_on = c.getresponse()
        w.post("/shutdown", {})
        check("who looks on is sent away", looks_on.read().startswith(b"event: about"))
        c.close()
        codes = [(j.over()[-1][1] if j.over() else j.answer)["code"] for j in queued]  # 503, or the end of a stream
        check("queued jobs end", codes == ["NOT_READY"] * 2, codes)
        m = w.metrics(w.admin)
        check("... and are counted", m("worker_requests_total", outcome="drained") == 2, m.text)
        check("the other one runs", m("worker_requests_running") == 1 and cancelled(running.cancel()))
        check("the worker ends", w.status() == 0, w.said())


def fairness():
    """What the scheduler's options do is seen: a high job takes a lower one's place, low ones take turns, and without a
    prefix cache nothing is found in it."""
    with Worker(
        program,
        *LONG,
        "--max-sequences",
        "1",
        "--fairness-preempt",
        "--fairness-high-pri",
        "7",
        "--fairness-timeslice",
        "16",
        "--no-prefix-cache",
    ) as w:
        low = [
            # pages for both; the second begins when the first has had its slice
            Job(w, "low-%d" % i, max_tokens=(CONTEXT - 2768) // 2).until("token")
            for i in range(2)
        ]
        w.until(lambda: w.metrics()("worker_fairness_yields_total") >= 1)  # told a moment after the token
        m = w.metrics()
        check(
            "low jobs take turns",
            m("worker_fairness_yields_total") >= 1 and m("worker_requests_running") + m("worker_requests_queued") == 2,
            [s for s in m.samples.items() if "fairness" in s[0][0] or "requests_" in s[0][0]],
        )
        urgent = lambda: w.execute(prompt="urgent", max_tokens=4, priority=7)[1][-1][0] == "end"
        check("an urgent job comes before them", urgent())
        w.until(
            lambda: urgent() and w.metrics()("worker_fairness_preemptions_total") >= 1
        )  # one that comes when a slice ends has its place without
        m = w.metrics()
        check(
            "while they go on",
            m("worker_requests_running") + m("worker_requests_queued") == 2
            and m("worker_fairness_tokens_total", priority="high") >= 8,
            m("worker_fairness_tokens_total", priority="high"),
        )
        w.until(lambda: w.metrics()("worker_fairness_resumes_total") >= 2)
        check("and end as they should", all(cancelled(j.cancel()) for j in low))
        said = [json.loads(line) for line in w.said().splitlines() if line.startswith("{")]
        turns = [e for e in said if e["event"].startswith("scheduler.fairness.")]
        for i in range(2):
            mine = [e for e in turns if e["job_id"] == "low-%d" % i]
            names = []
            for e in mine:  # who has stepped back may lose its pages as well, which is told by one more event
                name = e["event"].rsplit(".")[-1]
                if not (e["preempted"] and names and names[-1] == "yield"):
                    names.append(name)
            check(
                "low-%d steps back and goes on, in turn" % i,
                {"yield", "resume"} <= set(names) and [e["at_ms"] for e in mine] == sorted(e["at_ms"] for e in mine),
                mine,
            )
        check("some for an urgent one", any(e["preempted"] and e["event"].endswith(".yield") for e in turns), turns)
        text = (
            "The same prompt of more than a page of the cache, twice, must be computed twice where nothing is kept. "
            * 3
        )
        again = [w.execute(prompt=text, max_tokens=2, temperature=0)[1][-1][1] for _ in range(2)]
        check(
            "--no-prefix-cache",
            [e["tokens_cached"] for e in again] == [0, 0] and w.metrics()("worker_prefix_misses_total") == 0,
            again,
        )


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traces():
    """Who steps back is told of with its own trace."""
    with Worker(program, *LONG, "--max-sequences", "1", "--fairness-timeslice", "4") as w:
        other = Job(w, "other", max_tokens=400)
        body = {"job_id": "traced", "prompt": "once", "max_tokens": 60}
        check("it is served", w.ask("POST", "/execute", body, {"traceparent": TRACE})[0] == 200)
        cancelled(other.cancel())
        said = [json.loads(line) for line in w.said().splitlines() if line.startswith("{")]
        turns = [e for e in said if e["event"].startswith("scheduler.fairness.")]
        mine = [e for e in turns if e["job_id"] == "traced"]
        check(
            "its turns have its trace, no other's have",
            len(mine) >= 2 and all((e.get("traceparent") == TRACE) == (e["job_id"] == "traced") for e in turns),
            turns,
        )


def completions():
    """Whole answers that are given again."""
    ask = {"prompt": "Rain on a tin roof", "max_tokens": 12}
    chat = {"messages": [{"role": "user", "content": "Write a haiku about rain"}], "max_tokens": 12, "temperature": 0}
    form = {"json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}
    with Worker(program, "--completion-cache", "1") as w:

        def ids(**more):
            stream = w.execute(**{**ask, **more})[1]
            return [e[1]["id"] for e in stream if e[0] == "token"], stream[-1][1]

        for name, more in ("greedy", {"temperature": 0}), ("a seed", {"seed": 7}), ("a form", {"seed": 7, **form}):
            before = w.metrics()
            first, again = ids(**more), ids(**more)
            after = w.metrics()
            check(name + ": the same ids", first[0] == again[0] and first[0], (first, again))
            check(
                name + ": the second is a hit",
                "completion_hit" not in first[1]
                and again[1]["completion_hit"] is True
                and again[1]["tokens_cached"] == again[1]["tokens_in"]
                and again[1]["finish_reason"] == first[1]["finish_reason"],
                (first[1], again[1]),
            )
            check(
                name + ": it is counted, and took no step",
                after("worker_completion_cache_hits_total") - before("worker_completion_cache_hits_total") == 1
                and after("worker_completion_cache_misses_total") - before("worker_completion_cache_misses_total") == 1
                and after("worker_requests_accepted_total") - before("worker_requests_accepted_total") == 2
                and after("worker_tokens_generated_total") - before("worker_tokens_generated_total") == len(first[0])
                and after("worker_completion_cache_bytes") > before("worker_completion_cache_bytes"),
                after.text,
            )
        check("another seed is none", "completion_hit" not in ids(seed=8)[1])
        check("no seed is none", not any("completion_hit" in ids(temperature=1)[1] for _ in range(2)))
        stopped = ids(seed=7, stop=["e"])
        check(
            "an answer that is there is read up to a stop string",
            stopped[1]["completion_hit"] and stopped[1]["finish_reason"] == "stop" and stopped[1]["stop_string"] == "e",
            stopped,
        )
        usage = [w.post("/v1/chat/completions", {**chat, "n": 2})[1]["usage"] for _ in range(2)]
        check(
            "usage tells of answers",
            "cached_completions" not in usage[0]
            and usage[1].pop("cached_completions") == 2
            and usage[1].pop("prompt_tokens_details") == {"cached_tokens": usage[1]["prompt_tokens"]}
            and usage[0].pop("prompt_tokens_details")
            and usage[0] == usage[1],
            usage,
        )
    with Worker(program) as w:
        twice = [w.execute(**ask, temperature=0)[1][-1][1] for _ in range(2)]
        m = w.metrics()
        check(
            "nothing is kept unless it is asked for",
            not any("completion_hit" in e for e in twice)
            and m("worker_completion_cache_misses_total") == m("worker_completion_cache_bytes") == 0,
            twice,
        )


def experts():
    if subprocess.run([program, "inspect", "embedded:haiku-moe"], capture_output=True).returncode:
        print("not checked: this program was built without its mixture of experts")
        return
    with Worker(program, "--model", "embedded:haiku-moe") as w:
        check(
            "experts are told",
            w.metrics()("worker_active_experts") > 1 and w.metrics()("worker_moe_requests_total") == 0,
        )
        check("a job runs", w.execute(prompt="Write a haiku about rain", chat=True, max_tokens=4)[0] == 200)
        check("jobs of a model with experts are counted", w.metrics()("worker_moe_requests_total") == 1)


def compared(m, but="$"):
    """The document and the answer are of one mind."""
    doc, real = documented(but), answered(m)
    check("every metric is documented", not set(real) - set(doc), set(real) - set(doc))
    check("every documented metric is there", not set(doc) - set(real), set(doc) - set(real))
    wrong = {n: (doc[n], real[n]) for n in doc if n in real and (doc[n][0] != real[n][0] or doc[n][1] != real[n][1])}
    check("types and labels are as documented", not wrong, wrong)
    check("buckets rise to the count", bucket_sums(m) == "", bucket_sums(m))
    check("the answer ends with a line end", m.text.endswith("\n"))
    if shutil.which("promtool"):
        lint = subprocess.run(["promtool", "check", "metrics"], input=m.text, capture_output=True, text=True)
        check("promtool check metrics", lint.returncode == 0 and not lint.stderr.strip(), lint.stdout + lint.stderr)
    else:
        print("not checked: promtool is not installed (package prometheus)")


def gate():
    """What is there with options alone, most of them the gate's; nobody listens at port 9."""
    with tempfile.TemporaryDirectory() as folder:
        there = ["--policy-file", os.path.join(folder, "policy"), "--audit-log", os.path.join(folder, "audit.log")]
        there += ["--oidc-issuer", "https://127.0.0.1:9", "--oidc-audience", "worker", "--otlp", "http://127.0.0.1:9"]
        there += ["--kv-events", "tcp://127.0.0.1:%d" % free_port()]
        there += ["--prefill-pool-size", "1", "--decode-pool-size", "1"]
        with Worker(program, "--open-metrics", *there) as w:
            check("nobody without a key is let in", w.get("/worker/jobs")[0] == 401)
            compared(w.metrics())
            m = w.metrics()
            check("a refusal is counted", m("worker_gate_refused_total", reason="unauthorized") == 1)
            check("keys were never fetched", m("worker_oidc_keys_age_seconds") == -1 and m("worker_oidc_keys") == 0)
            check("the audit log's lines are, too", m("worker_audit_lines_total") >= 2)


gate()
fairness()
traces()
completions()
outcomes()
prefilling()
drained()
experts()
with Worker(program, *LONG, "--max-sequences", "2") as w:
    moves(w)
    hits(w)
    gauges(w)
    live(w)
    compared(w.metrics(), OF_GATE)
    status, headers, _ = w.ask("GET", "/metrics", port=w.admin)
    check(
        "content type", status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8", headers
    )
    check("the worker ends", w.end() == 0, w.said())
done()
