"""Decode steps that are recorded, on a processor: a repetition reads what lies in buffers then."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.recorded_steps import SIZES, RecordedSteps
from headrace.models import Model, load_model
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.placement import ALL_LAYERS, with_experts
from tests.engine.mock import Collected, collect, drain, real_ops
from tests.engine.streams import cases, logprobs_of
from tests.tiny import NUM_TOKENS, tiny_checkpoint

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")

from headrace.ops.torch import TorchOps  # noqa: E402

pytestmark = pytest.mark.torch

LENGTH = 96


def recording_ops() -> TorchOps:
    ops = TorchOps("cpu", 1)
    ops.records = True
    return ops


def loaded(family: str, ops: Ops, codec: str = "F32") -> tuple[Model, KVCacheArrays, RecordedSteps]:
    model = load_model(tiny_checkpoint(family, codec), ops)
    config = EngineConfig(num_gpu_blocks_override=64, block_size=16, max_model_len=LENGTH)
    plan = plan_kv_cache(model, config)
    kv = ops.kv_cache(plan.spec)
    steps = RecordedSteps(model, ops, kv, num_tables=plan.layout.num_tables, max_model_len=LENGTH)
    return model, kv, steps


def filled(model: Model, kv: KVCacheArrays, lengths: list[int], rng: random.Random) -> RaggedBatch:
    """Requests of these lengths with K and V of all tokens but the last; that one is the batch."""
    tables = model.cache_layout.num_tables
    entries = -(-LENGTH // 16)
    blocks = rng.sample(range(1, 64), tables * entries * len(lengths))
    table = np.array(blocks, np.int32).reshape(tables, len(lengths), entries)
    for row, length in enumerate(lengths):
        count = length - 1
        if count:
            model.forward(
                RaggedBatch(
                    np.array([rng.randrange(250) for _ in range(count)], np.int32),
                    np.arange(count, dtype=np.int32), np.array([0, count], np.int32),
                    tuple(each[row : row + 1] for each in table), np.zeros(0, np.int32),
                ),
                kv,
            )  # fmt: skip
    return RaggedBatch(
        np.array([rng.randrange(250) for _ in lengths], np.int32),
        np.array(lengths, np.int32) - 1,
        np.arange(len(lengths) + 1, dtype=np.int32),
        tuple(table),
        np.arange(len(lengths), dtype=np.int32),
    )


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("family", "codec"),
    [
        ("llama", "F32"),
        ("qwen3", "Q8_0"),
        ("gemma2", "BF16"),
        ("gpt_neox", "F32"),
        ("ministral3", "F32"),
    ],
)
def test_a_repetition_has_the_bits_of_the_step_itself(family: str, codec: str) -> None:
    """Of other tokens, positions and blocks than those that were recorded, padded and not."""
    ops = recording_ops()
    model, kv, steps = loaded(family, ops, codec)
    steps.record(4)
    assert steps.sizes == (1, 2, 4)
    rng = random.Random(family)
    for lengths in ([1], [LENGTH], [5, 70], [64, 65, 1], [33], [90, 2]):
        batch = filled(model, kv, lengths, rng)
        logits = steps.forward(batch)
        assert logits is not None and len(logits) == len(lengths)
        again = ops.host(logits).copy()
        assert np.array_equal(again, ops.host(model.forward(batch, kv)))


def test_only_steps_of_one_token_each_and_no_more_than_are_recorded() -> None:
    ops = recording_ops()
    model, kv, steps = loaded("llama", ops)
    steps.record(2)
    rng = random.Random(1)
    assert steps.forward(filled(model, kv, [3, 4], rng)) is not None
    assert steps.forward(filled(model, kv, [3, 4, 5], rng)) is None, "too many"
    batch = filled(model, kv, [3, 4], rng)
    quiet = RaggedBatch(batch.token_ids, batch.positions, batch.query_start, batch.block_tables,
                        batch.logit_rows[:1])  # fmt: skip
    assert steps.forward(quiet) is None
    prompt = RaggedBatch(batch.token_ids, np.array([0, 1], np.int32), np.array([0, 2], np.int32),
                         tuple(table[:1] for table in batch.block_tables),
                         batch.logit_rows[1:])  # fmt: skip
    assert steps.forward(prompt) is None


@pytest.mark.parametrize("family", ["llama4_text", "qwen3_moe"])
def test_a_model_whose_step_asks_the_host_is_not_recorded(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The choice of experts one after another."""
    ops = recording_ops()
    _, _, steps = loaded(family, ops)
    steps.record(2)
    assert steps.sizes == () and "steps are not recorded: " in caplog.text


def test_nothing_is_recorded_where_nothing_can_be() -> None:
    for ops in (TorchOps("cpu", 1), with_experts(recording_ops(), real_ops("cpu"), ALL_LAYERS)):
        _, _, steps = loaded("llama", ops)
        steps.record(4)
        assert steps.sizes == ()
    assert all(2 * each == other for each, other in pairwise(SIZES))


@pytest.mark.parametrize("eager", [False, True])
def test_an_engine_answers_the_same_with_recorded_steps(eager: bool) -> None:
    """Streams that come and go, prompts between them: recorded where all rows decode."""
    answers: list[Any] = []
    for ops in (recording_ops(), TorchOps("cpu", 1)):
        model = load_model(tiny_checkpoint("llama", "F32", logit_scale=2.0), ops)
        config = EngineConfig(
            num_gpu_blocks_override=64, block_size=16, max_num_seqs=4, max_model_len=160,
            enforce_eager=eager, speculative_config="none",
        )  # fmt: skip
        core = EngineCore(model, ops, config, num_tokens=NUM_TOKENS)
        core.warm_up()
        expected = (1, 2, 4) if ops.records and not eager else ()
        assert core._recorded.sizes == expected
        results: dict[str, Collected] = {}
        for case in cases(6, random.Random(3)):
            core.submit(case.submit)
            collect(results, core.step())
        drain(core, results)
        answers.append(
            {name: (result.token_ids, logprobs_of(result)) for name, result in results.items()}
        )
    assert answers[0] == answers[1]
