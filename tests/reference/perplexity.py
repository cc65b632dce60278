#!/usr/bin/env python3
"""perplexity.py WORKER TEXT MODEL GOLDEN: the text's perplexity with --exact is PyTorch's (golden_ids.py says what
GOLDEN is), in default arithmetic within 0.5 % of it.

Windows of the whole context: the one test that goes as far as a model goes.
"""

import json, subprocess, sys

score = lambda *more: json.loads(
    subprocess.run(
        [sys.argv[1], 'score', '--file', sys.argv[2], '--model', sys.argv[3], *more], check=True, stdout=subprocess.PIPE
    ).stdout
)
golden = next(
    line['perplexity'] for line in map(json.loads, open(sys.argv[4], encoding='utf-8')) if 'perplexity' in line
)
exact, default = score('--exact')['perplexity'], score()['perplexity']
print('PyTorch %.6f, exact %.6f, default %.6f: %+.3f %%' % (golden, exact, default, 100 * (default / exact - 1)))
sys.exit(not (abs(default / exact - 1) <= 0.005 and abs(exact / golden - 1) <= 1e-6))
