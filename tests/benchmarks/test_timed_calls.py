"""Programs that time products and attention: what they call, and what they tell of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import attention_calls, kernels, product_rows
from benchmarks.attention_calls import Line as AttentionLine
from benchmarks.attention_calls import Variant, Work, filled, tables_of
from benchmarks.product_rows import Line, Shape
from benchmarks.turns import LEAST_TURNS, Limits, in_turns
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape

LIMITS = Limits(read=4e10, f32=2e11, bf16=5e11, int8=1e12, attention=5e11)
HEADS = AttentionShape(4, 2, 16, 0.25)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits without the half gigabyte that is read to measure them."""
    for program in (product_rows, attention_calls):
        monkeypatch.setattr(program, "measured_limits", lambda *_: LIMITS)


def test_calls_take_turns_and_each_turn_counts_once() -> None:
    """A clock of 1 s a reading: a turn of two calls has a second of each."""
    ticks, made = count(), list[str]()
    calls = {name: lambda name=name: made.append(name) for name in "ab"}
    taken = in_turns(calls, lambda: float(next(ticks)), seconds=7.0)
    assert taken == {"a": [1.0] * 7, "b": [1.0] * 7}
    timed = made[-4 * 7 :]
    assert timed == ["a", "a", "b", "b"] * 7
    few = in_turns(calls, lambda: float(next(ticks)), seconds=0.0)
    assert len(few["a"]) == LEAST_TURNS


def test_short_calls_are_timed_by_hundreds() -> None:
    """A call of 2 us lasts 100 times as long as is timed at once, and the time is that of one."""
    now, calls = [0.0], [0]

    def call() -> None:
        now[0] += 2e-6
        calls[0] += 1

    (times,) = in_turns({"a": call}, lambda: now[0], seconds=0.0).values()
    assert times == pytest.approx([2e-6] * LEAST_TURNS)
    assert calls[0] == 3 * 2 + LEAST_TURNS * (1 + 100)


def test_a_tile_leaves_out_what_a_call_takes_beside() -> None:
    line = Line("Q8_0", 4, "avx512", Shape(64, 48), 3000, 7e-6, 8e-6, 3e-6, LIMITS, True)
    assert line.shape.tiles == 6
    assert line.tile_ns == pytest.approx(1e3)  # 4 us for two panels of two tiles
    assert line.gops == pytest.approx(2 * 4 * 64 * 48 / 7e3)
    assert line.read_gb == pytest.approx(3 / 7)
    assert line.share == pytest.approx(line.gops / 1000)
    assert replace(line, codec="BF16").share == pytest.approx(line.gops / 500)
    assert replace(line, codec="F8_E4M3").share == pytest.approx(line.gops / 200)
    assert replace(line, shape=Shape(64, 16)).tile_ns is None


@pytest.mark.parametrize("kind", ["Q8_0", "F8_E4M3"])
def test_products_are_timed_at_each_level(limited: None, kind: str) -> None:
    levels = {"portable": CpuOps("portable", 1), "auto": CpuOps("auto", 1)}
    found = [*product_rows.lines(levels, kind, Shape(64, 48), (1, 3), seconds=0.0)]
    assert [(line.rows, line.level) for line in found] == [
        (1, "portable"), (1, "auto"), (3, "portable"), (3, "auto"),
    ]  # fmt: skip
    assert all(line.beside_s > 0 and 0 < line.least_s <= line.median_s for line in found)


def test_positions_of_a_prefix_are_read_once_where_they_are_shared() -> None:
    work = Work(HEADS, depth=100, tokens=4, requests=3, prefix=64)
    assert work.positions("apart") == 3 * 104
    assert work.positions("shared") == 64 + 3 * 40
    assert work.operations == 4 * 3 * (101 + 102 + 103 + 104) * 4 * 16
    tables, blocks = tables_of(work)
    assert blocks == 3 * 4 == len(np.unique(tables["apart"]))
    assert len(np.unique(tables["shared"])) == 2 + 3 * 2
    assert (tables["shared"][:, 2:] == tables["apart"][:, 2:]).all()


def test_attention_is_timed_over_each_kind_and_layout(limited: None) -> None:
    """Where results of the layouts differed, `lines` would raise."""
    work = Work(HEADS, depth=70, tokens=2, requests=2, prefix=64)
    found = attention_calls.lines(("auto",), ("bf16", "q8_0"), (1,), work, megabytes=0, seconds=0)
    level = CpuOps.levels()[0]
    assert [line.variant for line in found] == [
        Variant(level, kind, 1, blocks)
        for kind in ("bf16", "q8_0")
        for blocks in ("apart", "shared")
    ]
    assert found[0].times_as_fast == 1
    assert found[0].read_bytes == 2 * 72 * 2 * 2 * 16 * 2
    assert found[2].read_bytes == 2 * 72 * 2 * 2 * (16 + 4)


def test_a_share_is_of_what_the_kind_is_multiplied_by() -> None:
    """Whatever the level is called: its probes tell what it multiplies by."""
    work = Work(HEADS, depth=0, tokens=4, requests=1, prefix=0)
    shares = {
        kind: AttentionLine(
            Variant("any", kind, 1, "apart"), work, 1e-6, 1e-6, 1.0, 1, LIMITS
        ).share
        for kind in ("f32", "bf16", "q8_0")
    }
    assert shares["f32"] == pytest.approx(work.operations / 1e-6 / 2e11)
    assert shares["bf16"] == shares["q8_0"] == pytest.approx(work.operations / 1e-6 / 5e11)


def test_levels_go_through_the_layers_together(
    limited: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level that came to a layer behind another one would find it in a cache."""
    asked: list[int] = []
    attend = CpuOps.paged_attention

    def noted(
        ops: CpuOps, qkv: object, shape: object, kv: object, layer: int, *more: object
    ) -> Any:
        asked.append(layer)
        return attend(ops, qkv, shape, kv, layer, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(CpuOps, "paged_attention", noted)
    work = Work(HEADS, depth=31, tokens=1, requests=1, prefix=0)
    layer_mb = 32 * 2 * 16 * 2 * 2 / 1e6
    levels = ("auto", "portable")
    attention_calls.lines(levels, ("bf16",), (1,), work, megabytes=2.5 * layer_mb, seconds=0)
    assert len(asked) > 20
    assert asked == [turn % 3 for turn in range(len(asked))]


def test_other_results_of_a_layout_are_told(limited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the prefix of each request another one, sharing its blocks would be another context."""
    work = Work(HEADS, depth=64, tokens=1, requests=2, prefix=64)

    def apart(ops: CpuOps, kind: str, work: Work, megabytes: float) -> object:
        return filled(ops, "bf16", work._replace(prefix=0), megabytes)

    monkeypatch.setattr(attention_calls, "filled", apart)
    with pytest.raises(RuntimeError, match="other results"):
        attention_calls.lines(("auto",), ("bf16",), (1,), work, megabytes=0, seconds=0)


@pytest.mark.parametrize(
    ("program", "arguments", "told"),
    [
        (product_rows, ["--shape", "1024"], "1024 is not inputs x outputs"),
        (product_rows, ["--rows", "1,0"], "1,0 is not numbers from 1 on"),
        (attention_calls, ["--levels", "sse9"], "'sse9' is none of auto, "),
        (attention_calls, ["--heads", "3x2x64"], "3 q heads are no multiple of 2 kv heads"),
        (attention_calls, ["--prefix", "33"], "--prefix 33 is no multiple of 32"),
        (kernels, ["--only", "linear"], "--only linear: in none of products, attention, the_rest"),
    ],
)
def test_options_that_fit_nothing_are_refused(
    program: object, arguments: list[str], told: str
) -> None:
    result = CliRunner().invoke(program.main, arguments)  # type: ignore[attr-defined]
    assert result.exit_code == 2
    assert told in result.output
