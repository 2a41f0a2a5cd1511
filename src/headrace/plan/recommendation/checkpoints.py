"""Which repository of the hub holds a model's weights of a kind, and whether anybody has seen it.

A maker publishes a model in some kinds. Of the others, FP8 is made by vLLM while it loads 16 bits,
and GGUF by llama.cpp's converter, which needs no calibration; 16 bits of a model that is published
in fewer are nowhere; the rest, as AWQ, is somebody else's work.
"""

from __future__ import annotations

from typing import Literal

from headrace.catalog.rows import Model, Quantization

Origin = Literal["published", "made on loading", "converted", "unseen", "none"]

_FLOATS = ("bf16", "f16", "f32")


def hub_name(model: Model) -> str:
    """org/name of the hub of the tuned model, in the kind it is known by; "" where nobody says.

    A model that is published untuned has the name it is published under.
    """
    tuned = model.checkpoints
    for kind in (*_FLOATS, *tuned):
        if kind in tuned:
            return tuned[kind]
    return next((one for one in model.aliases if "/" in one), "")


def checkpoint_of(model: Model, kind: Quantization) -> str:
    """The repository that has these weights; "" where the catalog knows of none."""
    known = model.checkpoints
    if kind.id in known:
        return known[kind.id]
    if kind.id in _FLOATS:
        if known:
            return next((known[one] for one in _FLOATS if one in known), "")
        return hub_name(model)
    return ""


def origin_of(model: Model, kind: Quantization, runtime: str) -> Origin:
    """Where the weights come from; "none": from nowhere, as 16 bits of what has 8."""
    if checkpoint_of(model, kind):
        return "published"
    if kind.id in _FLOATS and model.checkpoints:
        return "none"
    has_floats = not model.checkpoints or any(one in model.checkpoints for one in _FLOATS)
    if kind.id == "fp8" and runtime == "vllm" and has_floats:
        return "made on loading"
    if kind.family in ("gguf", "gguf-mix") and has_floats:
        return "converted"
    return "unseen"
