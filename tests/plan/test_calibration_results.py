"""Results as they are read and kept: steps of a test, lines of `bench engine`, grid and book."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from headrace.errors import ConfigError
from headrace.plan.calibration.engine_rows import counter_of, engine_lines, measured_of_lines
from headrace.plan.calibration.measurements import (
    EngineTest,
    Steps,
    joined,
    kind_of,
    read_measured,
    steps_of,
    write_measured,
)
from headrace.plan.calibration.measuring import Book, PlannedTest, grid, measure, seconds_of
from headrace.plan.calibration.reading import read_engine_results
from headrace.plan.model.model_shape import ModelShape, shape_of_catalog, shape_of_checkpoint
from headrace.plan.step.step import StepCounter, Storage
from headrace.telemetry.work import Work
from tests.plan.calibrations import CATALOG, SMALL, TESTS, TRUE, measured
from tests.tiny import write_tiny_gguf

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)
SHAPE = shape_of_catalog(CATALOG.models[SMALL])
COUNTER = StepCounter(SHAPE, Storage(bytes_per_weight=2.0))
LINE = {
    "model": "m.gguf", "version": "0.1.0", "measured_at": "2026-11-22T08:00:00+00:00", "cpu": "c",
    "cpus": 2, "memory_bytes": 10, "step_tokens": 512, "kv_cache_dtype": "bf16",
    "cpu_level": "avx2", "threads": 2, "test": "pp512", "prompt": 512, "new": 0, "batch": 1,
    "depth": 0, "tokens_per_s": 700.0, "least_tokens_per_s": 690.0, "most_tokens_per_s": 710.0,
    "repeats": 3, "model_type": "qwen3", "mbu": None,
}  # fmt: skip


def works(test: EngineTest, step_tokens: int = 512) -> tuple[Steps, ...]:
    return steps_of(COUNTER, test, step_tokens)


def test_a_prompt_is_cut_into_steps() -> None:
    first, second, last = works(EngineTest(1100, 0, 1, 64))
    assert first.work == COUNTER.prefill(512, 64, last=False)
    assert second.work == COUNTER.prefill(512, 576, last=False)
    assert last.work == COUNTER.prefill(76, 1088)
    assert {first.count, second.count, last.count} == {1}


def test_decoding_is_steps_of_one_size() -> None:
    (steps,) = works(EngineTest(0, 33, 4, 96))
    # One token was computed before; half way through 16 more are there.
    assert steps == Steps(33, COUNTER.decode(4, 97 + 16))


def test_what_a_step_has_left_goes_to_the_next_prompt() -> None:
    first, second = works(EngineTest(300, 0, 2, 0))
    whole = COUNTER.prefill(300, 0)
    assert first.work == whole.beside(COUNTER.prefill(212, 0, last=False))
    assert second.work == COUNTER.prefill(88, 212)
    assert first.work.weight_bytes == pytest.approx(whole.weight_bytes, rel=0.01), "read once"


def test_requests_decode_while_prompts_of_others_come() -> None:
    steps = works(EngineTest(512, 2, 2, 0))
    computed = [one.work.product_values / COUNTER.decode(1, 0).product_values for one in steps]
    # A prompt; its decode and 511 of the other; both, one of them its last of the prompt; the rest.
    assert computed == pytest.approx([512, 512, 2, 1, 1])
    logits = sum(one.count * one.work.logits for one in steps) / SHAPE.vocabulary_tokens
    assert logits == pytest.approx(2 * 3)


def test_the_kind_is_that_of_most_bytes() -> None:
    assert kind_of({"F32": 10, "Q4_K": 300, "Q6_K": 200}) == "Q4_K"


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.json"
    sets = (measured(), measured(kind="BF16", tests=TESTS[:3]))
    write_measured(path, sets)
    assert read_measured(path) == sets
    assert read_engine_results([path], lambda name: SHAPE) == sets


def test_of_a_test_that_stands_twice_the_later_counts() -> None:
    one = measured(tests=TESTS[:2])
    later = msgspec.structs.replace(one.rows[0], tokens_per_s=1.0)
    both = joined([one, msgspec.structs.replace(one, rows=(later,))])
    assert both == (msgspec.structs.replace(one, rows=(later, one.rows[1])),)


def lines(tmp_path: Path, *rows: dict[str, object]) -> Path:
    path = tmp_path / "lines.json"
    path.write_text("".join(json.dumps({**LINE, **row}) + "\n" for row in rows))
    return path


def test_lines_of_bench_engine(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path, "llama", "Q8_0")
    asked: list[str] = []

    def shape_of(name: str) -> ModelShape:
        asked.append(name)
        return shape_of_checkpoint(model)

    path = lines(tmp_path, {}, {"prompt": 0, "new": 32, "batch": 8}, {"threads": 1})
    two, one = read_engine_results([path], shape_of)
    assert asked == ["m.gguf", "m.gguf"] and (two.threads, one.threads) == (2, 1)
    assert [row.test for row in two.rows] == [EngineTest(512, 0, 1, 0), EngineTest(0, 32, 8, 0)]
    assert two.kind == "Q8_0" and two.weight_bytes == shape_of_checkpoint(model).total_weight_bytes
    counter = counter_of(shape_of_checkpoint(model), "bf16")
    assert two.rows[1].steps == steps_of(counter, two.rows[1].test, 512)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"tokens_per_s": 0}, "line 1: tokens_per_s is 0"),
        ({"batch": 0}, "line 1: prompt, new, batch and depth"),
        ({"batch": "x"}, "line 1: is not a result of `headrace bench engine --json`"),
        ({"model": ""}, "name it with --model"),
        ({"measured_at": ""}, "does not state where and when"),
        ({"kv_cache_dtype": "q4"}, "kv_cache_dtype is 'q4'; known are f32"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, row: dict[str, object], says: str) -> None:
    path = lines(tmp_path, row)
    with pytest.raises(ConfigError, match=says):
        read_engine_results([path], lambda name: SHAPE)


def test_a_model_can_be_named_for_lines_without_one(tmp_path: Path) -> None:
    path = lines(tmp_path, {"model": ""})
    shape = shape_of_checkpoint(write_tiny_gguf(tmp_path, "llama", "Q8_0"))
    found = measured_of_lines(path, engine_lines(path, path.read_bytes()), lambda _: shape, "m")
    assert found[0].kind == "Q8_0"


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_engine_results([tmp_path / "absent"], lambda name: SHAPE)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_engine_results([empty], lambda name: SHAPE)
    newer = tmp_path / "newer.json"
    newer.write_text('{"headrace_measured":99,"measured":[]}')
    with pytest.raises(ConfigError, match="format 99; this version reads 1"):
        read_measured(newer)
    with pytest.raises(ConfigError, match="does not state how weights are stored"):
        counter_of(SHAPE, "bf16")


def test_the_grid_covers_what_plans_are_asked_for() -> None:
    tests = [one.test for one in grid()]
    assert {one.batch for one in tests} == {1, 2, 4, 8, 16, 32}
    assert max(one.prompt for one in tests) == max(one.depth for one in tests) == 8192
    assert all(one.depth % 64 == 0 for one in tests), "blocks of any size"
    assert len(set(tests)) == len(tests)
    assert {one.test.positions <= 700 for one in grid(most_positions=700)} == {True}
    assert {one.repeats for one in grid(1)} == {1}
    assert not any(one.warm_up for one in grid() if one.test.tokens > 2000)
    assert {max(one.test.prompt, one.test.depth) <= 512 for one in grid(longest=512)} == {True}


def test_how_long_it_takes_is_known_before() -> None:
    counter = StepCounter(SHAPE, Storage(bytes_per_weight=1.0625))
    planned = [
        PlannedTest(EngineTest(0, 32, 2, 512), 2, True),
        PlannedTest(EngineTest(0, 32, 4, 512), 2, False),
    ]
    rates = Work(1e9, 1e10)

    def of(test: EngineTest) -> float:
        return sum(
            one.count * (one.work.work.bytes / 1e9 + one.work.work.operations / 1e10)
            for one in steps_of(counter, test, 512)
        )

    # Two requests' context is there already when four come.
    expected = 4 * of(planned[0].test) + 2 * of(planned[1].test) + 2 * of(EngineTest(512, 0, 2, 0))
    assert seconds_of(planned, counter, 512, rates) == pytest.approx(expected)
    calibrated = seconds_of(grid(), counter, 512, TRUE["Q8_0"])
    assert 60 < calibrated < 300, "a few minutes of a model of 0.6B on two cores"


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, model = tmp_path / "book.json", measured(tests=())
    planned = grid(1, most_positions=300)
    ran: list[EngineTest] = []

    def run(test: EngineTest, _warm_up: bool, _number: int) -> float:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(test)
        return 100.0

    with pytest.raises(KeyboardInterrupt):
        measure(Book(path), model, COUNTER, planned, run, now=lambda: NOW)
    (kept,) = read_measured(path)
    assert [row.test for row in kept.rows] == ran and kept.measured_at == NOW.isoformat()
    ran.clear()
    book = Book(path)
    measure(book, model, COUNTER, planned[:4], run, now=lambda: NOW)
    assert ran == [one.test for one in planned[2:4]]
    assert len(book.done(model)) == 4
    other = msgspec.structs.replace(model, threads=1)
    assert book.done(other) == () and book.beside(other) == ()
    book.forget(model)
    assert book.done(model) == () and len(read_measured(path)) == 1


def test_tests_are_repeated_in_rounds(tmp_path: Path) -> None:
    """A slow minute spoils a run of several tests, and no median."""
    path, model = tmp_path / "book.json", measured(tests=())
    short, long = EngineTest(32, 0, 1, 0), EngineTest(64, 0, 1, 0)
    planned = [PlannedTest(short, 3, True), PlannedTest(long, 1, False)]
    ran: list[tuple[EngineTest, bool]] = []
    ended: list[EngineTest] = []

    def run(test: EngineTest, warm_up: bool, number: int) -> float:
        assert number == ended.count(test), "runs of a test have prompts of their own"
        ran.append((test, warm_up))
        if len(ran) == 4:
            raise KeyboardInterrupt
        ended.append(test)
        return 10.0 if len(ran) == 3 else 100.0

    with pytest.raises(KeyboardInterrupt):
        measure(Book(path), model, COUNTER, planned, run, now=lambda: NOW)
    assert ran[:3] == [(short, True), (long, False), (short, True)]
    first = {row.test: row for row in Book(path).done(model)}
    assert first[short].runs_tokens_per_s == (100.0, 10.0) and first[long].repeats == 1
    measure(Book(path), model, COUNTER, planned, run, now=lambda: NOW)
    assert ran[4:] == [(short, True)], "it goes on with the run that is missing"
    row = next(one for one in Book(path).done(model) if one.test == short)
    assert (row.tokens_per_s, row.least_tokens_per_s, row.repeats) == (100.0, 10.0, 3)
