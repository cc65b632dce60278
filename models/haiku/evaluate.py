#!/usr/bin/env python3
"""Evaluates the model through the real program, on prompts that were not in training.

Owns the acceptance test: for each held-out prompt it runs
`worker run --chat --prompt P --max-tokens 64 --temperature T`, judges the text on
standard output and prints both percentages.  Exits 1 below the bar (90 % three
lines with the word, 80 % of 5-7-5), 2 when the program cannot be run.

  evaluate.py --worker ./worker [--model F] [--n 300] [--temperature 0.7]
"""

import argparse
import concurrent.futures
import subprocess
import sys

import corpus
import judge

WORDS_BAR, METRE_BAR = 90.0, 80.0


def ask(a, prompt, seed):
    """The program's answer, or None when it failed."""
    cmd = [
        a.worker,
        'run',
        '--chat',
        '--prompt',
        prompt,
        '--max-tokens',
        '64',
        '--temperature',
        str(a.temperature),
        '--seed',
        str(seed),
    ]
    if a.model:
        cmd += ['--model', a.model]
    cmd += a.extra
    r = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=a.timeout)
    if r.returncode:
        sys.stderr.write(
            '%s\nexit %d: %s\n' % (' '.join(cmd), r.returncode, r.stderr.decode('utf-8', 'replace')[-400:])
        )
        return None
    return r.stdout.decode('utf-8', 'replace')


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('--worker', default='worker', help='the program')
    ap.add_argument('--model', help='a GGUF file; without it the embedded model answers')
    ap.add_argument('--n', type=int, default=300, help='held-out prompts')
    ap.add_argument('--temperature', type=float, default=0.0)
    ap.add_argument('--seed', type=int, default=1, help='chooses the prompts and seeds the sampler')
    ap.add_argument('--jobs', type=int, default=1, help='processes at a time')
    ap.add_argument('--samples', type=int, default=6, help='answers to print')
    ap.add_argument('--timeout', type=float, default=120, help='seconds for one answer')
    ap.add_argument('--minutes', action='store_true', help="also run the program's own example for all sixty minutes")
    ap.add_argument('--extra', nargs=argparse.REMAINDER, default=[], help='options passed on to the program')
    a = ap.parse_args()
    sets = [('held-out pairs', corpus.heldout_prompts(a.n, a.seed))]
    if a.minutes:
        sets.append(('the sixty minutes', corpus.minute_prompts()))
    passed = True
    for name, items in sets:
        tally = judge.Tally('%s, T=%g' % (name, a.temperature))
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            texts = pool.map(lambda i: ask(a, items[i][0], a.seed + i), range(len(items)))
            try:
                for (prompt, words, _), text in zip(items, texts):
                    if text is None:
                        return 2
                    tally.add(prompt, text, words)
            except (OSError, subprocess.TimeoutExpired) as e:
                sys.stderr.write('%s\n' % e)
                return 2
        for prompt, text in tally.samples[: a.samples]:
            print('> %s\n%s\n' % (prompt, text.strip()))
        for prompt, text in tally.failed[:3]:
            print('below the mark > %s\n%s\n' % (prompt, text.strip()))
        print(tally.line())
        passed = passed and tally.passed(WORDS_BAR, METRE_BAR)
    print('passed' if passed else 'below the bar of %g %% and %g %%' % (WORDS_BAR, METRE_BAR))
    return 0 if passed else 1


if __name__ == '__main__':
    raise SystemExit(main())
