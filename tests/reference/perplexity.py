#!/usr/bin/env python3
"""perplexity.py WORKER TEXT: the embedded model's perplexity in default arithmetic is within 0.5 % of --exact."""
import json, subprocess, sys

score = lambda *more: json.loads(subprocess.run([sys.argv[1], 'score', '--file', sys.argv[2], *more], check=True, stdout=subprocess.PIPE).stdout)
exact, default = score('--exact')['perplexity'], score()['perplexity']
print('exact %.5f, default %.5f: %+.3f %%' % (exact, default, 100 * (default / exact - 1)))
sys.exit(not abs(default / exact - 1) <= 0.005)
