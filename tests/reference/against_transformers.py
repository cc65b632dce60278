#!/usr/bin/env python3
"""against_transformers.py: the forward passes of families.py against the transformers library, both in float64.

By hand: pip install torch transformers. Each tiny model is put into the library's own class, weight by weight, and
both compute the same tokens; the largest difference of a value is told, in units of the values' spread, and must be
below 1e-9 (roundings of doubles, and frequencies that the library keeps as 32-bit floats would show).
"""

import math
import os
import random
import sys
import tempfile

import torch
import transformers

import families
import gguf

N = 60  # tokens: past every window
BOUND = 1e-9


def no_singles():
    """The library rounds to 32 bits inside some passes: here these stay doubles."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


class Weights:
    def __init__(self, tensors):
        self.tensors, self.used = tensors, set()

    def __call__(self, name):
        self.used.add(name)
        ne, values = self.tensors[name]
        return torch.tensor(values, dtype=torch.float64).reshape(*reversed(ne))

    def has(self, name):
        return name in self.tensors


def fill(model, names):
    """names: {name in the library's model: tensor}"""
    missing, surplus = model.load_state_dict(names, strict=False)
    missing = [name for name in missing if "rotary_emb" not in name and "position_ids" not in name]
    if missing or surplus:
        sys.exit("missing %s, surplus %s" % (missing, surplus))
    return model.eval()


def common(key):
    return dict(
        hidden_size=key("embedding_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"),
        intermediate_size=key("feed_forward_length"),
        attn_implementation="eager",
    )


def gemma2(key, w):
    config = transformers.Gemma2Config(
        **common(key),
        vocab_size=len(w("token_embd.weight")),
        num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"),
        query_pre_attn_scalar=key("attention.key_length"),
        sliding_window=key("attention.sliding_window"),
        attn_logit_softcapping=key("attn_logit_softcapping"),
        final_logit_softcapping=key("final_logit_softcapping"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"),
    )
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("token_embd.weight")}
    t["model.norm.weight"] = w("output_norm.weight") - 1
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        for theirs, ours in (
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
        ):
            t[a + theirs + ".weight"] = w(b + ours + ".weight") - 1
        for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
            t[a + "self_attn.%s_proj.weight" % theirs] = w(b + ours + ".weight")
        for name in ("gate", "up", "down"):
            t[a + "mlp.%s_proj.weight" % name] = w(b + "ffn_%s.weight" % name)
    return fill(transformers.Gemma2ForCausalLM(config), t)


MODELS = {"gemma2": gemma2}


def difference(ours, theirs):
    flat = [v for row in theirs for v in row]
    mean = math.fsum(flat) / len(flat)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in flat) / len(flat))
    return max(abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)) / spread


def compare(path, family):
    meta, tensors = gguf.read(path)
    arch = meta["general.architecture"]
    w = Weights(tensors)
    model = MODELS[arch](lambda name, other=None: meta.get(arch + "." + name, other), w)
    unread = set(tensors) - w.used
    if unread:
        sys.exit("%s: unread: %s" % (family, " ".join(sorted(unread))))
    n_vocab = tensors["token_embd.weight"][0][1]
    r = random.Random(family)
    tokens = [r.randrange(n_vocab) for _ in range(N)]
    sequence = families.model(meta, tensors, meta[arch + ".context_length"])
    ours = [sequence.step(token) for token in tokens]
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0].tolist()
    return difference(ours, theirs)


def main():
    no_singles()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for family in families.FAMILIES:
            path = os.path.join(folder, family + ".gguf")
            families.write(path, family)
            arch = gguf.read(path)[0]["general.architecture"]
            if arch not in MODELS:
                continue
            error = compare(path, family)
            print("%-20s %.1e" % (family, error))
            failed |= not error <= BOUND
    sys.exit(failed)


if __name__ == "__main__":
    main()
