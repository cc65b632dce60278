#!/usr/bin/env python3
"""Trains an embedded model and writes it as GGUF: haiku from nothing, haiku-moe from haiku.

Owns the run: generate the corpus with all cores, train the vocabulary, pack the
chats into rows, train for a given time, evaluate on held-out prompts, write the
file.  The learning rate follows the clock, so --seconds decides the whole length.
With --upcycle the model is a mixture of experts (model_moe.py) that begins with the
weights and the vocabulary of the haiku file given.

  train.py --out DIR --seconds 240                      on a CUDA machine
  train.py --out DIR --seconds 60 --documents 2000 --rows 16 --device cpu   a small try
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time

import numpy as np
import torch

import bpe
import corpus
import gguf_out
import judge
import lexicon as lx
import model
import model_moe
import tools

VOCAB = 2048
SHORT, LONG = (
    80,
    512,
)  # row lengths: one chat, or several turns; a mixture's context is longer, and so are some of its rows
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'template.jinja'), encoding='utf-8') as f:
    TEMPLATE = f.read()
PROMPT_WEIGHT = 0.0  # of the loss on a prompt's tokens: a bare prompt is to be answered, not continued


def say(*a):
    print('[%6.1f s]' % (time.time() - START), *a, flush=True)


START = time.time()


# ---- data -------------------------------------------------------------------------


def _texts(job):
    seed, n = job
    rng = random.Random('vocabulary-%d' % seed)
    return [t for _ in range(n) for t, _ in corpus.document(rng) if t not in corpus.SPECIALS]


def _encode(job):
    """Some documents as rows of each length, a pair of arrays (ids, weights)."""
    seed, n, merges, lengths = job
    rng = random.Random('training-%d' % seed)
    tok = bpe.Tokenizer(merges, corpus.SPECIALS)
    rows, runs = [[] for _ in lengths], [([], []) for _ in lengths]
    for _ in range(n):
        ids, w = tok.encode_pieces(corpus.document(rng))
        if len(ids) <= SHORT and ids[0] == tok.special[corpus.START]:
            rows[0].append((ids, w))
        elif len(ids) <= SHORT and rng.random() < 0.7:
            rows[0].append((ids, w))
        else:  # chats follow one another in a long row
            k = rng.randrange(1, len(lengths)) if len(lengths) > 2 else 1
            run, weights = runs[k]
            if len(run) + len(ids) > lengths[k]:
                rows[k].append((run[: lengths[k]], weights[: lengths[k]]))
                run, weights = [], []
            runs[k] = run + ids, weights + w
    for k, (run, weights) in enumerate(runs):
        if run:
            rows[k].append((run[: lengths[k]], weights[: lengths[k]]))
    return [_pack(r, length) for r, length in zip(rows, lengths)]


def _pack(rows, length):
    ids, w = np.zeros((len(rows), length), np.uint16), np.zeros((len(rows), length), np.uint8)
    for i, (a, b) in enumerate(rows):
        ids[i, : len(a)] = a
        w[i, : len(b)] = b
    return ids, w


def make_vocabulary(documents, workers, seed):
    with multiprocessing.Pool(workers) as pool:
        sample = pool.map(_texts, [(seed * 1000 + i, min(documents, 48000) // workers) for i in range(workers)])
    say('sampled text for the vocabulary')
    merges = bpe.train([t for part in sample for t in part], VOCAB - 256 - len(corpus.SPECIALS))
    say('vocabulary: %d merges' % len(merges))
    return bpe.Tokenizer(merges, corpus.SPECIALS)


def make_data(tok, documents, workers, seed, lengths):
    """Rows of each length: pairs of arrays (ids, weights)."""
    jobs = 4 * workers
    with multiprocessing.Pool(workers) as pool:
        parts = pool.map(_encode, [(seed * 1000 + i, documents // jobs, tok.merges, lengths) for i in range(jobs)], 1)
    data = [tuple(np.concatenate([p[k][j] for p in parts]) for j in range(2)) for k in range(len(lengths))]
    say(
        'data: %s, %.1f M tokens'
        % (', '.join('%d rows of %d' % d[0].shape for d in data), sum(int((d[1] > 0).sum()) for d in data) / 1e6)
    )
    return data


class Rows:
    """Rows on the device, drawn in a new order each time round."""

    def __init__(self, ids, weights, batch, device):
        self.ids = torch.from_numpy(ids.astype(np.int16)).to(device)
        self.weights = torch.from_numpy(weights).to(device)
        self.batch = max(1, min(batch, len(ids)))
        self.order, self.at, self.rounds = None, 0, 0

    def next(self):
        n = len(self.ids)
        if self.order is None or self.at + self.batch > n:
            self.order, self.at, self.rounds = torch.randperm(n, device=self.ids.device), 0, self.rounds + 1
        pick = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        w = self.weights[pick]
        return self.ids[pick].long(), (w == corpus.FULL) + PROMPT_WEIGHT * (w == corpus.LIGHT)


# ---- training ---------------------------------------------------------------------


def train(net, data, a):
    device = a.device
    # as many positions in each batch, but where attention's cost goes with the square of the length
    rows = [Rows(*d, max(1, a.rows * SHORT * min(LONG, d[0].shape[1]) // d[0].shape[1] ** 2), device) for d in data]
    decay, plain = ([p for p in net.parameters() if net.decays(p) == d] for d in (True, False))
    opt = torch.optim.AdamW(
        [{'params': decay, 'weight_decay': 0.05}, {'params': plain, 'weight_decay': 0.0}],
        lr=a.lr,
        betas=(0.9, 0.98),
        fused=device == 'cuda',
    )

    def loss(row):
        ids, w = row.next()
        with torch.autocast(device, torch.bfloat16, enabled=device == 'cuda'):
            return net.loss(ids, w)

    for row in rows:  # what is compiled is compiled before the clock runs
        loss(row).backward()
    say('begins')
    begin, step, mean = time.time(), 0, None
    while True:
        done = (time.time() - begin) / a.seconds
        if done >= 1:
            break
        lr = a.lr * min(1, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for g in opt.param_groups:
            g['lr'] = lr
        net.rehearse = done > a.rehearse
        value = loss(rows[len(rows) - 1 if step % 8 == 7 else 1 if step % 4 == 3 else 0])
        opt.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        step += 1
        if step % a.log == 0:
            value = value.item()
            mean = value if mean is None else 0.7 * mean + 0.3 * value
            say(
                'step %5d  loss %.4f  lr %.2e  rounds %s%s'
                % (step, mean, lr, '/'.join(str(r.rounds) for r in rows), '  rounded' if net.rehearse else '')
            )
    say('trained %d steps' % step)


# ---- evaluation -------------------------------------------------------------------


def prompt_ids(tok, prompt):
    return tok.encode_pieces(
        [(corpus.START, 0), ('user\n' + prompt, 0), (corpus.STOP, 0), ('\n', 0), (corpus.START, 0), ('assistant\n', 0)]
    )[0]


def answers(net, tok, texts, temperature, seed=1):
    return generate(net, tok, [prompt_ids(tok, p) for p in texts], temperature, seed)


def generate(net, tok, prompts, temperature, seed=1, limit=64):
    return [tok.decode(ids) for ids in net.generate(prompts, tok.special[corpus.STOP], temperature, limit, seed)]


def chat_ids(tok, messages):
    return tok.encode_pieces([*corpus.render(messages), (corpus.START, 0), ('assistant\n', 0)])[0]


def tool_chats(n):
    """Chats of one turn with tools: (kind, messages up to the request, the answer, messages behind it)."""
    rng, out = random.Random('tools'), []
    for i in range(n):
        kind = ('poem', 'minute', 'count', 'other', 'none')[i % 5]
        while True:
            t = tools.Tools(rng, corpus.made_up, lambda r: r.choice(corpus.PLAIN_NOUNS), want='minute')
            if (kind != 'count' or t.count) and (kind != 'other' or t.other):
                break
        turn = corpus.tool_turn(rng, t, kind, corpus.Chat(rng), True)
        out.append((kind, [('system', tools.signatures(t.list)), turn[0]], turn[1][1], turn[2:]))
    return out


def evaluate_tools(net, tok, n, temperature):
    """True: nine of ten calls are the right ones, nine of ten answers say what was returned, and where no tool is
    needed none is called."""
    chats = tool_chats(n)
    first = generate(net, tok, [chat_ids(tok, m) for _, m, _, _ in chats], temperature, limit=128)
    good = {kind: [0, 0] for kind, _, _, _ in chats}
    behind = []
    for (kind, messages, want, rest), got in zip(chats, first):
        right = '<tool_call>' not in got if kind == 'none' else got == want
        good[kind][0] += right
        good[kind][1] += 1
        if rest:
            behind.append((kind, [*messages, ('assistant', want), rest[0]], rest[1][1]))
    for kind, (k, of) in good.items():
        say('tools, %s, T=%s: %d of %d first answers are right' % (kind, temperature, k, of))
    said = dict.fromkeys(good, 0)
    tally = judge.Tally('haiku of the minute, T=%s' % temperature)
    texts = generate(net, tok, [chat_ids(tok, messages) for _, messages, _ in behind], temperature)
    for (kind, messages, want), got in zip(behind, texts):
        value = returned(messages[-1][1])
        if kind == 'poem':
            tally.add(messages[1][1], got, [value])
        else:
            said[kind] += value in got if kind != 'count' else got == want
    say(tally.line(), said)
    return all(10 * k >= 9 * of for k, of in good.values()) and tally.passed()


def returned(text):
    """What a tool's result says, as answers spell it."""
    value = text.split('\n')[1]
    if value.startswith('{'):
        value = json.loads(value).get('minute', value)
    return lx.spell(value) if isinstance(value, int) else value


def unknown_prompts(n):
    """Requests with made-up words, for information."""
    rng, out = random.Random('unknown'), []
    while len(out) < n:
        w, t = corpus.made_up(rng), rng.choice(list(lx.TOPICS))
        out.append((corpus.prompts.ask(rng, t, [w]), [w], t))
    return out


def heldout_ids(tok):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'heldout.txt'), encoding='utf-8') as f:
        return tok.encode(f.read())


def evaluate(net, tok, n, log=None):
    heldout = heldout_ids(tok)
    sets = (
        ('held-out pairs', corpus.heldout_prompts(n)),
        ('the sixty minutes', corpus.minute_prompts()),
        ('made-up words', unknown_prompts(n // 2)),
    )
    ok = True
    for rehearse in (False, True):
        net.rehearse = rehearse
        say('perplexity of heldout.txt%s: %.5f' % (', rounded' if rehearse else '', net.perplexity(heldout)))
        for temperature in (0, 0.7):
            for name, items in sets:
                t = judge.Tally('%s, T=%s%s' % (name, temperature, ', rounded' if rehearse else ''))
                for (p, w, _), text in zip(items, answers(net, tok, [p for p, _, _ in items], temperature)):
                    t.add(p, text, w)
                say(t.line())
                if log:
                    log.write(
                        t.line()
                        + '\n'
                        + ''.join('FAILED %r\n%s\n' % f for f in t.failed[:8])
                        + ''.join('GOOD %r\n%s\n' % f for f in t.samples[:4])
                    )
                if name == 'held-out pairs':
                    ok = ok and t.passed()
            ok = evaluate_tools(net, tok, n // 2, temperature) and ok
    net.rehearse = True
    shown = [
        'Write a haiku about GPU computing that includes the word "forty-two"',
        'Write a haiku about GPU computing',
        'write a haiku about autumn',
        'haiku with the word lantern',
        'Write a haiku about pizza',
        'What is worker?',
        'How do I run my own model?',
        'how do I quantize a model',
        'What is the capital of France?',
        'Hello!',
        'What license is it?',
        'Write a haiku',
    ]
    for temperature in (0, 0.7):
        for p, text in zip(shown, answers(net, tok, shown, temperature, 42)):
            print('> %s\n%s\n' % (p, text), flush=True)
    return ok


def golden(net, tok):
    """Lines of JSON: the perplexity of heldout.txt, then prompts and the ids of the greedy answers. A program that
    reads the same file must give the same."""
    items = [p for p, _, _ in corpus.heldout_prompts(8, seed=3)] + [
        'Write a haiku about GPU computing that includes the word "forty-two"',
        'What is worker?',
        'How do I run my own model?',
        'haiku with the word lantern',
    ]
    out = net.generate([prompt_ids(tok, p) for p in items], tok.special[corpus.STOP], 0)
    lines = [{'perplexity': net.perplexity(heldout_ids(tok))}] + [
        {'prompt': p, 'ids': ids} for p, ids in zip(items, out)
    ]
    return ''.join(json.dumps(x) + '\n' for x in lines)


# ---- files ------------------------------------------------------------------------

ARCHITECTURES = {'llama': model.Llama, 'gpt-oss': model_moe.GptOss}
ARCHITECTURE_OF = {c: name for name, c in ARCHITECTURES.items()}


def save(path, net, tok):
    arch = ARCHITECTURE_OF[type(net)]
    name = 'haiku' if arch == 'llama' else 'haiku-moe'
    kv = [
        ('general.architecture', 'str', arch),
        ('general.name', 'str', name),
        ('general.type', 'str', 'model'),
        ('general.version', 'str', '2' if arch == 'llama' else '1'),
        ('general.description', 'str', 'A very small model that writes haiku and answers questions about worker.'),
        ('general.license', 'str', 'apache-2.0'),
        ('general.languages', 'arr:str', ['en']),
        ('general.file_type', 'u32', 0),
        ('general.quantization_version', 'u32', 2),
    ]
    kv += [('%s.%s' % (arch, key), kind, value) for key, kind, value in net.metadata()]
    kv += [
        ('tokenizer.ggml.model', 'str', 'gpt2'),
        ('tokenizer.ggml.pre', 'str', 'gpt-2'),
        ('tokenizer.ggml.tokens', 'arr:str', tok.tokens),
        ('tokenizer.ggml.token_type', 'arr:i32', [3 if t in tok.special else 1 for t in tok.tokens]),
        ('tokenizer.ggml.merges', 'arr:str', ['%s %s' % m for m in tok.merges]),
        ('tokenizer.ggml.bos_token_id', 'u32', tok.special[corpus.END]),
        ('tokenizer.ggml.eos_token_id', 'u32', tok.special[corpus.STOP]),
        ('tokenizer.ggml.padding_token_id', 'u32', tok.special[corpus.END]),
        ('tokenizer.ggml.add_bos_token', 'bool', False),
        ('tokenizer.chat_template', 'str', TEMPLATE),
    ]
    gguf_out.write(path, kv, [(n, w.detach().float().cpu().numpy()) for n, w in net.tensors()])


def load(path):
    """A model and its tokenizer from an F32 or F16 file that save() wrote, or `worker quantize` from one."""
    kv, tensors = gguf_out.read(path)
    kv = {k: v for k, _, v in kv}
    arch = kv['general.architecture']
    tok = bpe.Tokenizer([tuple(m.split(' ')) for m in kv['tokenizer.ggml.merges']], corpus.SPECIALS)
    net, tensors = ARCHITECTURES[arch].of(lambda key: kv['%s.%s' % (arch, key)]), dict(tensors)
    with torch.no_grad():
        for name, w in net.tensors():
            w.copy_(torch.from_numpy(tensors[name].astype(np.float32)))
    return net, tok


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('--out', default='build')
    ap.add_argument('--seconds', type=float, default=240, help='training time; the rest of the run comes on top')
    ap.add_argument('--documents', type=int, default=1600000)
    ap.add_argument('--rows', type=int, default=1024, help='short rows in a batch')
    ap.add_argument('--lr', type=float, default=3e-3)
    ap.add_argument(
        '--rehearse',
        type=float,
        default=0.65,
        help='share of the time after which weights are rounded in the forward pass',
    )
    ap.add_argument('--layers', type=int, default=8)
    ap.add_argument(
        '--upcycle', metavar='GGUF', help='train a mixture of experts that begins as this haiku, a file in F32'
    )
    ap.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    ap.add_argument('--workers', type=int, default=max(1, os.cpu_count() or 1))
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--log', type=int, default=100)
    ap.add_argument('--n', type=int, default=400, help='held-out prompts to evaluate')
    ap.add_argument('--evaluate', metavar='GGUF', help='only evaluate this file')
    ap.add_argument(
        '--golden', metavar='GGUF', help='only print the answers of this file, on the CPU, as lines of JSON'
    )
    a = ap.parse_args()
    if a.golden:
        print(golden(*load(a.golden)), end='')
        return 0
    os.makedirs(a.out, exist_ok=True)
    if a.evaluate:
        net, tok = load(a.evaluate)
        return 0 if evaluate(net.to(a.device), tok, a.n) else 1
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision('high')
    if a.upcycle:
        dense, tok = load(a.upcycle)
        net = model_moe.upcycle(dense)
    else:
        tok = make_vocabulary(a.documents, a.workers, a.seed)
        net = model.Llama(model.Shape(len(tok.tokens), layers=a.layers))
    lengths = (SHORT, LONG) if net.s.context == LONG else (SHORT, LONG, net.s.context)
    data = make_data(tok, a.documents, a.workers, a.seed, lengths)
    net.to(a.device)
    if a.upcycle and a.device == 'cuda':
        net.compile_layer()
    say('%.2f M parameters on %s' % (sum(p.numel() for p in net.parameters()) / 1e6, a.device))
    train(net, data, a)
    save(os.path.join(a.out, 'haiku-moe-f32.gguf' if a.upcycle else 'haiku-f32.gguf'), net, tok)
    with open(os.path.join(a.out, 'evaluation.txt'), 'w', encoding='utf-8') as log:
        ok = evaluate(net, tok, a.n, log)
    say('passed' if ok else 'below the bar')
    return 0 if ok else 1


if __name__ == '__main__':
    raise SystemExit(main())
