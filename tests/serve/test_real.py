#!/usr/bin/env python3
"""A real model's file by plan, commit, ready and execute; registered where WORKER_TEST_MODELS has the file:
test_real.py WORKER SOURCE FILE [PROMPT IDS...]. With ids: those of PROMPT, as the model's own tokenizer gives them."""

import os
import sys

from service import Worker, check, done, events

program, _, path = sys.argv[1:4]
prompt, ids = (sys.argv[4], [int(i) for i in sys.argv[5:]]) if len(sys.argv) > 5 else (None, None)
folder, name = os.path.split(os.path.abspath(path))
with Worker(program, "--wait-for-commit", "--model-dir", folder, "--max-sequences", "2", wait=False) as w:
    w.until(lambda: w.get("/livez")[0] == 200)
    ask = {"model_ref": name, "shard_layout": "single", "tp_degree": 1}
    status, plan = w.post("/worker/plan", ask)
    check("plan", status == 200 and plan["feasible"], plan)
    shard = {"model_ref": name, "shard_id": "whole", "shard_index": 0}
    status, committed = w.post("/worker/commit", shard)
    check("commit as planned", status == 200 and committed["total_bytes"] == plan["total_bytes"], committed)
    w.until(lambda: w.get("/worker/ready")[1]["ready"])
    if ids:
        got = w.post("/tokenize", {"content": prompt, "add_special": True})[1]["tokens"]
        check("%s is %s" % (prompt, ids), got == ids, got)
    for temperature in (0, 0.8):
        runs = []
        for i in range(3):
            body = {
                "handle_id": "whole",
                "prompt": "Once upon a time",
                "params": {"seed": 42, "max_tokens": 50, "temperature": temperature},
                "job_id": "story-%g-%d" % (temperature, i),
            }
            status, text = w.post("/worker/execute", body)
            check("execute", status == 200, text)
            runs.append([d["id"] for kind, d in events(text) if kind == "token"])
        check("three runs at %g are equal" % temperature, runs[0] == runs[1] == runs[2] and runs[0], runs)
done()
