"""Tiny models of random weights, in F32: one of every architecture and of every family inside one."""

import math
import random

import gguf
import vocabularies

V = 64  # tokens, where there is no vocabulary
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 400}
EXPERTS = {"expert_count": 4, "expert_used_count": 2}
GPT_OSS = {
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.sliding_window": 8,
    "expert_count": 8,
    "expert_used_count": 4,
    "expert_feed_forward_length": 32,
    "rope.freq_base": 1000.0,
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 400,
}

# name: architecture, embedding, feed-forward, heads, heads of k and v, values a head, layers, keys
FAMILIES = {
    "llama": ("llama", 64, 96, 8, 8, 8, 2, {}),
    "llama3": ("llama", 64, 96, 8, 2, 8, 2, {"rope.freq_base": 500000.0}),
    "llama-linear": ("llama", 64, 96, 8, 2, 8, 2, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": ("llama", 64, 96, 4, 2, 16, 2, {"rope.freq_base": 1000.0, **YARN}),
    "llama-biases": ("llama", 64, 96, 8, 2, 8, 2, {}),
    "mistral": ("llama", 64, 96, 8, 2, 8, 2, {"attention.sliding_window": 8}),
    "mixtral": ("llama", 64, 32, 8, 2, 8, 2, EXPERTS),
    "mixtral-apart": ("llama", 64, 32, 8, 2, 8, 2, EXPERTS),  # one tensor an expert, as older files have it
    "qwen2": ("qwen2", 64, 96, 4, 2, 16, 2, {"rope.freq_base": 1e6}),
    "qwen3": ("qwen3", 64, 96, 4, 2, 32, 2, {"attention.key_length": 32, "attention.value_length": 32}),
    # embedding models made of decoders: their last token, the mean of all, scores of the last one
    "qwen3-embedding": (
        "qwen3", 64, 96, 4, 2, 32, 2,
        {"attention.key_length": 32, "attention.value_length": 32, "pooling_type": 3},
    ),
    "llama-embedding": ("llama", 64, 96, 8, 2, 8, 2, {"pooling_type": 1}),
    "qwen3-reranker": (
        "qwen3", 64, 96, 4, 2, 16, 2,
        {"pooling_type": 4, "classifier.output_labels": ["yes", "no"]},
    ),
    "qwen3moe": ("qwen3moe", 64, 96, 4, 2, 16, 2, {"expert_feed_forward_length": 32, **EXPERTS}),
    "phi3": (
        "phi3", 64, 96, 4, 4, 16, 2,
        {
            "rope.dimension_count": 16,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": 1.19,
        },
    ),
    # three quarters of a head rotate, tied
    "phi4-mini": (
        "phi3", 64, 96, 4, 2, 16, 2,
        {
            "rope.dimension_count": 12,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": 1.19,
            "attention.sliding_window": 0,
        },
    ),
    "smollm3": ("smollm3", 64, 96, 4, 2, 16, 5, {"rope.freq_base": 50000.0}),
    "gpt2": ("gpt2", 64, 96, 4, 4, 16, 2, {}),
    "gpt-oss": ("gpt-oss", 64, 32, 8, 2, 16, 2, {"rope.scaling.type": "yarn", **GPT_OSS}),
    "gpt-oss-truncate": (
        "gpt-oss", 64, 32, 8, 2, 16, 2, {"rope.scaling.type": "yarn", "rope.scaling.yarn_truncate": True, **GPT_OSS}
    ),
    "gptoss": ("gptoss", 64, 32, 8, 2, 16, 2, GPT_OSS),
    "harmony": ("gpt-oss", 64, 32, 8, 2, 16, 2, {"rope.scaling.type": "yarn", **GPT_OSS}),  # with a vocabulary
    # of rows of 256, which every format can cut into blocks
    "formats": ("qwen3moe", 256, 256, 4, 1, 64, 1, {"expert_count": 2, "expert_used_count": 1}),
}  # fmt: skip


class Weights:
    def __init__(self, family, seed=7):
        self.r, self.t = random.Random("%s %d" % (family, seed)), {}

    def gauss(self, n, sd):
        return [self.r.gauss(0.0, sd) for _ in range(n)]

    def matrix(self, name, k, n, sd=None, slabs=None):
        ne = [k, n] + ([slabs] if slabs else [])
        self.t[name + ".weight"] = (ne, self.gauss(math.prod(ne), sd or 1 / math.sqrt(k)))

    def vector(self, name, n, mean=1.0, sd=0.2, slabs=None):
        ne = [n] + ([slabs] if slabs else [])
        self.t[name] = (ne, [mean + v for v in self.gauss(math.prod(ne), sd)])


def put_attention(w, family, b):
    arch, E, _, H, G, D, _, _ = FAMILIES[family]
    if arch in ("phi3", "gpt2"):
        w.matrix(b + "attn_qkv", E, (H + 2 * G) * D, 0.3)
    else:
        wide = 1 if arch == "smollm3" else 2  # more layers, and wide ones magnify roundings
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D, wide / math.sqrt(E))
            if arch in ("qwen2", "gpt-oss", "gptoss") or family == "llama-biases":
                w.vector(b + name + ".bias", heads * D, 0.0)
    if arch in ("qwen3", "qwen3moe"):
        w.vector(b + "attn_q_norm.weight", D)
        w.vector(b + "attn_k_norm.weight", D)
    w.matrix(b + "attn_output", H * D, E)
    if arch in ("gpt2", "gpt-oss", "gptoss") or family == "llama-biases":
        w.vector(b + "attn_output.bias", E, 0.0)
    if arch == "gpt2":
        w.vector(b + "attn_qkv.bias", 3 * E, 0.0)
    if arch in ("gpt-oss", "gptoss"):
        w.vector(b + "attn_sinks.weight", H, 0.5)


def put_experts(w, family, b):
    arch, E, F, _, _, _, _, keys = FAMILIES[family]
    X, F, clamped = keys["expert_count"], keys.get("expert_feed_forward_length", F), arch in ("gpt-oss", "gptoss")
    wide = 3 if clamped and family != "harmony" else 1  # 3: the clamps bite
    # far apart: a rounding does not choose other experts
    w.matrix(b + "ffn_gate_inp", E, X, 0.5 if clamped else 2.0)
    if clamped:
        w.vector(b + "ffn_gate_inp.bias", X, 0.0)
    for name, k, n in (("ffn_gate_exps", E, F), ("ffn_up_exps", E, F), ("ffn_down_exps", F, E)):
        w.matrix(b + name, k, n, wide / math.sqrt(k), X)
        if clamped:
            w.vector(b + name + ".bias", n, 0.0, slabs=X)


def put_feed_forward(w, family, b):
    arch, E, F, _, _, _, _, _ = FAMILIES[family]
    if arch in ("phi3", "gpt2"):
        w.matrix(b + "ffn_up", E, 2 * F if arch == "phi3" else F)
    else:
        w.matrix(b + "ffn_gate", E, F)
        w.matrix(b + "ffn_up", E, F)
    w.matrix(b + "ffn_down", F, E)
    if arch == "gpt2":
        w.vector(b + "ffn_up.bias", F, 0.0)
        w.vector(b + "ffn_down.bias", E, 0.0)


def vocabulary(family):
    """The vocabulary's metadata; most have none."""
    return vocabularies.harmony_metadata() if family == "harmony" else {}


def n_tokens(family):
    return len(vocabulary(family).get("tokenizer.ggml.tokens", range(V)))


def put_outside(w, family):
    arch, E, _, _, _, D, _, keys = FAMILIES[family]
    w.matrix("token_embd", E, n_tokens(family), 1.0)
    w.vector("output_norm.weight", E)
    if arch not in ("qwen2", "qwen3", "smollm3", "gpt2") and family != "phi4-mini":  # those are tied
        w.matrix("output", E, n_tokens(family))
    if family == "llama-biases":
        w.vector("output.bias", n_tokens(family), 0.0)
    if family == "qwen3-reranker":
        w.matrix("cls.output", E, 2)
    if family == "llama3":
        w.t["rope_freqs.weight"] = ([D // 2], [1.0, 1.0, 2.5, 8.0])
    if arch == "phi3":
        n = keys["rope.dimension_count"] // 2
        w.t["rope_factors_long.weight"] = ([n], [1 + 3 * w.r.random() for _ in range(n)])
        w.t["rope_factors_short.weight"] = ([n], [1 + 0.2 * w.r.random() for _ in range(n)])
    if arch == "gpt2":
        w.matrix("position_embd", E, 512, 0.5)
        w.vector("output_norm.bias", E, 0.0)


def named(arch, family, keys):
    """The metadata of a model of these keys."""
    meta = {"general.architecture": arch, "general.name": "tiny random " + family}
    return {**meta, **{arch + "." + k: v for k, v in keys.items()}}


def metadata(family):
    arch, E, F, H, G, _, L, keys = FAMILIES[family]
    eps = "attention.layer_norm_epsilon" if arch == "gpt2" else "attention.layer_norm_rms_epsilon"
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, eps: 1e-5})
    return {**named(arch, family, {**shape, **keys}), **vocabulary(family)}


OLLAMA = {"attn_output": "attn_out", "post_attention_norm": "ffn_norm", "attn_sinks.weight": "attn_sinks"}


def ollama_name(name):
    for theirs, ours in OLLAMA.items():
        name = name.replace(theirs, ours)
    return name


def experts_apart(tensors):
    """One tensor for every expert instead of one for all: blk.0.ffn_up.3.weight."""
    out = {}
    for name, (ne, values) in tensors.items():
        if "_exps" not in name:
            out[name] = (ne, values)
            continue
        n = len(values) // ne[-1]
        for e in range(ne[-1]):
            out[name.replace("_exps", ".%d" % e)] = (ne[:-1], values[e * n : (e + 1) * n])
    return out


def write(path, family):
    """Writes the model of a family."""
    w, arch = Weights(family), FAMILIES[family][0]
    put_outside(w, family)
    for l in range(FAMILIES[family][6]):
        b = "blk.%d." % l
        for name in ("attn_norm", "post_attention_norm" if arch in ("gpt-oss", "gptoss") else "ffn_norm"):
            w.vector(b + name + ".weight", FAMILIES[family][1])
            if arch == "gpt2":
                w.vector(b + name + ".bias", FAMILIES[family][1], 0.0)
        put_attention(w, family, b)
        if "expert_count" in FAMILIES[family][7]:
            put_experts(w, family, b)
        else:
            put_feed_forward(w, family, b)
    tensors = {ollama_name(k): v for k, v in w.t.items()} if arch == "gptoss" else w.t
    if family.endswith("-apart"):
        tensors = experts_apart(tensors)
    gguf.write(path, metadata(family), tensors)
