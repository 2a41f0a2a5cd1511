"""Fuzzes loading of models: `python -m tools.fuzz.model_configs --seed 1 --seconds 600`.

Seeds are the tiny models of every family that has experts, latents, windows, chunks, sinks or
lists of what each layer is, as folders hold them. An input is a config with other values, most of
them in counts, widths, groups and lists, and a list of what happens to the tensors: one is left
out, named as another, given another shape or another kind. Loading either works or raises one of
our errors, in bounded time and memory, before anything of a stated size is made.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import HeadraceError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.architectures import known_architecture
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs import F32
from headrace.weights.model_config.text_part import text_config, text_part
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.tensors.expert_stacks import unstacked_folder
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData
from tests.tiny import write_tiny_hf
from tests.tiny_families import tiny_family, tiny_family_names
from tools.fuzz.harness import Target, main
from tools.fuzz.json_values import change_json

MAX_ERROR_CHARACTERS = 4000
MAX_POSITIONS = 64
WORDS = ("expert", "lora", "window", "chunk", "layer_types", "sink", "block_configs", "moe",
         "no_rope", "index_topk", "hybrid", "group")  # fmt: skip
"""Parts of keys that make a family one of the seeds."""
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 64, 255, 4096, 4097, 10**6, 2**31 - 1, 2**31, 2**32,
    2**62, 2**63, 10**30, 0.0, -1.0, 0.5, 1e300, float("inf"), float("nan"), "", "x", "sigmoid",
    "full_attention", "sliding_attention", "chunked_attention", "linear_attention", [], {}, [0],
    [[]], [0, 1], [1] * 5000, ["full_attention"] * 3, {"a": 1}, {"quant_method": "mxfp4"},
    [{"attention": {"no_op": True}, "ffn": {"no_op": True}}], [None, None], [-1], [2**31],
)  # fmt: skip
CHANGES = ("leave out", "name", "shape", "kind", "rows")


def make_target() -> Target:
    """The target; its folders live as long as it does."""
    home = tempfile.TemporaryDirectory()
    models = tiny_models(Path(home.name))
    ops = make_ops("reference")

    def attempt(data: bytes) -> str:
        # In a closure, so that the mapped files live as long as the target.
        assert home.name
        value = json.loads(data)
        stored = models[value["model"]]
        try:
            checkpoint = assembled(value["config"], damaged(stored, value["changes"]))
            load_model(checkpoint, ops, max_positions=MAX_POSITIONS)
        except HeadraceError as error:
            if len(str(error)) > MAX_ERROR_CHARACTERS:
                raise AssertionError(f"an error of {len(str(error))} characters") from error
            return type(error).__name__
        return "loaded"

    return Target(seeds(), mutate, attempt)


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Family and overrides of each tiny model that is a seed, by the name of the case."""
    return {
        name: (family, dict(overrides))
        for family in tiny_family_names()
        for name, overrides in tiny_family(family).CASES.items()
        if any(word in key for key in tiny_family(family).config(**overrides) for word in WORDS)
    }


def tiny_models(folder: Path) -> dict[str, Mapping[str, Tensor]]:
    """Tensors of each seed as its folder holds them."""
    models = {}
    for name, (family, overrides) in cases().items():
        path = write_tiny_hf(folder / name, family, **overrides)
        stored = known_architecture(family)
        raw = ("U8",) if stored is not None and stored.turned_stacks else ()
        file = read_safetensors(path / "model.safetensors", raw=raw)
        models[name] = file.tensors
    return models


def seeds() -> list[bytes]:
    """Every tiny model with nothing changed."""
    return [
        json.dumps(
            {"model": name, "config": tiny_family(family).config(**overrides), "changes": []}
        ).encode()
        for name, (family, overrides) in cases().items()
    ]


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A seed with one to three values changed, and in every third input tensors as well."""
    value = json.loads(rng.choice(seeds))
    if rng.random() < 0.85:
        text = json.dumps(value["config"]).encode()
        changed = json.loads(change_json(text, rng, HOSTILE))
        # What is named as a family is read as one; other names end at once.
        if rng.random() < 0.9 and isinstance(changed, dict):
            changed["model_type"] = value["config"]["model_type"]
        value["config"] = changed
    if rng.random() < 0.35:
        value["changes"] = [
            [rng.choice(CHANGES), rng.random(), rng.random()] for _ in range(rng.choice((1, 1, 2)))
        ]
    return json.dumps(value).encode()


def damaged(tensors: Mapping[str, Tensor], changes: Sequence[Sequence[Any]]) -> dict[str, Tensor]:
    """The tensors after these changes; which of them is a share of their number."""
    out = dict(tensors)
    for what, share, other in changes:
        names = list(out)
        if not names:
            break
        name = names[int(share * len(names))]
        tensor = out[name]
        if what == "leave out":
            del out[name]
        elif what == "name":
            out[name.replace(".0.", f".{int(other * 99)}.")] = tensor
        elif what == "kind":
            values = np.zeros((int(np.prod(tensor.shape[:-1])), tensor.shape[-1]), np.float32)
            kind = out[names[int(other * len(names))]].codec
            if kind.can_encode and tensor.shape[-1] % kind.block_elements == 0:
                out[name] = Tensor(name, tensor.shape, kind, kind.encode(values))
        elif tensor.codec is F32:
            out[name] = _with_shape(name, _other_shape(tensor.shape, what, other))
    return out


def _other_shape(shape: tuple[int, ...], what: str, other: float) -> tuple[int, ...]:
    """One row or expert less or more, or the dimensions turned round."""
    if what == "rows":
        return (max(1, shape[0] + (-1 if other < 0.5 else 1)), *shape[1:])
    return shape[::-1] if other < 0.5 else (*shape[:-1], 1)


def _with_shape(name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor of zeros: a reader of files has seen to it that shape and bytes agree."""
    values = np.zeros((int(np.prod(shape[:-1])), shape[-1]), np.float32)
    return Tensor(name, shape, F32, F32.encode(values))


def assembled(config: Any, tensors: Mapping[str, Tensor]) -> Checkpoint:
    """A checkpoint of what a folder holds, put together as opening the folder does."""
    stated = config if isinstance(config, dict) else {}
    text = text_config(stated)
    stored = known_architecture(text.get("model_type"))
    named = text_part(stated, tensors).tensors
    if stored is not None:
        named = unstacked_folder(Path("fuzz"), named, stored)
    return Checkpoint(
        path=Path("fuzz"),
        format="safetensors",
        config=text,
        conventions=Conventions() if stored is None else stored.hf,
        tensors=named,
        tokenizer=TokenizerData("none"),
    )


if __name__ == "__main__":
    main(make_target, __doc__)
