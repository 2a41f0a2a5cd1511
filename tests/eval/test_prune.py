"""Pruned models: what they compute is what the whole model computes without what went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import ConfigError, UnsupportedModelError
from headrace.eval.prune import (
    PruneOptions,
    check_alike,
    check_options,
    most_used,
    pruned,
    statement,
)
from headrace.eval.usage import MEASURES, Usage, measured_usage
from headrace.eval.windows import WindowRunner
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.experts import Routes, Routing
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import tiny_checkpoint, write_tiny_gguf
from tests.tiny_families.gemma4_text import CASES

WINDOWS = [[(7 * at + start) % 250 for at in range(24)] for start in (3, 90)]
MIXTURES = (
    "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "gemma4-experts", "glm4_moe", "gpt_oss",
    "granitemoe", "hunyuan_v1_moe", "llama4_text", "mimo_v2_flash", "minimax_m2", "mixtral",
    "olmoe", "phimoe", "qwen2_moe", "qwen3_moe", "step3p7",
)  # fmt: skip
VARIANTS = {"gemma4-experts": ("gemma4_text", CASES["gemma4-experts"])}
NOTHING = np.float32(-1e30)


def logits(checkpoint: Checkpoint, ops: Any = None) -> npt.NDArray[np.float32]:
    ops = ops or make_ops("reference")
    runner = WindowRunner(load_model(checkpoint, ops), ops, len(WINDOWS[0]))
    return np.concatenate([np.asarray(scored.logits) for scored in runner.run(0, WINDOWS[0])])


def measured(checkpoint: Checkpoint) -> Usage:
    return measured_usage(checkpoint, make_ops("reference"), WINDOWS)


def inverted(usage: Usage) -> Usage:
    """As if each layer had used its experts the other way round."""
    experts = {
        layer: replace(used, count=used.count.max() - used.count)
        for layer, used in usage.experts.items()
    }
    return replace(usage, experts=experts)


class WithoutExperts:
    """A backend whose routers give nothing to the experts that went."""

    def __init__(self, kept: Mapping[int, tuple[int, ...]]) -> None:
        self._ops, self._kept, self._calls = make_ops("reference"), kept, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def route(
        self, scores: Any, routing: Routing, *, bias: Any = None, factors: Any = None
    ) -> Routes:
        if routing.num_experts > 1:
            kept = self._kept[sorted(self._kept)[self._calls % len(self._kept)]]
            self._calls += 1
            gone = [expert for expert in range(routing.num_experts) if expert not in kept]
            scores = np.array(scores)
            scores[:, gone] = NOTHING
            if bias is not None:
                bias = np.array(bias)
                bias[gone] = NOTHING
        return self._ops.route(scores, routing, bias=bias, factors=factors)


@pytest.mark.parametrize("family", MIXTURES)
def test_without_experts_a_model_is_what_it_is_when_none_chooses_them(family: str) -> None:
    name, overrides = VARIANTS.get(family, (family, {}))
    checkpoint = tiny_checkpoint(name, "F32", **overrides)
    routing = check_options(checkpoint, PruneOptions(layers=1)).experts
    assert routing is not None
    before, groups = routing.routing.num_experts, routing.routing.num_groups
    left = before - max(1, groups)
    # The most used goes, since a tiny model may never choose the least used.
    made = pruned(checkpoint, inverted(measured(checkpoint)), PruneOptions(experts=left))
    assert {len(numbers) for numbers in made.experts.values()} == {left}
    assert sorted(made.experts) == [layer for layer, has in enumerate(routing.layers) if has]
    masked = logits(checkpoint, cast(Ops, WithoutExperts(made.experts)))
    assert not np.allclose(masked, logits(checkpoint), rtol=1e-3)
    np.testing.assert_allclose(logits(made.checkpoint), masked, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3", "gpt_oss", "granitemoe"])
def test_both_containers_hold_what_is_left(family: str, tmp_path: Path) -> None:
    source = open_checkpoint(write_tiny_gguf(tmp_path, family, "F32"))
    experts = check_options(source, PruneOptions(layers=1)).experts
    assert experts is not None
    left = experts.routing.num_experts - experts.routing.num_groups
    made = pruned(source, measured(source), PruneOptions(experts=left))
    write_gguf(made.checkpoint, tmp_path / "less.gguf", metadata=made.entries)
    write_hf_folder(made.checkpoint, tmp_path / "less")
    expected = logits(made.checkpoint)
    for place in ("less.gguf", "less"):
        opened = open_checkpoint(tmp_path / place)
        check_alike(source, opened, made.layers)
        np.testing.assert_allclose(logits(opened), expected, rtol=2e-5, atol=2e-6)


def _adding_nothing(checkpoint: Checkpoint, layer: int) -> Checkpoint:
    """The checkpoint with a layer whose outputs are zeros, so that its input comes out of it."""
    tensors: dict[str, Tensor] = dict(checkpoint.tensors)
    for module in ("self_attn.o_proj", "mlp.down_proj"):
        name = f"model.layers.{layer}.{module}.weight"
        tensors[name] = replace(tensors[name], data=np.zeros_like(tensors[name].data))
    return replace(checkpoint, tensors=tensors)


def test_the_layer_that_changes_least_goes_and_the_others_compute_what_they_did(
    tmp_path: Path,
) -> None:
    whole = tiny_checkpoint("llama", "F32", num_hidden_layers=3)
    source = _adding_nothing(whole, 1)
    usage = measured(source)
    assert usage.change[1] == pytest.approx(0, abs=1e-12)
    assert min(usage.change[0], usage.change[2]) > 1e-3
    made = pruned(source, usage, PruneOptions(layers=2))
    assert made.layers == (0, 2)
    assert np.array_equal(logits(made.checkpoint), logits(source))
    write_gguf(source, tmp_path / "m.gguf")
    opened = open_checkpoint(tmp_path / "m.gguf")
    less = pruned(opened, usage, PruneOptions(layers=2))
    write_gguf(less.checkpoint, tmp_path / "less.gguf", metadata=less.entries)
    again = open_checkpoint(tmp_path / "less.gguf")
    check_alike(opened, again, less.layers)
    assert np.array_equal(logits(again), logits(source))


def test_layers_without_experts_at_the_start_are_counted_anew() -> None:
    source = tiny_checkpoint("deepseek_v3", "F32")
    config = check_options(source, PruneOptions(layers=1))
    assert config.experts is not None
    assert not config.experts.layers[0]
    change = tuple(float(layer > 0) for layer in range(config.num_layers))
    usage = replace(measured(source), change=change)
    made = pruned(source, usage, PruneOptions(layers=config.num_layers - 1))
    assert made.layers == tuple(range(1, config.num_layers))
    check_alike(source, made.checkpoint, made.layers)
    assert made.checkpoint.config["first_k_dense_replace"] == 0
    assert logits(made.checkpoint).shape == logits(source).shape


def test_layers_whose_windows_follow_a_rule_over_places_stay() -> None:
    source = tiny_checkpoint("gemma2", "F32")
    config = check_options(source, PruneOptions(layers=1))
    assert len(set(config.windows)) > 1
    usage = Usage(1, {}, tuple(float(layer > 0) for layer in range(config.num_layers)))
    made = pruned(source, usage, PruneOptions(layers=config.num_layers - 1))
    stated = {key: made.checkpoint.config[key] for key in made.checkpoint.config}
    stated.pop("layer_types", None)
    with pytest.raises(UnsupportedModelError, match="would be another in place 0, by its window"):
        check_alike(source, replace(made.checkpoint, config=stated), made.layers)


def test_use_is_counted_by_token_and_choice() -> None:
    checkpoint = tiny_checkpoint("qwen3_moe", "F32")
    usage = measured(checkpoint)
    tokens = sum(len(window) - 1 for window in WINDOWS)
    assert usage.tokens == tokens
    for used in usage.experts.values():
        assert used.count.sum() == tokens * checkpoint.config["num_experts_per_tok"]
        # The weights of a token add up to 1 in this family.
        assert used.weight.sum() == pytest.approx(tokens, rel=1e-5)
        assert ((used.output > 0) == (used.count > 0)).all()
        assert [used.by(measure) is not None for measure in MEASURES] == [True] * 3


def test_measuring_changes_no_logit() -> None:
    checkpoint = tiny_checkpoint("qwen3_moe", "F32")
    before = logits(checkpoint)
    measured(checkpoint)
    assert np.array_equal(logits(checkpoint), before)


def test_groups_keep_as_many_experts_each_and_the_first_of_equals() -> None:
    sums = np.array([5.0, 4.0, 3.0, 9.0, 1.0, 1.0, 1.0, 0.0])
    assert most_used(sums, 4, 1) == (0, 1, 2, 3)
    assert most_used(sums, 4, 2) == (0, 3, 4, 5)
    assert most_used(np.ones(6), 4, 1) == (0, 1, 2, 3)


def test_the_measurement_is_stated_with_what_stays() -> None:
    checkpoint = tiny_checkpoint("qwen3_moe", "F32")
    usage, options = measured(checkpoint), PruneOptions(experts=3, layers=1)
    made = pruned(checkpoint, usage, options)
    stated = json.loads(statement(usage, made, options, "notes.txt", 2, 24))
    assert (stated["text"], stated["windows"], stated["context"]) == ("notes.txt", 2, 24)
    assert (stated["tokens"], stated["by"]) == (usage.tokens, "count")
    assert stated["layers"] == list(made.layers)
    for layer in stated["experts"]:
        used = usage.experts[layer["layer"]]
        assert layer["count"] == used.count.tolist()
        if layer["layer"] in made.layers:
            assert layer["kept"] == list(most_used(used.count, 3, 1))


def test_what_cannot_be_left_is_refused_by_name() -> None:
    mixture, dense = tiny_checkpoint("qwen3_moe", "F32"), tiny_checkpoint("llama", "F32")
    count = mixture.config["num_experts"]
    chosen = mixture.config["num_experts_per_tok"]
    for experts in (chosen - 1, count + 1):
        with pytest.raises(ConfigError, match=f"--experts {experts}: .* choose {chosen} to"):
            check_options(mixture, PruneOptions(experts=experts))
    with pytest.raises(ConfigError, match="the model has no experts"):
        check_options(dense, PruneOptions(experts=2))
    with pytest.raises(ConfigError, match="give --experts, --layers or both"):
        check_options(dense, PruneOptions())
    with pytest.raises(ConfigError, match="--layers 99: the model has"):
        check_options(dense, PruneOptions(layers=99))
    grouped = tiny_checkpoint("deepseek_v3", "F32")
    groups = grouped.config["n_group"]
    if groups > 1:
        with pytest.raises(ConfigError, match=f"a multiple of its {groups} groups"):
            check_options(
                grouped, PruneOptions(experts=grouped.config["n_routed_experts"] - groups + 1)
            )
