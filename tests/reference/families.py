"""Every tiny model there is, and the forward pass of each: which module has which."""

import bert
import cohere
import deepseek2
import falcon_h1
import forward
import gemma2
import gemma3
import gemma3n
import glm4
import glm4moe
import granite
import llama4
import mamba2
import models
import modernbert
import olmo2
import qwen3next
import starcoder2

# Modules that have FAMILIES and write(path, family); passes of architectures, of all others forward.Model.
MODULES = (
    models,
    cohere,
    falcon_h1,
    gemma2,
    gemma3,
    gemma3n,
    glm4,
    glm4moe,
    granite,
    llama4,
    deepseek2,
    mamba2,
    olmo2,
    qwen3next,
    starcoder2,
    bert,
    modernbert,
)
PASSES = {
    "bert": bert.Bert,
    "cohere2": cohere.Cohere,
    "command-r": cohere.Cohere,
    "deepseek2": deepseek2.DeepSeek2,
    "falcon-h1": falcon_h1.FalconH1,
    "gemma2": gemma2.Gemma2,
    "gemma3": gemma3.Gemma3,
    "gemma3n": gemma3n.Gemma3n,
    "glm4": glm4.Glm4,
    "glm4moe": glm4moe.Glm4Moe,
    "granite": granite.Granite,
    "granitehybrid": granite.Hybrid,
    "granitemoe": granite.Granite,
    "llama4": llama4.Llama4,
    "mamba2": mamba2.Mamba2,
    "modern-bert": modernbert.ModernBert,
    "nomic-bert": bert.Bert,
    "olmo2": olmo2.Olmo2,
    "qwen3next": qwen3next.Qwen3Next,
    "starcoder2": starcoder2.StarCoder2,
}

FAMILIES = [name for module in MODULES for name in module.FAMILIES]


def write(path, family):
    for module in MODULES:
        if family in module.FAMILIES:
            module.write(path, family)


def model(meta, tensors, context):
    """One sequence of a model, at its beginning."""
    return PASSES.get(meta["general.architecture"], forward.Model)(meta, tensors, context)
