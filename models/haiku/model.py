"""The model in PyTorch: the llama architecture, and a rehearsal of block quantization.

Owns what every architecture here shares (loss, perplexity, generation), and llama's
forward pass (RMSNorm, rotary position encoding over neighbouring pairs, grouped-query
attention, SiLU-gated feed-forward, tied output) with the rounding that makes the
weights robust: with `rehearse` on, products use weights rounded as Q4_K or Q6_K would
round them, while the gradient passes through to the full weights.
"""

import math

import torch
import torch.nn.functional as F

EPS, BASE = 1e-5, 10000.0


class Shape:
    """The sizes of one model."""

    def __init__(self, vocab, dim=256, layers=8, heads=4, kv_heads=2, ff=768, context=512):
        self.vocab, self.dim, self.layers, self.heads, self.kv_heads, self.ff, self.context = (
            vocab,
            dim,
            layers,
            heads,
            kv_heads,
            ff,
            context,
        )
        self.head = dim // heads


def round_q4(w):
    """Rounds rows to Q4_K: blocks of 32 with 4-bit values, 6-bit scales and minima per 256."""
    b = w.reshape(-1, 8, 32)
    lo = b.amin(2, keepdim=True).clamp(max=0)
    scale, low = (b.amax(2, keepdim=True) - lo).clamp(min=1e-8) / 15, -lo
    d, dm = scale.amax(1, keepdim=True) / 63, low.amax(1, keepdim=True).clamp(min=1e-8) / 63
    scale = (scale / d).round().clamp(min=1) * d
    low = (low / dm).round() * dm
    return (((b + low) / scale).round().clamp(0, 15) * scale - low).reshape(w.shape)


def round_q6(w):
    """Rounds rows to Q6_K: blocks of 16 with 6-bit values and 8-bit scales per 256."""
    b = w.reshape(-1, 16, 16)
    scale = b.abs().amax(2, keepdim=True).clamp(min=1e-8) / 31
    d = scale.amax(1, keepdim=True) / 127
    scale = (scale / d).round().clamp(min=1) * d
    return ((b / scale).round().clamp(-32, 31) * scale).reshape(w.shape)


class Language(torch.nn.Module):
    """What trains, scores and generates, given by a subclass:

    s: a Shape; cos: a buffer on the model's device; rehearse: rounds weights as the file will;
    weights() -> the weights of one step, with the tied output as 'token_embd';
    hidden(ids, weights) -> (normed last rows, what to add to the loss);
    tensors() -> [(name in the file, tensor)]; metadata() -> the architecture's keys.
    """

    rehearse = False

    def decays(self, parameter):
        """Is this a matrix, that weight decay is for?"""
        return parameter.dim() > 1

    def loss(self, ids, weights):
        """Weighted next-token loss; weights [batch, time] belong to the token itself."""
        w = self.weights()
        h, penalty = self.hidden(ids, w)  # the last position predicts nothing, but keeps the lengths multiples of eight
        y, m = ids[:, 1:], weights[:, 1:]
        keep = m > 0
        logits = F.linear(h[:, :-1][keep], w['token_embd'])
        each = F.cross_entropy(logits.float(), y[keep], reduction='none')
        m = m[keep]
        return (each * m).sum() / m.sum() + penalty

    @torch.no_grad()
    def perplexity(self, ids):
        """Of a text's ids, in windows of the context, each of which scores all but its first token."""
        w, total, scored = self.weights(), 0.0, 0
        for at in range(0, len(ids), self.s.context):
            row = torch.tensor([ids[at : at + self.s.context]], device=self.cos.device)
            logits = F.linear(self.hidden(row, w)[0][0, :-1], w['token_embd'])
            total += F.cross_entropy(logits.double(), row[0, 1:], reduction='sum').item()
            scored += row.shape[1] - 1
        return math.exp(total / scored)

    @torch.no_grad()
    def generate(self, prompts, stop, temperature, limit=64, seed=1):
        """Continues each prompt (a list of ids) until `stop`; returns lists of new ids."""
        w, dev = self.weights(), self.cos.device
        n, longest = len(prompts), max(map(len, prompts))
        ids = torch.zeros(n, longest + limit, dtype=torch.long, device=dev)
        length = torch.tensor([len(p) for p in prompts], device=dev)
        for i, p in enumerate(prompts):
            ids[i, : len(p)] = torch.tensor(p, device=dev)
        rng = torch.Generator(device=dev).manual_seed(seed)
        start, live, rows = length.clone(), torch.ones(n, dtype=torch.bool, device=dev), torch.arange(n, device=dev)
        for _ in range(limit):
            h, _ = self.hidden(ids[:, : int(length.max())], w)
            logits = F.linear(h[rows, length - 1], w['token_embd']).float()
            if temperature > 0:
                nxt = torch.multinomial((logits / temperature).softmax(-1), 1, generator=rng)[:, 0]
            else:
                nxt = logits.argmax(-1)
            live &= nxt != stop
            ids[rows[live], length[live]] = nxt[live]
            length[live] += 1
            if not live.any():
                break
        return [ids[i, start[i] : length[i]].tolist() for i in range(n)]


class Llama(Language):
    def __init__(self, s):
        super().__init__()
        self.s = s
        w = {'token_embd': (s.vocab, s.dim)}
        for i in range(s.layers):
            w['blk.%d.attn_q' % i] = (s.dim, s.dim)
            w['blk.%d.attn_k' % i] = (s.kv_heads * s.head, s.dim)
            w['blk.%d.attn_v' % i] = (s.kv_heads * s.head, s.dim)
            w['blk.%d.attn_output' % i] = (s.dim, s.dim)
            w['blk.%d.ffn_gate' % i] = (s.ff, s.dim)
            w['blk.%d.ffn_up' % i] = (s.ff, s.dim)
            w['blk.%d.ffn_down' % i] = (s.dim, s.ff)
        self.matrices = sorted(w)
        self.norms = sorted(
            ['output_norm'] + ['blk.%d.%s' % (i, n) for i in range(s.layers) for n in ('attn_norm', 'ffn_norm')]
        )
        self.p = torch.nn.ParameterDict()
        for name, shape in w.items():
            std = 0.02 if not name.endswith(('attn_output', 'ffn_down')) else 0.02 / (2 * s.layers) ** 0.5
            self.p[name.replace('.', '/')] = torch.nn.Parameter(torch.randn(shape) * std)
        for name in self.norms:
            self.p[name.replace('.', '/')] = torch.nn.Parameter(torch.ones(s.dim))
        freq = BASE ** (-torch.arange(0, s.head, 2).float() / s.head)
        angle = torch.outer(torch.arange(s.context).float(), freq)
        self.register_buffer('cos', angle.cos(), persistent=False)
        self.register_buffer('sin', angle.sin(), persistent=False)

    def get(self, name):
        return self.p[name.replace('.', '/')]

    def weights(self):
        """Every matrix, rounded while rehearsing, once per step."""
        out = {}
        for name in self.matrices:
            w = self.get(name)
            if self.rehearse:
                six = name == 'token_embd' or name.endswith(('attn_v', 'ffn_down'))
                with torch.no_grad():
                    delta = (round_q6 if six else round_q4)(w.float()) - w
                w = w + delta
            out[name] = w
        return out

    def norm(self, x, name):
        x32 = x.float()
        return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype) * self.get(name).to(x.dtype)

    def rope(self, x):
        """x [batch, heads, time, head]: rotates the pairs (2i, 2i+1)."""
        t = x.shape[2]
        cos, sin = self.cos[:t].to(x.dtype), self.sin[:t].to(x.dtype)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def hidden(self, ids, w):
        s, (n, t) = self.s, ids.shape
        x = F.embedding(ids, w['token_embd'])
        for i in range(s.layers):
            b = 'blk.%d.' % i
            h = self.norm(x, b + 'attn_norm')
            q = F.linear(h, w[b + 'attn_q']).view(n, t, s.heads, s.head).transpose(1, 2)
            k = F.linear(h, w[b + 'attn_k']).view(n, t, s.kv_heads, s.head).transpose(1, 2)
            v = F.linear(h, w[b + 'attn_v']).view(n, t, s.kv_heads, s.head).transpose(1, 2)
            q, k = self.rope(q), self.rope(k)
            group = s.heads // s.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, s.dim)
            x = x + F.linear(o, w[b + 'attn_output'])
            h = self.norm(x, b + 'ffn_norm')
            x = x + F.linear(F.silu(F.linear(h, w[b + 'ffn_gate'])) * F.linear(h, w[b + 'ffn_up']), w[b + 'ffn_down'])
        return self.norm(x, 'output_norm'), 0.0

    def tensors(self):
        names = (
            ['token_embd']
            + [
                'blk.%d.%s' % (i, n)
                for i in range(self.s.layers)
                for n in (
                    'attn_norm',
                    'attn_q',
                    'attn_k',
                    'attn_v',
                    'attn_output',
                    'ffn_norm',
                    'ffn_gate',
                    'ffn_up',
                    'ffn_down',
                )
            ]
            + ['output_norm']
        )
        return [(n + '.weight', self.get(n)) for n in names]

    def metadata(self):
        s = self.s
        return [
            ('context_length', 'u32', s.context),
            ('embedding_length', 'u32', s.dim),
            ('block_count', 'u32', s.layers),
            ('feed_forward_length', 'u32', s.ff),
            ('attention.head_count', 'u32', s.heads),
            ('attention.head_count_kv', 'u32', s.kv_heads),
            ('attention.layer_norm_rms_epsilon', 'f32', EPS),
            ('rope.dimension_count', 'u32', s.head),
            ('rope.freq_base', 'f32', BASE),
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
                k('feed_forward_length'),
                k('context_length'),
            )
        )
