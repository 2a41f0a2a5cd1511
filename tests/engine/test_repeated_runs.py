"""Which runs are recorded, and what becomes of those that cannot be repeated any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.repeated_runs import MOST_RECORDINGS, MOST_TOKENS, RepeatedRuns
from headrace.models import load_model
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array
from headrace.ops.reference import ReferenceOps
from tests.engine.mock import NUM_TOKENS, drain, real_ops, submit
from tests.tiny import tiny_checkpoint


def batch(count: int) -> RaggedBatch:
    return RaggedBatch(
        np.arange(count, dtype=np.int32),
        np.arange(count, dtype=np.int32),
        np.array([0, count], np.int32),
        (),
        np.arange(count, dtype=np.int32),
    )


def prompt(count: int) -> RaggedBatch:
    return replace(batch(count), logit_rows=np.array([count - 1], np.int32))


def ragged(*counts: int) -> RaggedBatch:
    return replace(batch(sum(counts)), query_start=np.cumsum([0, *counts]).astype(np.int32))


class Recording:
    def __init__(
        self, run: Callable[..., Sequence[Array]], *, depends_on_starts: bool = False
    ) -> None:
        self._run = run
        self.depends_on_starts = depends_on_starts
        self.count = 0
        self.error: Exception | None = None

    def repeat(self, batch: RaggedBatch, inputs: Sequence[Array]) -> Sequence[Array]:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self._run(batch, inputs)


class Ops(ReferenceOps):
    """A backend that records all, or nothing."""

    recording = "shapes"

    def __init__(self, *, can: bool = True, of_starts: bool = False) -> None:
        super().__init__()
        self._can = can
        self._of_starts = of_starts
        self.made: list[Recording] = []

    def record_run(
        self, run: Callable[..., Sequence[Array]], batch: RaggedBatch, inputs: Any = ()
    ) -> tuple[Sequence[Array], Recording | None]:
        self.made.append(Recording(run, depends_on_starts=self._of_starts))
        return run(batch, inputs), self.made[-1] if self._can else None


def lengths(batch: RaggedBatch, inputs: Sequence[Array], which: int) -> list[Array]:
    values = np.full((1, 1), 100 * which + batch.num_tokens, np.float32)
    return [values, values + np.float32(0.5)]


def test_runs_of_one_request_are_recorded_at_once() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    recorded = []
    for count in (1, 1, 2, 1, 2, 2):
        assert [float(each[0, 0]) for each in runs(batch(count))] == [count, count + 0.5]
        recorded.append(runs.was_recorded)
    assert recorded == [True, False, True, False, False, False]
    assert [made.count for made in ops.made] == [2, 2]
    assert float(runs(batch(1), which=3)[0][0, 0]) == 301
    assert [made.count for made in ops.made] == [2, 2, 0]


def test_requests_are_one_run_however_their_tokens_are_divided() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    for counts in ((1, 1, 3), (3, 2), (5,), (1, 3, 1)):
        runs(ragged(*counts))
    assert [made.count for made in ops.made] == [3]


def test_where_starts_matter_several_requests_with_drafts_when_they_have_come_again() -> None:
    ops = Ops(of_starts=True)
    runs = RepeatedRuns(ops, lengths)
    for _ in range(2):
        runs(ragged(1, 1, 1))
    assert [made.count for made in ops.made] == [1]
    recorded = []
    for _ in range(3):
        runs(ragged(1, 3, 1))
        recorded.append(runs.was_recorded)
    assert recorded == [False, True, False]
    assert [made.count for made in ops.made] == [1, 1]


def test_prompts_of_one_length_when_one_has_come_again() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    for count in range(2, 12):
        runs(prompt(count))
    assert not ops.made
    for _ in range(2):
        runs(prompt(5))
    assert [made.count for made in ops.made] == [1]


def test_inputs_of_other_shapes_are_another_run() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    for width in (1, 2, 1, 2):
        runs(batch(1), [np.zeros((1, width), np.float32)])
    assert len(ops.made) == 2


def test_what_cannot_be_recorded_is_not_tried_again() -> None:
    ops = Ops(can=False)
    runs = RepeatedRuns(ops, lengths)
    for count in (1, 1, 2, 3):
        assert float(runs(batch(count))[0][0, 0]) == count
    assert len(ops.made) == 1
    runs(batch(1), which=1)
    assert len(ops.made) == 2


def test_long_runs_and_those_of_other_backends_are_computed_anew() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    eager = RepeatedRuns(ops, lengths, repeats=False)
    plain = RepeatedRuns(ReferenceOps(), lengths)
    for _ in range(3):
        runs(batch(MOST_TOKENS + 1))
        eager(batch(1))
        plain(batch(1))
    assert not ops.made


def test_a_recording_that_is_refused_is_made_again() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    runs(batch(1))
    ops.made[0].error = ValueError("position 4096 is not in [0, 4096)")
    assert float(runs(batch(1))[0][0, 0]) == 1
    for _ in range(3):
        runs(batch(1))
    assert [made.count for made in ops.made] == [1, 2]


def test_a_step_that_was_recorded_teaches_no_costs() -> None:
    counts = []
    for eager in (True, False):
        ops = real_ops("cpu")
        config = EngineConfig(
            num_gpu_blocks_override=16,
            block_size=16,
            speculative_config="none",
            enforce_eager=eager,
        )
        model = load_model(tiny_checkpoint("llama", "F32"), ops)
        core = EngineCore(model, ops, config, num_tokens=NUM_TOKENS)
        core.submit(submit("r", [1, 2, 3], temperature=0, max_tokens=12))
        assert len(drain(core)["r"].token_ids) == 12
        counts.append(core._costs.num_seen)
    eager_count, repeated_count = counts
    assert eager_count == 11 and repeated_count == 10


def test_the_recording_that_waited_longest_goes() -> None:
    ops = Ops()
    runs = RepeatedRuns(ops, lengths)
    for which in range(MOST_RECORDINGS):
        runs(batch(1), which=which)
    runs(batch(1), which=0)
    runs(batch(1), which=MOST_RECORDINGS)
    runs(batch(1), which=0)
    assert ops.made[0].count == 2
    before = len(ops.made)
    runs(batch(1), which=1)
    assert len(ops.made) == before + 1
