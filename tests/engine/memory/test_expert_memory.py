"""Experts that do not all fit in memory: the size of their cache, same bits, what is refused."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import LLM
from headrace.cli.main import cli
from headrace.config.settings import EngineConfig
from headrace.engine.memory import kv_memory, weight_memory
from headrace.engine.memory.expert_memory import (
    PASS_BYTES,
    WeightPlan,
    less_margin,
    plan_weights,
    scratch_bytes,
)
from headrace.engine.memory.fit import fit
from headrace.engine.memory.kv_memory import MIB, REST_BYTES, plan_kv_cache
from headrace.engine.memory.stored_shape import stored_shape
from headrace.errors import ConfigError
from headrace.models import load_model, read_config
from headrace.offline.params import SamplingParams
from headrace.ops import make_ops
from headrace.weights.checkpoint import Checkpoint
from tests.engine.mock import real_ops
from tests.models.test_expert_families import WITH_EXPERTS
from tests.tiny import tiny_checkpoint, write_tiny_gguf

PLENTY = 1 << 40
FLAG = "--expert-cache-memory-bytes"


def plan(checkpoint: Checkpoint, available: int | None = PLENTY, **settings: Any) -> WeightPlan:
    return plan_weights(checkpoint, EngineConfig(**settings), available)


@functools.cache
def large() -> Checkpoint:
    """Experts of some MiB, so that margins and blocks of the KV cache are small beside them."""
    return tiny_checkpoint("qwen3_moe", "Q8_0", num_experts=64, moe_intermediate_size=256)


def without_margin(num_bytes: int) -> int:
    """What is left of some MiB: half of it, since 16 MiB would be more."""
    assert num_bytes < 32 * MIB
    return num_bytes - num_bytes // 2


def all_of(checkpoint: Checkpoint) -> int:
    """Memory in which everything fits."""
    found = plan(checkpoint)
    return found.loaded_bytes + found.scratch_bytes + REST_BYTES + 64 * MIB


@pytest.mark.parametrize("family", WITH_EXPERTS)
@pytest.mark.parametrize("codec", ["F32", "Q8_0"])
def test_the_experts_are_those_that_the_backend_holds(family: str, codec: str) -> None:
    real_ops("cpu")
    checkpoint = tiny_checkpoint(family, codec)
    found = plan(checkpoint)
    assert found.expert_cache_bytes is None
    matrices = [t for name, t in checkpoint.tensors.items() if ".experts." in name and t.shape[1:]]
    experts = sum(tensor.nbytes for tensor in matrices)
    assert found.expert_bytes == experts
    with pytest.raises(ConfigError) as caught:
        plan(checkpoint, expert_cache_memory_bytes=1)
    text = str(caught.value)
    assert text.startswith(f"{FLAG} is 1; one matrix of an expert of this model takes ")
    least = int(re.findall(rf"Use {FLAG} (\d+) or more, or auto", text)[0])
    assert plan(checkpoint, expert_cache_memory_bytes=least).expert_cache_bytes == least
    load_model(checkpoint, make_ops("cpu", threads=1, expert_cache_bytes=least))
    with pytest.raises(ValueError, match=f"less than the {least} bytes of one packed expert"):
        load_model(checkpoint, make_ops("cpu", threads=1, expert_cache_bytes=least - 1))


def test_models_without_experts_and_the_reference_have_no_such_cache() -> None:
    chosen = {"expert_cache_memory_bytes": 1 << 20}
    assert plan(tiny_checkpoint("llama"), **chosen) == WeightPlan()
    assert plan(large(), backend="reference", **chosen) == WeightPlan()
    assert plan(tiny_checkpoint("qwen3_moe", num_experts=1, num_experts_per_tok=1)) == WeightPlan()


def test_all_are_packed_where_they_fit_and_what_is_left_is_the_caches_where_not() -> None:
    checkpoint = large()
    whole = plan(checkpoint)
    assert plan(checkpoint, all_of(checkpoint)).expert_cache_bytes is None
    assert plan(checkpoint, all_of(checkpoint), kv_cache_memory_bytes=128 * MIB).expert_cache_bytes
    half = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + whole.expert_bytes // 2
    cache = plan(checkpoint, half).expert_cache_bytes
    assert cache is not None
    # A quarter of it is the KV cache's.
    assert cache == without_margin(whole.expert_bytes // 2 - whole.expert_bytes // 8)
    # Where the size of the KV cache is set, it has that.
    found = plan(checkpoint, half, kv_cache_memory_bytes=MIB).expert_cache_bytes
    assert found == without_margin(whole.expert_bytes // 2 - MIB)
    blocks = plan(checkpoint, half, num_gpu_blocks_override=1).expert_cache_bytes
    assert blocks is not None
    assert found < blocks < whole.expert_bytes // 2


def test_the_kv_cache_leaves_the_experts_their_memory() -> None:
    checkpoint = large()
    whole = plan(checkpoint)
    available = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + whole.expert_bytes // 2
    found = plan(checkpoint, available)
    assert found.expert_cache_bytes is not None
    assert found.reserved_bytes == found.expert_cache_bytes + found.scratch_bytes
    left = available - REST_BYTES - found.loaded_bytes
    shape = stored_shape(checkpoint, read_config(checkpoint))
    planned = plan_kv_cache(shape, EngineConfig(), left, found.reserved_bytes)
    taken = planned.num_blocks * planned.block_bytes
    assert 0 < taken <= left - found.reserved_bytes
    squeezed = plan_kv_cache(shape, EngineConfig(), left, left - 2 * planned.block_bytes)
    assert squeezed.num_blocks == 2
    assert squeezed.budget == f"what experts leave of {left >> 20:,} MiB available"
    with pytest.raises(ConfigError, match=r"--kv-cache-memory-bytes is .* only \d+ bytes"):
        plan_kv_cache(shape, EngineConfig(kv_cache_memory_bytes=left), left, found.reserved_bytes)


def test_parts_that_every_token_needs_are_refused_where_they_do_not_fit() -> None:
    checkpoint = large()
    whole = plan(checkpoint)
    with pytest.raises(ConfigError) as caught:
        plan(checkpoint, REST_BYTES + whole.dense_bytes)
    text = str(caught.value)
    assert "without its experts, which may stay in the file, the weights take " in text
    assert f"{whole.dense_bytes} bytes" in text
    assert f"the rows of a step {whole.scratch_bytes} and" in text
    assert f"; {whole.dense_bytes} bytes (" in text
    least = int(re.findall(r"one matrix of an expert (\d+);", text)[0])
    enough = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + least
    assert plan(checkpoint, enough).expert_cache_bytes == least
    with pytest.raises(ConfigError, match="the weights take"):
        plan(checkpoint, enough - 1)


def test_a_size_that_does_not_fit_is_refused_with_one_that_does() -> None:
    checkpoint = large()
    whole = plan(checkpoint)
    available = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + whole.expert_bytes // 2
    too_large = whole.expert_bytes
    with pytest.raises(ConfigError) as caught:
        plan(checkpoint, available, expert_cache_memory_bytes=too_large)
    text = str(caught.value)
    assert text.startswith(f"{FLAG} is {too_large}; beside ")
    assert f"{whole.dense_bytes} bytes of other weights" in text
    fitting = int(re.findall(rf"Use {FLAG} (\d+) or less, or auto", text)[0])
    found = plan(checkpoint, available, expert_cache_memory_bytes=fitting)
    assert found.expert_cache_bytes == fitting
    # More than all experts takes no more than these.
    found = plan(checkpoint, expert_cache_memory_bytes=1 << 70)
    assert found.expert_cache_bytes == whole.expert_bytes
    assert found.reserved_bytes == whole.expert_bytes + whole.scratch_bytes
    assert found.loaded_bytes == whole.dense_bytes
    with pytest.raises(ConfigError, match="or a smaller KV cache"):
        plan(
            checkpoint,
            available,
            expert_cache_memory_bytes=too_large,
            kv_cache_memory_bytes=PLENTY,
        )


def test_memory_that_cannot_be_read_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> int:
        raise ConfigError("cannot read how much memory is available")

    monkeypatch.setattr(weight_memory, "available_memory_bytes", unreadable)
    assert plan(large(), None).expert_cache_bytes is None
    assert plan(large(), None, expert_cache_memory_bytes=MIB).expert_cache_bytes == MIB


def test_the_rows_of_a_step() -> None:
    """Tiny: 3 of 8 experts of 32 values, 64 in and out; and a shared expert that is wider."""
    config = read_config(tiny_checkpoint("qwen3_moe", hidden=64))
    pair = 4 * (max(2 * 32, 64) + 32 + 2 * 64)
    assert scratch_bytes(config, 10) == 10 * 3 * pair
    assert PASS_BYTES - 3 * pair < scratch_bytes(config, 10**9) <= PASS_BYTES
    shared = read_config(
        tiny_checkpoint("qwen2_moe", hidden=64, shared_expert_intermediate_size=1024)
    )
    assert scratch_bytes(shared, 10) == 10 * 4 * (2048 + 1024 + 128)
    assert scratch_bytes(read_config(tiny_checkpoint("llama")), 10) == 0


PROMPTS = ["def fib(n):", "The quick brown fox", "0123456789"]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=3)


def answers(llm: LLM) -> list[Any]:
    results = llm.generate(PROMPTS, GREEDY, progress=False)
    return [(result.token_ids, result.logprobs) for result in results]


def test_half_of_the_experts_in_memory_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_ops("cpu")
    path = write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", num_experts=16)
    settings: dict[str, Any] = {"num_gpu_blocks_override": 64, "threads": 2}
    plain = LLM(path, **settings)
    assert plain.info.expert_cache_bytes is None
    assert plain.stats.expert_cache_misses == plain.stats.expert_cache_held_bytes == 0
    expected = answers(plain)

    whole = plan(tiny_checkpoint("qwen3_moe", "Q8_0", num_experts=16))
    cached = LLM(path, expert_cache_memory_bytes=whole.expert_bytes // 2, **settings)
    assert answers(cached) == expected
    assert cached.info.expert_cache_bytes == whole.expert_bytes // 2
    stats = cached.stats
    assert stats.expert_cache_hits > 0
    assert stats.expert_cache_misses > 2 * 2 * 16, "more than once each"
    assert stats.expert_cache_read_bytes > whole.expert_bytes
    assert whole.expert_bytes // 4 < stats.expert_cache_held_bytes <= whole.expert_bytes // 2

    # The same by the memory there is, of which the KV cache takes its blocks first.
    kv_bytes = plain.info.kv_bytes
    rest = whole.dense_bytes + whole.scratch_bytes + kv_bytes + REST_BYTES
    for module in (weight_memory, kv_memory):
        monkeypatch.setattr(
            module, "available_memory_bytes", lambda: rest + whole.expert_bytes // 2
        )
    chosen = LLM(path, **settings)
    assert chosen.info.expert_cache_bytes == without_margin(whole.expert_bytes // 2)
    assert answers(chosen) == expected
    assert chosen.stats.expert_cache_misses > 0
    monkeypatch.setattr(weight_memory, "available_memory_bytes", lambda: REST_BYTES + 1000)
    with pytest.raises(ConfigError, match="without its experts, which may stay in the file"):
        LLM(path, **settings)


def test_what_would_fit_counts_the_cache() -> None:
    checkpoint = large()
    whole = plan(checkpoint)
    plenty = fit(checkpoint, PLENTY)
    assert plenty is not None
    assert (plenty.expert_bytes, plenty.expert_cache_bytes) == (whole.expert_bytes, None)
    assert plenty.weights_bytes == whole.loaded_bytes
    available = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + whole.expert_bytes // 2
    found = fit(checkpoint, available)
    assert found is not None
    assert found.problem == ""
    assert found.expert_cache_bytes == plan(checkpoint, available).expert_cache_bytes
    assert found.weights_bytes == whole.dense_bytes + (found.expert_cache_bytes or 0)
    assert 0 < found.default_tokens <= found.most_tokens
    largest = plan(checkpoint, available, kv_cache_memory_bytes=found.kv_cache_memory_bytes)
    assert largest.expert_cache_bytes is not None


def test_show_has_a_row_of_the_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", num_experts=64, moe_intermediate_size=256)
    whole = plan(large())
    available = REST_BYTES + whole.dense_bytes + whole.scratch_bytes + whole.expert_bytes // 2

    def shown() -> str:
        return CliRunner().invoke(cli, ["show", str(path)], catch_exceptions=False).stdout

    assert not re.search(r"^experts ", shown(), re.M)
    monkeypatch.setattr("headrace.engine.memory.fit.available_memory_bytes", lambda: available)
    cache = plan(large(), available).expert_cache_bytes
    assert cache is not None
    row = f"{cache / 1e6:,.3f} MB of {whole.expert_bytes / 1e6:,.3f} MB packed at a time"
    assert re.search(rf"^experts +{re.escape(row)}$", shown(), re.M)


def test_a_margin_is_left_for_what_headers_do_not_show() -> None:
    """A sixteenth of much, 16 MiB of less, half of little."""
    for left, margin in ((1 << 30, 1 << 26), (100 * MIB, 16 * MIB), (10 * MIB, 5 * MIB)):
        assert less_margin(left) == left - margin
    assert less_margin(-1) == 0
