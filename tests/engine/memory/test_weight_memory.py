"""Weights that do not fit are refused before they are loaded, with kinds that would fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import LLM
from headrace.engine.memory import weight_memory
from headrace.engine.memory.kv_memory import REST_BYTES
from headrace.engine.memory.weight_memory import KINDS, MIX_MARGIN, check_weights_fit, copied_bytes
from headrace.errors import ConfigError
from headrace.models import FAMILIES, load_model, read_config
from headrace.ops import make_ops
from headrace.ops.reference import ReferenceOps
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import BF16, CODECS, Codec
from headrace.weights.open import open_checkpoint
from tests.engine.mock import real_ops
from tests.tiny import tiny_checkpoint, write_tiny_gguf
from tests.tiny_families import tiny_family, tiny_family_names

GIB = 1 << 30


def checkpoint(codec: Codec = BF16, *, layers: int = 32, tied: bool = False) -> Checkpoint:
    """A made-up one of some billions of values; nothing of it lies anywhere."""
    shapes = {"model.embed_tokens.weight": (128_000, 4096)}
    if not tied:
        shapes["lm_head.weight"] = (128_000, 4096)
    shapes |= {f"model.layers.{i}.mlp.up_proj.weight": (4096, 50_000) for i in range(layers)}
    tensors = {
        name: SimpleNamespace(
            shape=shape,
            num_values=shape[0] * shape[1],
            nbytes=int(shape[0] * shape[1] * codec.bits_per_weight / 8),
        )
        for name, shape in shapes.items()
    }
    made = SimpleNamespace(path=Path("model.gguf"), tensors=tensors, config={})
    return cast(Checkpoint, made)


def test_a_table_that_is_only_looked_up_is_not_copied() -> None:
    table = 128_000 * 4096 * 2
    assert copied_bytes(checkpoint()) == copied_bytes(checkpoint(tied=True))
    assert copied_bytes(checkpoint(layers=0)) == table


def test_layers_that_are_not_run_are_not_copied() -> None:
    """GLM-4.5 has one that predicts a further token, behind those its config counts."""
    whole = checkpoint(layers=3)
    shorter = SimpleNamespace(**vars(whole) | {"config": {"num_hidden_layers": 2}})
    assert copied_bytes(cast(Checkpoint, shorter)) == copied_bytes(checkpoint(layers=2))


@pytest.mark.parametrize("family", tiny_family_names())
def test_what_is_counted_is_what_loading_takes_of_every_family(family: str) -> None:
    """What a step may read: tables that are only looked up and layers that are not run are not."""
    for overrides in tiny_family(family).CASES.values():
        found = tiny_checkpoint(family, **overrides)
        model = load_model(found, ReferenceOps())
        experts = 0 if model._expert_cost is None else model._expert_cost.bytes
        assert copied_bytes(found) == model.step_weight_bytes + experts


@pytest.mark.parametrize("family", [name for name, of in FAMILIES.items() if of.drafts_name])
def test_layers_with_names_of_their_own_that_are_not_run_are_not_copied(family: str) -> None:
    found = tiny_checkpoint(family)
    names = FAMILIES[family].draft_names(read_config(found))
    assert names
    some = next(iter(found.tensors.values()))
    drafts = {f"{FAMILIES[family].drafts_name}.0.{name}": some for name in names}
    longer = replace(found, tensors={**found.tensors, **drafts})
    assert copied_bytes(longer) == copied_bytes(found)


def test_a_number_of_very_many_digits_is_not_taken_for_a_layer() -> None:
    few = checkpoint(layers=2)
    tensors = dict(few.tensors)
    up_proj = tensors["model.layers.1.mlp.up_proj.weight"]
    tensors[f"model.layers.{'9' * 5000}.up_proj.weight"] = up_proj
    made = SimpleNamespace(**vars(few) | {"tensors": tensors, "config": {"num_hidden_layers": 2}})
    assert copied_bytes(cast(Checkpoint, made)) == copied_bytes(few) + up_proj.nbytes


def test_weights_that_fit_pass_and_those_that_do_not_are_refused() -> None:
    needed = copied_bytes(checkpoint())
    check_weights_fit(checkpoint(), "cpu", needed + REST_BYTES)
    with pytest.raises(ConfigError) as caught:
        check_weights_fit(checkpoint(), "cpu", needed + REST_BYTES - 1)
    text = str(caught.value)
    assert f"the weights take {needed} bytes" in text
    assert f"{needed - 1} bytes" in text
    assert "Q8_0 or smaller" in text
    check_weights_fit(checkpoint(), "reference", 0)


@given(available=st.integers(0, 15 * GIB))
def test_the_kind_that_is_suggested_fits(available: int) -> None:
    with pytest.raises(ConfigError) as caught:
        check_weights_fit(checkpoint(layers=40), "cpu", available)
    kind = re.search(r"in (Q\d_\w) or smaller", str(caught.value))
    if kind is None:
        assert "use a smaller model" in str(caught.value)
        smallest = checkpoint(CODECS[KINDS[-1]], layers=40)
        whole = sum(tensor.nbytes for tensor in smallest.tensors.values())
        assert whole * MIX_MARGIN > available - REST_BYTES - 2
    else:
        check_weights_fit(checkpoint(CODECS[kind[1]], layers=40), "cpu", available)


def test_the_copies_are_at_least_as_large_as_is_reckoned(tmp_path: Path) -> None:
    """The refusal is of what cannot fit for certain."""
    real_ops("cpu")
    ops = make_ops("cpu")
    found = open_checkpoint(write_tiny_gguf(tmp_path, codec="Q8_0"))
    for tensor in found.tensors.values():
        if len(tensor.shape) == 2:
            assert ops.linear_weight([tensor]).nbytes >= tensor.nbytes


def test_loading_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_ops("cpu")
    path = write_tiny_gguf(tmp_path)
    monkeypatch.setattr(weight_memory, "available_memory_bytes", lambda: REST_BYTES + 1000)
    with pytest.raises(ConfigError, match=r"the weights take .* 1000 bytes"):
        LLM(path)

    def unreadable() -> int:
        raise ConfigError("cannot read how much memory is available")

    monkeypatch.setattr(weight_memory, "available_memory_bytes", unreadable)
    LLM(path, num_gpu_blocks_override=8)
