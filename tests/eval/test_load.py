"""Models to be measured are checked against the memory first; experts may stay in their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.config.settings import EngineConfig
from headrace.engine.memory import kv_memory, weight_memory
from headrace.engine.memory.expert_memory import (
    PlannedModel,
    WeightPlan,
    plan_together,
    plan_weights,
)
from headrace.engine.memory.kv_memory import REST_BYTES
from headrace.errors import ConfigError
from headrace.eval.load import LoadedModels, load_models
from headrace.eval.perplexity import perplexity
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint
from tests.engine.mock import real_ops
from tests.tiny import tiny_checkpoint, write_tiny_gguf

CONTEXT = 32
SETTINGS = EngineConfig(threads=1, max_num_batched_tokens=64)
EXPERTS: dict[str, Any] = {"num_experts": 64, "moe_intermediate_size": 32}
"""Of most of a MiB, so that a KV cache is small beside them."""


def moe(seed: int = 0) -> Checkpoint:
    return tiny_checkpoint("qwen3_moe", "Q8_0", seed, **EXPERTS)


def together(*checkpoints: Checkpoint, available: int = 1 << 40) -> WeightPlan:
    """With a KV cache of one block for each."""
    config = EngineConfig(num_gpu_blocks_override=1, max_num_batched_tokens=64)
    return plan_together([PlannedModel(item, config) for item in checkpoints], available)


def half(*checkpoints: Checkpoint) -> int:
    """Memory for half of the experts of all of them."""
    whole = together(*checkpoints)
    kv_bytes = 1 << 16
    fixed = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + kv_bytes
    return fixed + whole.expert_bytes // 2


def windows() -> list[list[int]]:
    return [[(7 * index + 3 * place) % 250 for place in range(CONTEXT)] for index in range(3)]


def cache_limit(loaded: LoadedModels) -> int:
    stats = loaded.ops.expert_cache_stats()
    assert stats is not None
    return stats.limit_bytes


def test_experts_that_do_not_fit_stay_in_the_file_and_figures_are_the_same() -> None:
    real_ops("cpu")
    checkpoint = moe()
    packed = load_models([checkpoint], SETTINGS, CONTEXT, 1 << 40)
    assert packed.ops.expert_cache_stats() is None
    expected = perplexity(packed.models[0], packed.ops, windows())
    mapped = load_models([checkpoint], SETTINGS, CONTEXT, half(checkpoint))
    assert 0 < cache_limit(mapped) <= together(checkpoint).expert_bytes
    assert perplexity(mapped.models[0], mapped.ops, windows()) == expected
    stats = mapped.ops.expert_cache_stats()
    assert stats is not None and stats.misses > 0


def test_models_are_counted_together() -> None:
    real_ops("cpu")
    first, second, dense = moe(), moe(1), tiny_checkpoint("llama", "Q8_0")
    alone, both, beside = together(first), together(first, second), together(first, dense)
    assert both.dense_bytes == 2 * alone.dense_bytes
    assert both.expert_bytes == 2 * alone.expert_bytes
    assert both.scratch_bytes == alone.scratch_bytes
    assert beside.expert_bytes == alone.expert_bytes
    assert beside.dense_bytes > alone.dense_bytes
    # Memory that holds each alone and not both.
    enough = REST_BYTES + alone.loaded_bytes + alone.scratch_bytes + (1 << 16)
    assert together(first, available=enough).expert_cache_bytes is None
    assert together(first, second, available=enough + alone.dense_bytes).expert_cache_bytes
    loaded = load_models([first, second], SETTINGS, CONTEXT, half(first, second))
    assert len(loaded.models) == 2 and cache_limit(loaded) < both.expert_bytes


def test_what_does_not_fit_is_refused() -> None:
    real_ops("cpu")
    dense, experts = tiny_checkpoint("llama", "Q8_0"), moe()
    one_dense = REST_BYTES + sum(tensor.nbytes for tensor in dense.tensors.values())
    load_models([dense], SETTINGS, CONTEXT, one_dense)
    for checkpoints, available, words in (
        ([dense], REST_BYTES + 1000, "the weights take"),
        ([dense, dense], one_dense, "the weights take"),
        ([experts], REST_BYTES + 1000, "without its experts, which may stay in the file"),
        ([experts, dense], REST_BYTES + 1000, f"{experts.path} and {dense.path}: without"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_models(checkpoints, SETTINGS, CONTEXT, available)


@pytest.mark.long
def test_the_command_leaves_experts_in_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_ops("cpu")
    path = write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", **EXPERTS)
    text = tmp_path / "text.py"
    text.write_text("def add(a, b):\n    return a + b\n" * 6, encoding="utf-8")
    words = ["--text", str(text), "--context", str(CONTEXT), "--json", "-t", "1", "--windows", "1"]

    def measured(*command: str) -> Any:
        done = CliRunner().invoke(cli, ["eval", *command, *words], catch_exceptions=False)
        return json.loads(done.stdout)

    commands = (("perplexity", str(path)), ("kl", str(path), "--base", str(path)))
    expected = [measured(*command) for command in commands]
    available = half(open_checkpoint(path))
    for module in (weight_memory, kv_memory):
        monkeypatch.setattr(module, "available_memory_bytes", lambda: available)
    limits: list[int | None] = []

    def recorded(*args: Any, expert_cache_bytes: int | None, **settings: Any) -> Ops:
        limits.append(expert_cache_bytes)
        return make_ops(*args, expert_cache_bytes=expert_cache_bytes, **settings)

    monkeypatch.setattr("headrace.eval.load.make_ops", recorded)
    assert [measured(*command) for command in commands] == expected
    assert len(limits) == 2 and all(limits)
    monkeypatch.setattr(weight_memory, "available_memory_bytes", lambda: REST_BYTES + 1000)
    for command in (("eval", *commands[0], *words), ("generate", str(path), "-p", "a")):
        with pytest.raises(ConfigError, match="without its experts, which may stay in the file"):
            CliRunner().invoke(cli, list(command), catch_exceptions=False)


def test_one_model_is_planned_as_serve_plans_it() -> None:
    checkpoint = moe()
    config = EngineConfig(num_gpu_blocks_override=1, max_num_batched_tokens=64)
    for available in (1 << 40, half(checkpoint)):
        planned = plan_weights(checkpoint, config, available)
        assert planned == together(checkpoint, available=available)
