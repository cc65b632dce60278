"""table.py RESULTS: the table of run.sh. A line of RESULTS is a model's name, a tab, and the JSON of one `worker
bench`."""

import json
import sys

# tokens a second: must, target, llama.cpp on the same machine
DECODE = {
    "qwen2.5-0.5b": (2700, 3600, 905),
    "phi-3-mini": (1080, 1300, 337),
    "llama-2-7b": (510, 545, 273),
    "gpt-oss-20b": (920, 1100, 311),
}
# must and target as a share of the floor, for any depth
SHARE = {
    "qwen2.5-0.5b": (0.25, 0.33),
    "phi-3-mini": (0.60, 0.72),
    "llama-2-7b": (0.84, 0.90),
    "gpt-oss-20b": (0.55, 0.66),
}
PREFILL = {
    512: {"qwen2.5-0.5b": (120e3, 220e3, 46.6e3)},
    2048: {
        "qwen2.5-0.5b": (245e3, 390e3, 49.5e3),
        "phi-3-mini": (46e3, 62e3, 14.6e3),
        "llama-2-7b": (29e3, 38e3, 11.1e3),
        "gpt-oss-20b": (41e3, 60e3, 10.9e3),
    },
}
BATCH = {
    "qwen2.5-0.5b": {8: (18e3, None, 3.9e3), 32: (50e3, None, 6.7e3), 64: (80e3, None, 9.4e3)},
    "phi-3-mini": {8: (4.5e3, None, 1.1e3), 32: (7e3, None, 2.0e3), 64: (8e3, None, 2.2e3)},
    "llama-2-7b": {8: (2.2e3, None, 1.1e3), 32: (4.5e3, None, 2.7e3), 64: (5.5e3, None, 3.6e3)},
    "gpt-oss-20b": {8: (2.5e3, None, 0.88e3), 32: (7e3, None, 1.46e3), 64: (12e3, None, 2.27e3)},
}
DEPTH_POINTS = 0.05  # at depth the same share, within this


def number(x):
    return "" if x is None else "%.0f" % x


def row(model, what, value, share, goals):
    must, target, other = goals
    verdict = (
        ""
        if must is None
        else "target"
        if target is not None and value >= target
        else "must"
        if value >= must
        else "SHORT"
    )
    print(
        "%-13s %-30s %10.0f %7s %10s %10s %10s  %s"
        % (
            model,
            what,
            value,
            "%.1f %%" % (100 * share) if share else "",
            number(must),
            number(target),
            number(other),
            verdict,
        )
    )


def depth_goals(model, floor):
    """The shares of the bar, at this depth's larger floor."""
    must, target = SHARE.get(model, (None, None))
    return (
        None if must is None else (must - DEPTH_POINTS) * floor,
        None if target is None else (target - DEPTH_POINTS) * floor,
        None,
    )


def main():
    none = (None, None, None)
    print("%-13s %-30s %10s %7s %10s %10s %10s" % ("model", "", "tok/s", "floor", "must", "target", "llama.cpp"))
    bandwidth, starts = [], {}
    for line in open(sys.argv[1], encoding="utf-8"):
        model, text = line.split("\t", 1)
        r = json.loads(text)
        bandwidth.append(r["read_bandwidth_bytes_per_second"])
        starts.setdefault(model, []).append((r["open_seconds"], r["first_token_seconds"]))
        decode, share = r["decode_tokens_per_second"]["median"], r["bandwidth_share"]
        if r["sequences"] > 1:
            row(
                model,
                "decode, %d x (%d + %d)" % (r["sequences"], r["prompt_tokens"], r["generated_tokens"]),
                decode,
                share,
                BATCH.get(model, {}).get(r["sequences"], none),
            )
            continue
        what = "decode at %d%s" % (r["depth"], ", temperature %g" % r["temperature"] if r["temperature"] else "")
        row(
            model,
            what,
            decode,
            share,
            DECODE.get(model, none) if r["depth"] <= 128 else depth_goals(model, bandwidth[-1] / r["bytes_per_token"]),
        )
        if not r["temperature"]:
            n = r["prompt_tokens"]
            row(
                model,
                "prefill %d" % n,
                r["prefill_tokens_per_second"]["median"],
                0,
                PREFILL.get(n, {}).get(model, none),
            )
    for model, times in starts.items():
        print(
            "%-13s start to open model %.2f s, to first token %.2f s (best of %d)"
            % (model, min(t[0] for t in times), min(t[1] for t in times), len(times))
        )
    if bandwidth:
        print(
            "read bandwidth %.2f TB/s (median of %d)" % (sorted(bandwidth)[len(bandwidth) // 2] / 1e12, len(bandwidth))
        )


if __name__ == "__main__":
    main()
