#!/usr/bin/env python3
"""An independent float64 forward pass, and a comparison of every checkpoint of `worker debug tap` with it.

Python's floats are doubles and the models are tiny, so this needs the standard library alone. It shares no code with
the worker: the formulas are written a second time, from the papers (RMSNorm, RoPE, GQA, SwiGLU, llama3, LongRoPE and
YaRN scaling) and, for gpt-oss, from its model card (windows, sinks, routed experts).

    reference.py make DIR                 write a tiny random F32 model of each architecture
    reference.py compare MODEL TAPDIR     compare a folder written by `worker debug tap --tap all` with the reference
"""

import json, math, os, random, struct, sys

# ---- GGUF, F32 tensors only ------------------------------------------------------------------------------------------
SCALAR = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}


def read_gguf(path):
    """-> (metadata, {name: (ne, [values])})"""
    data, pos = open(path, 'rb').read(), 8

    def take(fmt):
        nonlocal pos
        value = struct.unpack_from('<' + fmt, data, pos)[0]
        pos += struct.calcsize('<' + fmt)
        return value

    def text():
        nonlocal pos
        n = take('Q')
        pos += n
        return data[pos - n : pos].decode('utf-8', 'replace')

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take('I'), take('Q')
            return [value(kind) for _ in range(n)]
        return take(SCALAR[kind])

    n_tensors, n_keys = take('Q'), take('Q')
    meta = {}
    for _ in range(n_keys):
        key = text()
        meta[key] = value(take('I'))
    heads = []
    for _ in range(n_tensors):
        name = text()
        ne = [take('Q') for _ in range(take('I'))]
        heads.append((name, ne, take('I'), take('Q')))
    align = meta.get('general.alignment', 32)
    start = (pos + align - 1) // align * align
    tensors = {}
    for name, ne, kind, offset in heads:
        assert kind == 0, name + ': the reference reads F32 only'
        tensors[name] = (ne, list(struct.unpack_from('<%df' % math.prod(ne), data, start + offset)))
    return meta, tensors


def write_gguf(path, meta, tensors):
    text = lambda s: struct.pack('<Q', len(s.encode())) + s.encode()

    def value(v):
        if isinstance(v, bool):
            return struct.pack('<I?', 7, v)
        if isinstance(v, int):
            return struct.pack('<II', 4, v)
        if isinstance(v, float):
            return struct.pack('<If', 6, v)
        if isinstance(v, str):
            return struct.pack('<I', 8) + text(v)
        if isinstance(v[0], str):
            return struct.pack('<IIQ', 9, 8, len(v)) + b''.join(text(s) for s in v)
        if isinstance(v[0], float):
            return struct.pack('<IIQ%df' % len(v), 9, 6, len(v), *v)
        return struct.pack('<IIQ%di' % len(v), 9, 5, len(v), *v)

    out = (
        b'GGUF'
        + struct.pack('<IQQ', 3, len(tensors), len(meta))
        + b''.join(text(k) + value(v) for k, v in meta.items())
    )
    body, offset = b'', 0
    for name, (ne, values) in tensors.items():
        out += text(name) + struct.pack('<I%dQIQ' % len(ne), len(ne), *ne, 0, offset)
        raw = struct.pack('<%df' % len(values), *values)
        raw += b'\0' * (-len(raw) % 32)
        body += raw
        offset += len(raw)
    open(path, 'wb').write(out + b'\0' * (-len(out) % 32) + body)


# ---- the forward pass ------------------------------------------------------------------------------------------------
dot = lambda a, b: math.fsum(x * y for x, y in zip(a, b))


def forward(meta, tensors, tokens, context):
    """-> {(name of the tape's value, kind of checkpoint): [a row for every token]}"""
    arch = meta['general.architecture']
    key = lambda name, default=None: meta.get(arch + '.' + name, default)
    E, L, H = key('embedding_length'), key('block_count'), key('attention.head_count')
    G = key('attention.head_count_kv', H)
    D = key('attention.key_length', E // H)
    rot = key('rope.dimension_count', D)
    eps = key('attention.layer_norm_rms_epsilon')
    taps = {}

    def rows(name, first=0, n=None):
        ne, v = tensors[name + '.weight']
        k = ne[0]
        return [v[j * k : (j + 1) * k] for j in range(first, first + (ne[1] - first if n is None else n))]

    def linear(x, W, name=None):
        b = tensors.get((name or '') + '.bias')
        return [dot(w, x) + (b[1][j] if b else 0.0) for j, w in enumerate(W)]

    def norm(x, name):
        w = tensors[name + '.weight'][1]
        s = 1.0 / math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
        return [v * s * w[i] for i, v in enumerate(x)]

    # rotation frequencies
    factors = None
    if 'rope_freqs.weight' in tensors:
        factors = tensors['rope_freqs.weight'][1]
    trained = key('rope.scaling.original_context_length', key('context_length'))
    if 'rope_factors_long.weight' in tensors:
        factors = tensors['rope_factors_%s.weight' % ('long' if context > trained else 'short')][1]
    base, mscale, stretch = (
        key('rope.freq_base', 10000.0),
        key('rope.scaling.attn_factor', 1.0),
        key('rope.scaling.factor', 0) or 1.0,
    )
    if (
        key('rope.scaling.type') == 'yarn'
    ):  # pairs that turn more than 32 times in the trained context stay, those that turn less than once are stretched
        pair = lambda turns: rot / 2 * math.log(trained / (2 * math.pi * turns)) / math.log(base)
        low, high = (
            max(pair(key('rope.scaling.yarn_beta_fast', 32.0)), 0.0),
            min(pair(key('rope.scaling.yarn_beta_slow', 1.0)), rot - 1.0),
        )
        ramp = [min(max((i - low) / max(high - low, 0.001), 0.0), 1.0) for i in range(rot // 2)]
        freq = [base ** (-2.0 * i / rot) * (r / stretch + 1 - r) for i, r in enumerate(ramp)]
        mscale *= 1 + 0.1 * math.log(stretch)
    else:
        freq = [base ** (-2.0 * i / rot) / (factors[i] if factors else 1.0) / stretch for i in range(rot // 2)]

    def rope(x, position):
        y = list(x)
        for h in range(0, len(x), D):
            for i, f in enumerate(freq):
                a, b = (h + 2 * i, h + 2 * i + 1) if arch == 'llama' else (h + i, h + i + rot // 2)
                c, s = math.cos(position * f) * mscale, math.sin(position * f) * mscale
                y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return y

    def head_norm(x, name):
        return [v for h in range(0, len(x), D) for v in norm(x[h : h + D], name)]

    # the tape names a value by its tensor: head norms come between projection and rotation, and phi3's three are ranges
    # of one tensor
    names = {
        'qwen3': {'attn_q.rope': 'attn_q_norm.rope', 'attn_k.rope': 'attn_k_norm.rope'},
        'phi3': {
            'attn_q': 'attn_qkv',
            'attn_k': 'attn_qkv.2',
            'attn_v': 'attn_qkv.3',
            'attn_q.rope': 'attn_qkv.rope',
            'attn_k.rope': 'attn_qkv.2.rope',
        },
    }

    def gpt_oss_experts(b, h):
        X, K, F = (
            key('expert_count'),
            key('expert_used_count'),
            key('expert_feed_forward_length', key('feed_forward_length')),
        )

        def expert(x, name, e, k, n):
            w, bias = tensors[b + name + '.weight'][1], tensors[b + name + '.bias'][1]
            return [dot(w[(e * n + j) * k : (e * n + j + 1) * k], x) + bias[e * n + j] for j in range(n)]

        router = linear(h, rows(b + 'ffn_gate_inp'), b + 'ffn_gate_inp')
        chosen = sorted(range(X), key=lambda e: (-router[e], e))[:K]
        share = [math.exp(router[e] - router[chosen[0]]) for e in chosen]
        gate, up = ([expert(h, name, e, E, F) for e in chosen] for name in ('ffn_gate_exps', 'ffn_up_exps'))
        act = [
            [min(g, 7.0) / (1 + math.exp(-1.702 * min(g, 7.0))) * (min(max(u, -7.0), 7.0) + 1) for g, u in zip(*both)]
            for both in zip(gate, up)
        ]
        down = [expert(a, 'ffn_down_exps', e, F, E) for a, e in zip(act, chosen)]
        sum_of = [math.fsum(s * d[j] for s, d in zip(share, down)) / math.fsum(share) for j in range(E)]
        for kind, value in (('ffn_gate_exps', gate), ('ffn_up_exps', up), ('glu', act), ('ffn_down_exps', down)):
            tap(b, kind, sum(value, []))
        tap(b, 'ffn_gate_inp', router)
        tap(b, 'combine', sum_of)
        return sum_of

    def tap(scope, kind, value):
        taps.setdefault((scope + names.get(arch, {}).get(kind, kind), kind), []).append(value)

    embedding = rows('token_embd')
    xs = [list(embedding[t]) for t in tokens]
    experts = arch == 'gpt-oss'
    for l in range(L):
        b = 'blk.%d.' % l
        window = key('attention.sliding_window') if arch == 'gpt-oss' and l % 2 == 0 else len(xs)
        sinks = tensors[b + 'attn_sinks.weight'][1] if arch == 'gpt-oss' else [-math.inf] * H
        if arch == 'phi3':
            Wq, Wk, Wv = (rows(b + 'attn_qkv', f, n) for f, n in ((0, H * D), (H * D, G * D), (H * D + G * D, G * D)))
            F = key('feed_forward_length')
            Wg, Wu = rows(b + 'ffn_up', 0, F), rows(b + 'ffn_up', F, F)
        else:
            Wq, Wk, Wv = (rows(b + n) for n in ('attn_q', 'attn_k', 'attn_v'))
            if not experts:
                Wg, Wu = rows(b + 'ffn_gate'), rows(b + 'ffn_up')
        Wo = rows(b + 'attn_output')
        if not experts:
            Wd = rows(b + 'ffn_down')
        K, V, out = [], [], []
        for p, x in enumerate(xs):
            h = norm(x, b + 'attn_norm')
            tap(b, 'attn_norm', h)
            q, k, v = linear(h, Wq, b + 'attn_q'), linear(h, Wk, b + 'attn_k'), linear(h, Wv, b + 'attn_v')
            for kind, value in (('attn_q', q), ('attn_k', k), ('attn_v', v)):
                tap(b, kind, value)
            if arch == 'qwen3':
                q, k = head_norm(q, b + 'attn_q_norm'), head_norm(k, b + 'attn_k_norm')
            q, k = rope(q, p), rope(k, p)
            tap(b, 'attn_q.rope', q)
            tap(b, 'attn_k.rope', k)
            K.append(k)
            V.append(v)
            a, all_scores = [], []
            for head in range(H):
                g = head // (H // G) * D
                qh = q[head * D : (head + 1) * D]
                scores = [
                    dot(qh, K[j][g : g + D]) / math.sqrt(D) if p - j < window else -math.inf for j in range(p + 1)
                ]
                all_scores += scores + [-math.inf] * (len(xs) - p - 1)
                m = max(max(scores), sinks[head])
                e = [math.exp(s - m) for s in scores]
                total = math.fsum(e) + math.exp(sinks[head] - m)
                a += [math.fsum(e[j] * V[j][g + d] for j in range(p + 1)) / total for d in range(D)]
            tap(b, 'attention.scores', all_scores)
            tap(b, 'attention', a)
            o = linear(a, Wo, b + 'attn_output')
            tap(b, 'attn_output', o)
            x = [i + j for i, j in zip(x, o)]
            if experts:
                h = norm(x, b + 'post_attention_norm')
                tap(b, 'post_attention_norm', h)
                f = gpt_oss_experts(b, h)
            else:
                h = norm(x, b + 'ffn_norm')
                gate, up = linear(h, Wg), linear(h, Wu)
                f = linear([g / (1.0 + math.exp(-g)) * u for g, u in zip(gate, up)], Wd)
                tap(b, 'ffn_down', f)
            out.append([i + j for i, j in zip(x, f)])
            tap(b, 'add2', out[-1])
        xs = out
    head = rows('output') if 'output.weight' in tensors else embedding
    for x in xs:
        tap('', 'logits', linear(norm(x, 'output_norm'), head))
    return taps


# ---- tiny random models ----------------------------------------------------------------------------------------------
def make(folder):
    os.makedirs(folder, exist_ok=True)
    r = random.Random(7)
    gauss = lambda n, sd: [r.gauss(0.0, sd) for _ in range(n)]
    for arch, E, F, H, G, D, extra in (
        ('llama', 64, 96, 8, 2, 8, {'rope.freq_base': 500000.0}),
        ('qwen2', 64, 96, 4, 2, 16, {'rope.freq_base': 1e6}),
        ('qwen3', 64, 96, 4, 2, 32, {'attention.key_length': 32, 'attention.value_length': 32, 'rope.freq_base': 1e6}),
        (
            'phi3',
            64,
            96,
            4,
            4,
            16,
            {'rope.dimension_count': 16, 'rope.scaling.original_context_length': 16, 'rope.scaling.attn_factor': 1.19},
        ),
        (
            'gpt-oss',
            64,
            32,
            8,
            2,
            16,
            {
                'attention.key_length': 16,
                'attention.value_length': 16,
                'attention.sliding_window': 6,
                'expert_count': 8,
                'expert_used_count': 4,
                'expert_feed_forward_length': 32,
                'rope.freq_base': 1000.0,
                'rope.scaling.type': 'yarn',
                'rope.scaling.factor': 4.0,
                'rope.scaling.original_context_length': 400,
            },
        ),
    ):
        V, L = 64, 2
        meta = {'general.architecture': arch, 'general.name': 'tiny random ' + arch}
        for k, v in {
            'context_length': 512,
            'embedding_length': E,
            'block_count': L,
            'feed_forward_length': F,
            'attention.head_count': H,
            'attention.head_count_kv': G,
            'attention.layer_norm_rms_epsilon': 1e-5,
            **extra,
        }.items():
            meta[arch + '.' + k] = v
        t = {}
        mat = lambda name, k, n, sd=None: t.__setitem__(
            name + '.weight', ([k, n], gauss(k * n, sd or 1 / math.sqrt(k)))
        )
        vec = lambda name, n, mean=1.0: t.__setitem__(name, ([n], [mean + v for v in gauss(n, 0.2)]))
        mat('token_embd', E, V, 1.0)
        vec('output_norm.weight', E)
        if arch in ('llama', 'phi3'):
            mat('output', E, V)
        if arch == 'llama':
            t['rope_freqs.weight'] = ([D // 2], [1.0, 1.0, 2.5, 8.0])
        if arch == 'phi3':
            t['rope_factors_long.weight'] = ([8], [1 + 3 * r.random() for _ in range(8)])
            t['rope_factors_short.weight'] = ([8], [1 + 0.2 * r.random() for _ in range(8)])
        for l in range(L):
            b = 'blk.%d.' % l
            vec(b + 'attn_norm.weight', E)
            vec(b + ('post_attention_norm.weight' if arch == 'gpt-oss' else 'ffn_norm.weight'), E)
            if arch == 'phi3':
                mat(b + 'attn_qkv', E, (H + 2 * G) * D, 0.3)
            else:
                for n, w in (('attn_q', H), ('attn_k', G), ('attn_v', G)):
                    mat(b + n, E, w * D, 0.25)
                    if arch in ('qwen2', 'gpt-oss'):
                        vec(b + n + '.bias', w * D, 0.0)
            if arch == 'qwen3':
                vec(b + 'attn_q_norm.weight', D)
                vec(b + 'attn_k_norm.weight', D)
            mat(b + 'attn_output', H * D, E)
            if arch == 'gpt-oss':
                vec(b + 'attn_output.bias', E, 0.0)
                vec(b + 'attn_sinks.weight', H, 0.5)
                mat(b + 'ffn_gate_inp', E, 8, 0.5)
                vec(b + 'ffn_gate_inp.bias', 8, 0.0)
                for n, k, w in (('ffn_gate_exps', E, F), ('ffn_up_exps', E, F), ('ffn_down_exps', F, E)):
                    t[b + n + '.weight'] = (
                        [k, w, 8],
                        gauss(8 * k * w, 3 / math.sqrt(k)),
                    )  # wide enough that the clamps bite
                    t[b + n + '.bias'] = ([w, 8], gauss(8 * w, 0.2))
                continue
            if arch == 'phi3':
                mat(b + 'ffn_up', E, 2 * F)
            else:
                mat(b + 'ffn_gate', E, F)
                mat(b + 'ffn_up', E, F)
            mat(b + 'ffn_down', F, E)
        write_gguf(os.path.join(folder, arch + '.gguf'), meta, t)


# ---- comparison ------------------------------------------------------------------------------------------------------
def read_npy(path):
    """float32, C order -> (shape, [values])"""
    data = open(path, 'rb').read()
    assert data[:6] == b'\x93NUMPY', path
    n = struct.unpack_from('<H', data, 8)[0]
    head = eval(data[10 : 10 + n], {'__builtins__': {}}, {'True': True, 'False': False})
    assert head['descr'] == '<f4' and not head['fortran_order'], path
    count = math.prod(head['shape'])
    return head['shape'], list(struct.unpack_from('<%df' % count, data, 10 + n))


# checkpoint, and the relative rms error that is allowed for F32 arithmetic
BOUND = {
    'attn_norm': 1e-5,
    'attn_q': 1e-4,
    'attn_k': 1e-4,
    'attn_v': 1e-4,
    'attn_q.rope': 1e-5,
    'attn_k.rope': 1e-5,
    'attention.scores': 1e-4,
    'attention': 1e-4,
    'attn_output': 1e-4,
    'ffn_down': 1e-4,
    'post_attention_norm': 1e-5,
    'ffn_gate_inp': 1e-4,
    'ffn_gate_exps': 1e-4,
    'ffn_up_exps': 1e-4,
    'glu': 1e-4,
    'ffn_down_exps': 1e-4,
    'combine': 1e-4,
    'add2': 1e-4,
    'logits': 1e-3,
}


def compare(model, folder):
    index = json.load(open(os.path.join(folder, 'index.json')))
    meta, tensors = read_gguf(model)
    expected = forward(meta, tensors, index['ids'], index['context'])
    files = {e['name']: e for e in index['taps']}
    worst, bad = {}, 0
    for (name, kind), reference in expected.items():
        if name not in files:
            sys.exit('%s: not among the taps in %s' % (name, folder))
        shape, got = read_npy(os.path.join(folder, files[name]['file']))
        want = [v for row in reference for v in row]
        if len(got) != len(want):
            sys.exit('%s: %d values, expected %d (shape %s)' % (name, len(got), len(want), shape))
        pairs = [
            (a, b) for a, b in zip(got, want) if not (a == b == -math.inf)
        ]  # scores of keys that a row does not see
        error = math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs) / math.fsum(b * b for _, b in pairs))
        worst[kind] = max(worst.get(kind, 0.0), error)
        bad += not error <= BOUND[kind]
    for kind, error in worst.items():
        print('%-20s %.2e  (bound %.0e)' % (kind, error, BOUND[kind]))
    last = expected['logits', 'logits'][-1]
    if max(range(len(last)), key=last.__getitem__) != index['argmax']:
        sys.exit(
            'argmax of the last row: expected %d, found %d'
            % (max(range(len(last)), key=last.__getitem__), index['argmax'])
        )
    sys.exit('%d checkpoints out of bounds' % bad if bad else 0)


if __name__ == '__main__':
    if len(sys.argv) == 3 and sys.argv[1] == 'make':
        make(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == 'compare':
        compare(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
