"""Traces as requests: prompts as long as the rows say, sharing just the beginnings they say."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import combinations, islice, takewhile
from pathlib import Path
from typing import Literal

import pytest

from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.traces.formats import read_trace
from headrace.bench.traces.replay import TraceReplay
from headrace.bench.traces.row import Trace, TraceRow
from headrace.bench.workload import Tokenization
from headrace.errors import ConfigError
from tests.bench.prompts.tokenizers import OfBytes, OfWords, named, shipped


def common(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def of_blocks(*requests: tuple[int, tuple[int, ...]], block_tokens: int = 64) -> Trace:
    rows = [
        TraceRow(at_ns=at * 1000, prompt_tokens=tokens, output_tokens=5, blocks=blocks)
        for at, (tokens, blocks) in enumerate(requests)
    ]
    return Trace("made", "mooncake", rows, block_tokens=block_tokens)


BRANCHES = of_blocks(
    (200, (1, 2, 3, 4)),
    (192, (1, 2, 3)),
    (140, (1, 2, 5)),
    (256, (1, 6, 7, 8)),
    (65, (1, 9)),
    (64, (1,)),
    (70, (10, 11)),
    (200, (1, 2, 3, 4)),
    (130, (1, 12, 13)),
)


def prompts(
    trace: Trace, tokenization: Tokenization, form: Literal["text", "token_ids"]
) -> list[Sequence[int]]:
    replay = TraceReplay(trace, PromptWriter(tokenization), random.Random(1), form=form)
    items = list(replay)
    assert list(replay.missed()) == []
    found = [one.prompt.token_ids or tokenization.encode(one.prompt.text or "") for one in items]
    assert [len(one) for one in found] == [row.prompt_tokens for row in trace.rows]
    return found


def assert_shared(trace: Trace, found: list[Sequence[int]], slack: int) -> int:
    """How many pairs share anything."""
    shared = 0
    for one, other in combinations(range(len(found)), 2):
        rows = trace.rows[one], trace.rows[other]
        blocks = common(rows[0].blocks or (), rows[1].blocks or ())
        whole = min(blocks * (trace.block_tokens or 0), *(row.prompt_tokens for row in rows))
        assert abs(common(found[one], found[other]) - whole) <= slack
        shared += blocks > 0
    return shared


@pytest.mark.parametrize("make", [shipped, OfWords])
def test_ids_share_exactly_the_blocks(make: type[OfWords]) -> None:
    assert assert_shared(BRANCHES, prompts(BRANCHES, make(), "token_ids"), 0) == 28


@pytest.mark.parametrize("make", [shipped, OfWords])
def test_texts_share_the_blocks(make: type[OfWords]) -> None:
    assert assert_shared(BRANCHES, prompts(BRANCHES, make(), "text"), 1) == 28


def test_bytes_as_tokens() -> None:
    """No word is one token here, so that siblings are told apart by letters."""
    assert_shared(BRANCHES, prompts(BRANCHES, OfBytes(), "text"), 1)


def test_many_siblings_differ_at_once() -> None:
    trace = of_blocks(*((33, (0, at)) for at in range(1, 3000)), block_tokens=32)
    found = prompts(trace, shipped(), "token_ids")
    assert len({one[32] for one in found}) == 2999
    first = found[0][:32]
    assert all(one[:32] == first for one in found)


def test_more_siblings_than_tokens() -> None:
    trace = of_blocks(*((40, (0, at)) for at in range(1, 2000)), block_tokens=32)
    found = prompts(trace, OfBytes(), "token_ids")
    assert len({tuple(one[32:34]) for one in found}) == 1999


def test_going_through_it_again_gives_the_same() -> None:
    replay = TraceReplay(BRANCHES, PromptWriter(shipped()), random.Random(3))
    first = list(islice(replay, 4))
    assert list(replay)[:4] == first
    fresh = TraceReplay(BRANCHES, PromptWriter(shipped()), random.Random(3))
    assert list(fresh)[:4] == first


def plain(*lengths: tuple[int, int]) -> Trace:
    rows = [
        TraceRow(at_ns=at * 10**9, prompt_tokens=prompt, output_tokens=output)
        for at, (prompt, output) in enumerate(lengths)
    ]
    return Trace("made", "azure", rows)


@pytest.mark.parametrize("form", ["text", "token_ids"])
def test_lengths_and_times(form: Literal["text", "token_ids"]) -> None:
    trace = plain((374, 44), (1, 1), (1000, 7))
    replay = TraceReplay(
        trace,
        PromptWriter(shipped()),
        random.Random(1),
        form=form,
        options=RequestOptions(min_tokens=True, ignore_eos=True),
        salts=random.Random(2),
    )
    assert len(replay) == 3
    for (item, got), row in zip(replay.counted(), trace.rows, strict=True):
        assert (item.at_ns, item.prompt_tokens_asked, got) == (
            row.at_ns,
            row.prompt_tokens,
            row.prompt_tokens,
        )
        assert item.prompt.max_tokens == item.prompt.min_tokens == row.output_tokens
        assert item.output_tokens_asked == row.output_tokens


def test_fingerprints() -> None:
    trace, writer = plain((37, 4), (9, 2)), PromptWriter(shipped())

    def of(seed: int = 1, **changes: object) -> str:
        given = {"trace": trace, "writer": writer, **changes}
        return TraceReplay(source=random.Random(seed), **given).fingerprint  # type: ignore[arg-type]

    others = [
        of(2),
        of(trace=plain((37, 4), (9, 3))),
        of(writer=PromptWriter(OfWords())),
        of(form="token_ids"),
        of(options=RequestOptions(ignore_eos=True)),
        of(salts=random.Random(1)),
        of(salts=random.Random(2)),
    ]
    assert of() == of()
    assert len({of(), *others}) == 8


def test_what_cannot_be_replayed() -> None:
    with pytest.raises(ConfigError, match="a salt would make them differ"):
        TraceReplay(BRANCHES, PromptWriter(OfWords()), random.Random(1), salts=random.Random(1))


def test_lengths_without_times_leave_them_to_the_load() -> None:
    trace = Trace("made", "vidur-lengths", plain((5, 5)).rows, timed=False)
    (item,) = TraceReplay(trace, PromptWriter(OfWords()), random.Random(1))
    assert item.at_ns is None


def test_azures_conversations(shared_assets: Path) -> None:
    path = shared_assets / "traces" / "azure-2023" / "AzureLLMInferenceTrace_conv.csv"
    trace = read_trace(path, limit=40)
    replay = TraceReplay(trace, PromptWriter(shipped()), random.Random(1))
    assert list(replay.missed()) == []
    assert [one.at_ns for one in replay][:2] == [0, 4_314_579_000]


@pytest.mark.long
def test_mooncakes_conversations(shared_assets: Path) -> None:
    path = shared_assets / "traces" / "mooncake" / "conversation_trace.jsonl"
    trace = read_trace(path, limit=40)
    assert assert_shared(trace, prompts(trace, shipped(), "token_ids"), 0) > 700
    short = Trace("short", "mooncake", trace.rows[:6], block_tokens=512)
    assert_shared(short, prompts(short, shipped(), "text"), 1)
    qwen = named(shared_assets, "qwen2")
    assert_shared(short, prompts(short, qwen, "text"), 1)


def test_conversations_that_go_on(tmp_path: Path) -> None:
    """The readme's two requests, which share 12 blocks."""
    ids = [*range(46, 58)]
    lines = [
        {
            "timestamp": 27482,
            "input_length": 6955,
            "output_length": 52,
            "hash_ids": [*ids, 2353, 2354],
        },
        {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [*ids, 2366]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    trace = read_trace(path)
    assert trace.duration_ns == 3_053_000_000
    one, other = prompts(trace, shipped(), "token_ids")
    assert common(one, other) == 6144
