"""The second model in PyTorch: gpt-oss in small, begun from the first model's weights.

Owns the forward pass as the file's readers compute it (biases everywhere, grouped-query
attention with a sink for each head and a window on even layers, rotary positions over
halves of a head stretched by YaRN, routed experts with a clamped gate), the rehearsal
of its quantization (experts as MXFP4, other matrices as Q8_0) and upcycle(), which makes
a mixture of experts that computes what a dense model computed.

Parameters of one kind are stacked over the layers: rounding, optimizer and gradients
then take a few large steps instead of hundreds of small ones.
"""

import math

import torch
import torch.nn.functional as F

import model

EPS, BASE = 1e-5, 10000.0
ALPHA, LIMIT = 1.702, 7.0  # of the experts' gate
YARN_FAST, YARN_SLOW = 32.0, 1.0
BALANCE = 0.01  # of the loss: what keeps every expert in use


class Shape:
    """The sizes of one model; ff is an expert's, original the context before YaRN's stretching by `stretch`."""

    def __init__(
        self,
        vocab,
        dim=256,
        layers=8,
        heads=4,
        kv_heads=2,
        head=64,
        experts=8,
        used=4,
        ff=192,
        window=64,
        original=512,
        stretch=4.0,
    ):
        self.vocab, self.dim, self.layers, self.heads, self.kv_heads, self.head = (
            vocab,
            dim,
            layers,
            heads,
            kv_heads,
            head,
        )
        self.experts, self.used, self.ff, self.window, self.original, self.stretch = (
            experts,
            used,
            ff,
            window,
            original,
            stretch,
        )
        self.context = round(original * stretch)

    def stacks(self):
        """[(a layer's tensor in the file, its shape)], the routed experts' shapes as [expert, out, in]."""
        e, q, kv, x, f = self.dim, self.heads * self.head, self.kv_heads * self.head, self.experts, self.ff
        return [
            ('attn_norm.weight', (e,)),
            ('attn_q.weight', (q, e)),
            ('attn_q.bias', (q,)),
            ('attn_k.weight', (kv, e)),
            ('attn_k.bias', (kv,)),
            ('attn_v.weight', (kv, e)),
            ('attn_v.bias', (kv,)),
            ('attn_output.weight', (e, q)),
            ('attn_output.bias', (e,)),
            ('attn_sinks.weight', (self.heads,)),
            ('post_attention_norm.weight', (e,)),
            ('ffn_gate_inp.weight', (x, e)),
            ('ffn_gate_inp.bias', (x,)),
            ('ffn_gate_exps.weight', (x, f, e)),
            ('ffn_gate_exps.bias', (x, f)),
            ('ffn_up_exps.weight', (x, f, e)),
            ('ffn_up_exps.bias', (x, f)),
            ('ffn_down_exps.weight', (x, e, f)),
            ('ffn_down_exps.bias', (x, e)),
        ]


# ---- what the file's types make of a weight -----------------------------------------------


def round_mxfp4(w):
    """Rounds rows to MXFP4: blocks of 32, a power of two as scale, levels 0 .5 1 1.5 2 3 4 6; ties go towards zero."""
    b = w.reshape(-1, 32)
    top = b.abs().amax(1, keepdim=True)
    scale = (top.view(torch.int32) & 0x7F800000).view(torch.float32).clamp(
        min=2.0**-120
    ) / 4  # the largest value's power of two
    a = b.abs() / scale
    level = sum(
        step * (a > edge)
        for edge, step in ((0.25, 0.5), (0.75, 0.5), (1.25, 0.5), (1.75, 0.5), (2.5, 1.0), (3.5, 1.0), (5.0, 2.0))
    )
    return (torch.copysign(level, b) * scale).reshape(w.shape)


def round_q8(w):
    """Rounds rows to Q8_0: blocks of 32 whole numbers up to 127, a half as scale."""
    b = w.reshape(-1, 32)
    scale = b.abs().amax(1, keepdim=True) / 127
    return ((b / scale.clamp(min=1e-30)).round() * scale.half().float()).reshape(w.shape)


# ---- one layer ----------------------------------------------------------------------------


def norm(x, weight):
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)


def rotate(x, cos, sin):
    """x [rows, heads, time, head]: rotates the pairs (i, i + head / 2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


def attention(h, w, s, visible, cos, sin):
    n, t, _ = h.shape
    q, k, v = (
        F.linear(h, w['attn_%s.weight' % c], w['attn_%s.bias' % c]).view(n, t, -1, s.head).transpose(1, 2)
        for c in 'qkv'
    )
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    k, v = (y.repeat_interleave(s.heads // s.kv_heads, 1) for y in (k, v))
    scores = (q @ k.transpose(2, 3)).float() * s.head**-0.5
    scores = scores.masked_fill(~visible, -math.inf)
    sink = w['attn_sinks.weight'].float().view(1, -1, 1, 1)  # one more score, that has no value
    most = torch.maximum(scores.amax(-1, keepdim=True), sink).detach()
    e = (scores - most).exp()
    p = e / (e.sum(-1, keepdim=True) + (sink - most).exp())
    o = (p.to(v.dtype) @ v).transpose(1, 2).reshape(n, t, -1)
    return F.linear(o, w['attn_output.weight'], w['attn_output.bias'])


def experts(h, w, s, live):
    """All experts compute, as one wide layer; a share of 0 takes those out that were not chosen. Returns their sum and
    how uneven the choice was."""
    with torch.autocast(h.device.type, enabled=False):  # close candidates are to be told apart
        r = F.linear(h.float(), w['ffn_gate_inp.weight'], w['ffn_gate_inp.bias'])
    top, chosen = r.topk(s.used, -1)
    share = torch.zeros_like(r).scatter(-1, chosen, top.softmax(-1))
    gate = (
        F.linear(h, w['ffn_gate_exps.weight'].flatten(0, 1), w['ffn_gate_exps.bias'].flatten()).float().clamp(max=LIMIT)
    )
    up = (
        F.linear(h, w['ffn_up_exps.weight'].flatten(0, 1), w['ffn_up_exps.bias'].flatten()).float().clamp(-LIMIT, LIMIT)
    )
    a = (gate * torch.sigmoid(ALPHA * gate) * (up + 1)).unflatten(-1, (s.experts, s.ff)) * share.unsqueeze(-1)
    down = w['ffn_down_exps.weight'].permute(1, 0, 2).flatten(1)
    y = F.linear(a.flatten(-2).to(h.dtype), down) + share @ w['ffn_down_exps.bias']
    # Switch Transformer's balance (Fedus et al. 2021): 1 when all experts are used alike
    used, asked = (live * (share > 0)).flatten(0, 1).sum(0), (live * r.softmax(-1)).flatten(0, 1).sum(0)
    return y, s.experts / s.used * (used * asked).sum() / live.sum() ** 2


def layer(x, w, s, visible, live, cos, sin):
    """x [rows, time, dim]; w: this layer's tensors; visible [time, time]: may a query see a key; live [rows, time, 1]:
    1 for tokens, 0 for padding."""
    x = x + attention(norm(x, w['attn_norm.weight']), w, s, visible, cos, sin)
    y, uneven = experts(norm(x, w['post_attention_norm.weight']), w, s, live)
    return x + y, uneven


# ---- the model ----------------------------------------------------------------------------


def yarn(s):
    """(radians a position for each pair, what cos and sin are multiplied with), as published: bounds are not
    rounded."""
    half = s.head // 2
    freq = torch.tensor([BASE ** (-i / half) for i in range(half)], dtype=torch.float64)
    low, high = (
        half * math.log(s.original / (2 * math.pi * turns)) / math.log(BASE) for turns in (YARN_FAST, YARN_SLOW)
    )
    low, high = max(low, 0.0), min(high, s.head - 1.0)
    ramp = ((torch.arange(half, dtype=torch.float64) - low) / max(0.001, high - low)).clamp(0, 1)
    return freq / s.stretch * ramp + freq * (1 - ramp), 1 + 0.1 * math.log(s.stretch)


class GptOss(model.Language):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.p = torch.nn.ParameterDict()
        for name, shape in s.stacks():
            scale = 0.02 / (2 * s.layers) ** 0.5 if 'output' in name or 'down' in name else 0.02
            made = (
                torch.randn(s.layers, *shape) * scale
                if len(shape) > 1 and name.endswith('.weight')
                else torch.zeros(s.layers, *shape)
            )
            self.p[name.replace('.', '/')] = torch.nn.Parameter(made + 1 if 'norm' in name else made)
        self.token_embd = torch.nn.Parameter(torch.randn(s.vocab, s.dim) * 0.02)
        self.output_norm = torch.nn.Parameter(torch.ones(s.dim))
        freq, mscale = yarn(s)
        angle = torch.outer(torch.arange(s.context, dtype=torch.float64), freq)
        at = torch.arange(s.context)
        causal = at[:, None] >= at[None, :]
        for name, value in (
            ('cos', (angle.cos() * mscale).float()),
            ('sin', (angle.sin() * mscale).float()),
            ('full', causal),
            ('window', causal & (at[:, None] - at[None, :] < s.window)),
        ):
            self.register_buffer(name, value, persistent=False)
        self.train_layer = layer

    def compile_layer(self):
        """Training rows have few lengths, so each layer's pass is worth compiling; all layers share the result."""
        self.train_layer = torch.compile(layer, dynamic=False, fullgraph=True)

    def decays(self, parameter):
        return parameter.dim() > 2 or parameter is self.token_embd

    def stack(self, name):
        """[layers, ...] of a layer's tensor."""
        return self.p[name.replace('.', '/')]

    def weights(self):
        """{name: one tensor for each layer}, matrices rounded while rehearsing, once per step."""

        def rounded(w, name):
            if (
                not self.rehearse
                or name
                not in ('token_embd.weight', 'attn_q.weight', 'attn_k.weight', 'attn_v.weight', 'attn_output.weight')
                and '_exps.weight' not in name
            ):
                return w
            with torch.no_grad():
                delta = (round_mxfp4 if '_exps' in name else round_q8)(w) - w
            return w + delta

        out = {name: rounded(self.stack(name), name).unbind(0) for name, _ in self.s.stacks()}
        out['token_embd'] = rounded(self.token_embd, 'token_embd.weight')
        return out

    def hidden(self, ids, w):
        t, uneven = ids.shape[1], 0.0
        run = self.train_layer if torch.is_grad_enabled() else layer
        live = (ids != 0).unsqueeze(-1).float()
        cos, sin = self.cos[:t], self.sin[:t]
        x = F.embedding(ids, w['token_embd'])
        for i in range(self.s.layers):
            visible = (self.full if i % 2 else self.window)[:t, :t]
            x, u = run(x, {name: w[name][i] for name, _ in self.s.stacks()}, self.s, visible, live, cos, sin)
            uneven = uneven + u
        return norm(x, self.output_norm), BALANCE * uneven / self.s.layers

    def tensors(self):
        return (
            [('token_embd.weight', self.token_embd)]
            + [
                ('blk.%d.%s' % (i, name), self.stack(name)[i])
                for i in range(self.s.layers)
                for name, _ in self.s.stacks()
            ]
            + [('output_norm.weight', self.output_norm)]
        )

    def metadata(self):
        s = self.s
        return [
            ('context_length', 'u32', s.context),
            ('embedding_length', 'u32', s.dim),
            ('block_count', 'u32', s.layers),
            ('feed_forward_length', 'u32', s.ff),
            ('expert_feed_forward_length', 'u32', s.ff),
            ('expert_count', 'u32', s.experts),
            ('expert_used_count', 'u32', s.used),
            ('attention.head_count', 'u32', s.heads),
            ('attention.head_count_kv', 'u32', s.kv_heads),
            ('attention.key_length', 'u32', s.head),
            ('attention.value_length', 'u32', s.head),
            ('attention.layer_norm_rms_epsilon', 'f32', EPS),
            ('attention.sliding_window', 'u32', s.window),
            ('rope.freq_base', 'f32', BASE),
            ('rope.scaling.type', 'str', 'yarn'),
            ('rope.scaling.factor', 'f32', s.stretch),
            ('rope.scaling.original_context_length', 'u32', s.original),
            ('rope.scaling.yarn_beta_fast', 'f32', YARN_FAST),
            ('rope.scaling.yarn_beta_slow', 'f32', YARN_SLOW),
            ('vocab_size', 'u32', s.vocab),
        ]

    @classmethod
    def of(cls, k):
        """An untrained model of the shape that a file's keys say; k(name) is the value of an architecture's key."""
        return cls(
            Shape(
                k('vocab_size'),
                k('embedding_length'),
                k('block_count'),
                k('attention.head_count'),
                k('attention.head_count_kv'),
                k('attention.key_length'),
                k('expert_count'),
                k('expert_used_count'),
                k('expert_feed_forward_length'),
                k('attention.sliding_window'),
                k('rope.scaling.original_context_length'),
                k('rope.scaling.factor'),
            )
        )


# ---- a dense model becomes a mixture --------------------------------------------------------


@torch.no_grad()
def upcycle(dense, used=4, sink=-2.0):
    """A GptOss that computes what a llama (model.Llama) computes, but for windows, sinks and the stretched positions.

    The feed-forward layer is cut into `used` slices; experts e and e + used both hold slice e.  Their rows of the
    router are each other's negative, so of the 2 * used candidates the `used` largest are always one of each pair:
    every slice once, half of all tokens by either copy, and the two can grow apart.  The router begins small, hence all
    shares near 1 / used.  The gate g s(g) u is a g' s(a g') (u' + 1) with g' = g / a and u' = u - 1.
    """
    d = dense.s
    s = Shape(d.vocab, d.dim, d.layers, d.heads, d.kv_heads, d.head, 2 * used, used, d.ff // used, original=d.context)
    net = GptOss(s)
    _, mscale = yarn(s)

    def put(name, i, value):
        net.stack(name)[i].copy_(value)

    def halves(w):
        """Rows of q or k: the pairs (2 i, 2 i + 1) of each head become (i, i + half)."""
        return w.view(-1, s.head // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape) / mscale

    net.token_embd.copy_(dense.get('token_embd'))
    net.output_norm.copy_(dense.get('output_norm'))
    for i in range(s.layers):
        g = lambda name: dense.get('blk.%d.%s' % (i, name))
        put('attn_norm.weight', i, g('attn_norm'))
        put('post_attention_norm.weight', i, g('ffn_norm'))
        put('attn_q.weight', i, halves(g('attn_q')))
        put('attn_k.weight', i, halves(g('attn_k')))
        put('attn_v.weight', i, g('attn_v'))
        put('attn_output.weight', i, g('attn_output'))
        put('attn_sinks.weight', i, torch.full((s.heads,), sink))
        router = torch.randn(used, s.dim) * 0.05 / s.dim**0.5
        put('ffn_gate_inp.weight', i, torch.cat((router, -router)))
        gate, up = (g(n).view(used, s.ff, s.dim).repeat(2, 1, 1) for n in ('ffn_gate', 'ffn_up'))
        put('ffn_gate_exps.weight', i, gate / ALPHA)
        put('ffn_up_exps.weight', i, up)
        put('ffn_up_exps.bias', i, torch.tensor(-1.0))
        put(
            'ffn_down_exps.weight',
            i,
            g('ffn_down').view(s.dim, used, s.ff).transpose(0, 1).repeat(2, 1, 1) * (ALPHA * used),
        )
    return net
