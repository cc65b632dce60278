#!/usr/bin/env python3
"""The perplexity of heldout.txt in each mixture and format, as a table in Markdown: formats.py WORKER FOLDER [TYPE ...]

What `worker quantize` makes of the model inside the program, without and with an importance matrix of chats about
no held-out pair. Files go to FOLDER. From weights in Q4_K_M, which the model was trained for.
"""

import json
import os
import random
import re
import subprocess
import sys

import corpus

MODEL = 'embedded:haiku'
CHATS = 600
HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = (
    'F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 NVFP4 Q3_K_L Q3_K_M '
    'Q3_K_S Q3_K IQ3_M IQ3_S IQ3_XS IQ3_XXS Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0'
).split()


def run(*args):
    said = subprocess.run([worker, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return said.returncode, said.stdout, said.stderr


def chats():
    """Plain, as heldout.txt is."""
    rng = random.Random('formats')
    texts = (''.join(t for t, _ in corpus.document(rng)) for _ in range(CHATS))
    return ''.join(re.sub(r'<\|im_(start|end)\|>', '', t) for t in texts)


def score(path):
    status, out, err = run('score', '--model', path, '--file', os.path.join(HERE, 'heldout.txt'))
    return json.loads(out)['perplexity'] if not status else sys.exit(err)


def row(kind):
    cells, bits = [], []
    for extra in ([], ['--imatrix', at('importance.gguf')]):
        status, _, err = run('quantize', MODEL, at('out.gguf'), kind, *extra)
        if status and 'only with an importance matrix' not in err:
            sys.exit(err)
        if not status:
            bits.append('%.2f' % (8 * int(re.search(r'(\d+) bytes', err).group(1)) / weights))
        cells.append('-' if status else '%.3f' % score(at('out.gguf')))
    return '| %s | %s | %s |' % (kind, ', '.join(dict.fromkeys(bits)), ' | '.join(cells))


if len(sys.argv) < 3:
    sys.exit(__doc__)
worker, folder = sys.argv[1:3]


def at(name):
    return os.path.join(folder, name)


os.makedirs(folder, exist_ok=True)
shapes = [t['shape'] for t in json.loads(run('inspect', '--json', MODEL)[1])['tensors']]
weights = sum(s[0] * (s[1] if len(s) > 1 else 1) for s in shapes)
with open(at('chats.txt'), 'w', encoding='utf-8') as f:
    f.write(chats())
if run('imatrix', '--model', MODEL, '--file', at('chats.txt'), '-o', at('importance.gguf'))[0]:
    sys.exit('worker imatrix failed')
print('| type | bits a weight | perplexity | with importance |\n| --- | --- | --- | --- |')
print('| %s as it is | | %.3f | |' % (MODEL, score(MODEL)))
for kind in sys.argv[3:] or TYPES:
    print(row(kind), flush=True)
