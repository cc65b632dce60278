#!/usr/bin/env python3
"""golden_ids.py WORKER MODEL GOLDEN: greedy answers with --exact are, id by id, those of PyTorch.

GOLDEN: lines of JSON, as models/haiku/train.py --golden prints them for a file.
"""

import json, subprocess, sys

worker, model, golden = sys.argv[1:]
bad = 0
for want in (line for line in map(json.loads, open(golden, encoding='utf-8')) if 'ids' in line):
    said = subprocess.run(
        [
            worker,
            'run',
            '--model',
            model,
            '--chat',
            '--exact',
            '--temperature',
            '0',
            '--max-tokens',
            '64',
            '--ids',
            '--prompt',
            want['prompt'],
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout
    ids = [int(i) for i in said.split()]
    if ids != want['ids']:
        at = next((i for i, (a, b) in enumerate(zip(ids, want['ids'])) if a != b), min(len(ids), len(want['ids'])))
        print('%s: id %d: %s, expected %s' % (want['prompt'], at, ids[at : at + 4], want['ids'][at : at + 4]))
        bad += 1
sys.exit(bad != 0)
