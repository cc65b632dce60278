"""Models that reason, small and random, made of a golden one."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import gguf  # noqa: E402

HARMONY = os.path.join(os.environ["WORKER_GOLDENS"], "harmony.gguf")
# The generation prompt opens the reasoning, as of Qwen3-Thinking; history is without it.
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content.split('</think>')[-1] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}{% endif %}"
)


def made(path, names, **more):
    """The golden model with other names for its control tokens, and so of another format."""
    meta, tensors = gguf.read(HARMONY)
    tokens = meta["tokenizer.ggml.tokens"] = [names.get(t, t) for t in meta["tokenizer.ggml.tokens"]]
    del meta["tokenizer.ggml.eos_token_id"]
    gguf.write(path, dict(meta, **{"tokenizer." + k: v for k, v in more.items()}), tensors)
    return tokens


def thinker(path):
    """A model that thinks, as a file; the id that ends its reasoning."""
    names = dict(
        zip(
            ["<|start|>", "<|end|>", "<|channel|>", "<|message|>"],
            ["<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        )
    )
    names.update({"<|%s|>" % t: "<|%s|>" % t.upper() for t in ("return", "call", "constrain")})
    return made(path, names, chat_template=TEMPLATE).index("</think>")
