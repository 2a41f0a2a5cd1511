"""Heads: what the target computed reaches them whole, and nothing they say changes an answer."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from headrace.engine.core import EngineCore
from headrace.engine.drafts.heads.head_drafts import READY_TOKENS, HeadDrafts
from headrace.engine.drafts.passes.features import KEPT_BYTES, KEPT_TOKENS, Features
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.plan import Row
from tests.engine.drafts.test_drafts import check_same, core_of, requests, run
from tests.engine.grammars.test_grammars import vocabulary
from tests.engine.mock import (
    NUM_TOKENS,
    VOCAB,
    Collected,
    MockHead,
    MockModel,
    MockOps,
    drain,
    make_core,
    make_head,
    submit,
)
from tests.engine.plans import prompt

ALWAYS = '{"method": "mtp", "adaptive": false, "num_speculative_tokens": 4}'


def drafting(head: HeadDrafts, model: MockModel | None = None, **settings: object) -> EngineCore:
    return make_core(
        model, vocabulary=vocabulary, draft=head, speculative_config=ALWAYS, **settings
    )


def alone(submits: list[Submit], **model: object) -> dict[str, Collected]:
    return run(
        make_core(MockModel(**model), vocabulary=vocabulary, speculative_config="none")  # type: ignore[arg-type]
        if model
        else core_of(speculative_config="none"),
        submits,
    )


def share_of(core: EngineCore) -> float:
    stats = core.stats()
    assert stats.spec_draft_tokens > 0
    return stats.spec_accepted_tokens / stats.spec_draft_tokens


def test_each_request_knows_its_own_guesses() -> None:
    core = drafting(make_head(MockHead(4)))
    got = run(core, [submit(str(at), prompt(9, at), max_tokens=40) for at in range(3)])
    last = [each.outputs[-1] for each in got.values()]
    assert sum(each.draft_tokens for each in last) == core.stats().spec_draft_tokens > 0
    assert sum(each.accepted_tokens for each in last) == core.stats().spec_accepted_tokens > 0


def test_a_head_that_knows_the_next_token_is_always_right() -> None:
    """Of every kind of request; each entry is made of the token before it, with none left out."""
    submits = requests(10, 3)
    head = make_head(MockHead())
    core = drafting(head, num_gpu_blocks_override=64)
    expected = alone(submits)
    for _ in range(2):  # the second time, prefixes are cached
        check_same(run(core, submits), expected)  # type: ignore[arg-type]
    assert share_of(core) == 1
    assert core.stats().spec_draft_failures == head.isolation.num_failed == 0


def test_what_is_kept_for_the_next_step_is_of_the_token_before_it() -> None:
    """The mock looks whether it is; requests come and go, prefixes are cached, prompts are cut."""
    submits = [*requests(10, 3), submit("long", prompt(400), max_tokens=30)]
    head = make_head(MockHead(3, num_kept=2))
    core = drafting(head, num_gpu_blocks_override=64)
    expected = alone(submits)
    for _ in range(2):
        check_same(run(core, submits), expected)  # type: ignore[arg-type]
    assert core.stats().spec_draft_failures == head.isolation.num_failed == 0 < share_of(core)
    assert not head._kept and not head._carried


@pytest.mark.parametrize("wrong_every", [1, 2, 5])
def test_a_head_that_is_wrong_changes_no_answer(wrong_every: int) -> None:
    submits = requests(8, 5)
    head = make_head(MockHead(wrong_every))
    core = drafting(head)
    check_same(run(core, submits), alone(submits))
    assert share_of(core) < 1 and head.isolation.num_failed == 0


@pytest.mark.load
@pytest.mark.parametrize("windows", [(0,), (17, 0)])
def test_no_answer_of_many_changes_where_blocks_are_short(windows: tuple[int, ...]) -> None:
    submits = requests(40, 3)
    head = make_head(MockHead(3), num_blocks=30)
    core = drafting(
        head, MockModel(windows=windows), num_gpu_blocks_override=9 * len(windows),
        max_num_batched_tokens=24,
    )  # fmt: skip
    check_same(run(core, submits, each_step=8), alone(submits, windows=windows))  # type: ignore[arg-type]
    stats = core.stats()
    assert stats.num_preemptions > 0 < stats.prefix_hits_tokens
    assert stats.spec_draft_tokens > 0 == head.isolation.num_failed
    assert head.cache.kv.num_owned == 0
    assert not head.features._held  # nothing is kept of requests that have ended


def test_of_a_long_prompt_the_last_tokens_are_read() -> None:
    mock = MockHead()
    core = drafting(make_head(mock), max_num_batched_tokens=512)
    submits = [submit("a", prompt(700), max_tokens=30)]
    for each in submits:
        core.submit(each)
    check_same(drain(core), alone(submits))  # type: ignore[arg-type]
    assert share_of(core) == 1
    assert sum(batch.num_tokens for batch in mock.batches) < KEPT_TOKENS + 200


def test_a_prompt_that_others_share_is_read_once() -> None:
    mock = MockHead()
    core = drafting(make_head(mock))
    stem = prompt(48)
    read = []
    for name in "ab":
        core.submit(submit(name, [*stem, ord(name) % 40], max_tokens=20))
        before = len(mock.batches)
        drain(core)
        read.append(mock.batches[before].num_tokens)
    assert read == [49, 2]
    assert mock.num_stood_in == 1  # of the last token of the prefix, which was not computed again


def test_a_prefix_whose_features_are_gone_is_begun_in_the_middle() -> None:
    mock = MockHead()
    head = make_head(mock)
    core = drafting(head)
    stem = prompt(64)
    core.submit(submit("a", stem, max_tokens=20))
    drain(core)
    head.clear()  # the head's own cache alone
    core.submit(submit("b", [*stem, 5, 6, 7], max_tokens=20))
    before = len(mock.batches)
    drain(core)
    assert mock.batches[before].num_tokens < 20
    assert int(mock.batches[before].positions[0]) == 0
    assert head.isolation.num_failed == 0 and mock.num_stood_in == 1


def test_requests_that_want_none_leave_nothing() -> None:
    head = make_head(MockHead())
    core = drafting(head)
    core.submit(submit("a", prompt(20), max_tokens=20, speculation=False))
    for _ in range(5):
        core.step()
    assert not head.features._held
    assert core.stats().spec_draft_tokens == 0


def test_a_head_that_gives_no_distribution_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    submits = [submit(str(at), prompt(9, at), max_tokens=40) for at in range(4)]
    head = make_head(MockHead(nan_on=11))
    core = drafting(head)
    with caplog.at_level(logging.WARNING):
        check_same(run(core, submits), alone(submits))
    assert core.stats().spec_draft_failures > 0
    assert "gets no more drafts" in caplog.text


def test_features_follow_rows_that_are_computed_again() -> None:
    ops = MockOps()
    features = Features(ops, (0,), 2)  # type: ignore[arg-type]
    request = Request("a", list(range(400)), 400, SamplingParams(), 500)

    def note(start: int, count: int, mark: float) -> None:
        positions = np.arange(start, start + count, dtype=np.float32)
        values = np.stack([positions, np.full(count, mark, np.float32)], 1)
        features.note([Row(request, start, count, False)], np.array([0, count], np.int32), values)

    def held(start: int, stop: int) -> list[tuple[float, float]]:
        parts = features.take(request, start, stop)
        return [(row[0], row[1]) for part in parts for row in part.tolist()]

    note(0, 10, 1)
    note(10, 3, 2)  # of which two were drafts that were rejected
    note(11, 2, 3)
    assert held(8, 13) == [(8, 1), (9, 1), (10, 2), (11, 3), (12, 3)]
    features.drop_before(request, 10)
    assert features.start(request) == 9 and held(10, 12) == [(10, 2), (11, 3)]
    assert held(9, 11) == [(10, 2), (10, 2)]  # which stands in for the one before
    note(2, 4, 4)  # preempted, and computed again from there
    assert features.start(request) == 1 and held(2, 6) == [(at, 4) for at in range(2, 6)]
    note(6, 390, 5)
    assert features.start(request) == 395 - KEPT_TOKENS
    note(396, 3, 6)
    assert features.start(request) == 398 - KEPT_TOKENS and features.reaches(request)
    with pytest.raises(IndexError):
        features.take(request, 0, 5)
    features.forget(request)
    assert not features.reaches(request)


def test_what_is_held_is_bounded_however_many_there_are() -> None:
    """Copies, so that no step's features live on by a row of it; the more requests, the less."""
    width = 1 << 12
    ops = MockOps()
    features = Features(ops, (0,), width)  # type: ignore[arg-type]
    own = [Request(str(at), [0] * 600, 600, SamplingParams(), 700) for at in range(600)]

    def note(rows: list[Row]) -> None:
        starts = np.cumsum([0, *(row.num_tokens for row in rows)]).astype(np.int32)
        features.note(rows, starts, np.zeros((int(starts[-1]), width), np.float32))

    def held_bytes() -> int:
        parts = [part for held in features._held.values() for part in held.parts]
        return sum(part.values.base.nbytes if part.values.base is not None else part.values.nbytes
                   for part in parts)  # fmt: skip

    for step in range(3):
        note([Row(own[0], step, 1, True), Row(own[1], 200 * step, 200, False)])
    assert held_bytes() <= 4 * width * (3 + KEPT_TOKENS)
    for request in own:
        note([Row(request, 300, 40, False)])
    assert held_bytes() <= 2 * KEPT_BYTES
    assert len(features._held) < len(own)  # the others have none
    for request in own:
        features.forget(request)
    assert not features._held


def test_what_nobody_watches_is_not_computed_and_a_head_begins_where_it_is_watched() -> None:
    model, mock = MockModel(), MockHead()
    head = make_head(mock)
    core = drafting(head, model)
    (request,) = begun(core, [submit("a", prompt(40), max_tokens=60)])
    head.watch(())
    before = core.stats().spec_draft_tokens
    for _ in range(3):
        core.step()
    assert not head.features._held and core.stats().spec_draft_tokens == before
    assert head.num_missing(request) == READY_TOKENS
    head.watch((request,))
    num_before = len(request.token_ids)
    while head.num_missing(request):
        core.step()
    # Its first entry is of the first token that was computed since.
    start = len(request.token_ids) - num_before
    assert start <= READY_TOKENS + 5 and head.features.start(request) >= num_before - 2
    drain(core)
    assert core.stats().spec_accepted_tokens > 0 == head.isolation.num_failed


def begun(core: EngineCore, submits: list[Submit]) -> list[Request]:
    """The requests of an engine that has read their prompts."""
    for each in submits:
        core.submit(each)
    while any(request.first_token_s is None for request in core._requests.values()):
        core.step()
    return list(core._requests.values())


def test_a_head_that_never_comes_is_left_alone() -> None:
    """It is watched for tries, and for nothing between them."""
    head = make_head(MockHead(1))
    head.features._clock = lambda: 0.0  # a step of the mock takes two readings of its clock
    core = make_core(draft=head, speculative_config='{"method": "mtp"}')
    core._clock = head._clock  # passes are part of steps
    core.submit(submit("a", prompt(20), max_tokens=900))
    watched, steps = 0, 0
    while core.has_work:
        core.step()
        steps += 1
        watched += bool(head.features._held)
    assert 0 < watched < steps / 3
    assert core.stats().spec_draft_tokens < steps / 10


class Failing(MockOps):
    """A backend whose sampler fails once."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self.at = at

    def sample(self, logits: Any, rows: Any, num_tokens: int) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise RuntimeError("once")
        return super().sample(logits, rows, num_tokens)


@pytest.mark.parametrize("at", [1, 2, 3, 7])
def test_rows_that_are_computed_again_read_what_was_there(at: int) -> None:
    submits = [submit(str(name), prompt(9, name), max_tokens=20) for name in range(3)]
    head = make_head(MockHead(), ops=Failing(at))
    core = drafting(head)
    check_same(run(core, submits), alone(submits))
    assert head.isolation.num_failed == 1 and core.stats().spec_draft_failures == 0
    assert share_of(core) == 1


class Narrow(MockHead):
    """A head that knows the even ids alone."""

    def forward(self, batch: Any, kv: Any, states: Any) -> Any:
        logits, following = super().forward(batch, kv, states)
        logits[:, 1::2] = -np.inf
        return logits, following


def test_a_place_where_it_knows_no_token_that_may_come_is_no_fault() -> None:
    submits = requests(10, 3)
    head = make_head(Narrow())
    core = drafting(head)
    check_same(run(core, submits), alone(submits))
    stats = core.stats()
    assert stats.spec_draft_failures == 0 < stats.spec_accepted_tokens < stats.spec_draft_tokens


def test_a_request_that_allows_none_of_its_tokens_is_no_fault_and_a_nan_is() -> None:
    odd = tuple(range(1, NUM_TOKENS, 2))
    submits = [
        submit("odd", prompt(9), max_tokens=20, allowed_token_ids=odd),
        submit("some", prompt(9), max_tokens=20, allowed_token_ids=(2, 4, *odd)),
    ]
    expected = alone(submits)
    core = drafting(make_head(Narrow()))
    check_same(run(core, submits), expected)
    assert core.stats().spec_draft_failures == 0 < core.stats().spec_draft_tokens
    core = drafting(make_head(Narrow(nan_on=expected["some"].token_ids[0])))
    check_same(run(core, submits), expected)
    assert core.stats().spec_draft_failures == 1


class Block(MockHead):
    """A head that gives a block of drafts in one pass."""

    block_drafts = 4

    def begin(
        self, batch: Any, kv: Any, features: Any, before: Any, most: int
    ) -> tuple[Any, tuple[Any, ...]]:
        logits, following = self.forward(batch, kv, features)
        ends = batch.query_start[1:] - 1
        place = np.clip(np.searchsorted(batch.logit_rows, ends), 0, max(0, len(logits) - 1))
        places: list[Any] = []
        now = logits[place] if len(logits) else np.zeros((len(ends), VOCAB), np.float32)
        for _ in range(1, min(most, self.block_drafts)):
            following, now = self.followed(following, np.argmax(now[:, :NUM_TOKENS], 1))
            places.append(now)
        return logits, tuple(places)

    def go_on(self, batch: Any, kv: Any, carried: Any, place: int) -> tuple[Any, tuple[Any, ...]]:
        assert 0 < place < self.block_drafts and len(carried[0]) == batch.num_requests
        return carried[0], carried[1:]


def test_a_block_is_drawn_from_place_by_place() -> None:
    """Right at every place where the draws before it were those that the block was made for; one
    pass a step, whatever the rest of the rows do."""
    submits = [
        *(submit(str(at), prompt(9 + at, at), max_tokens=30 + 7 * at) for at in range(4)),
        submit("penalty", prompt(20), max_tokens=40, repetition_penalty=1.2),
        submit("drawn", prompt(21), max_tokens=40, temperature=0.8, seed=3, logprobs=2),
    ]
    mock = Block()
    head = make_head(mock)
    core = drafting(head)
    check_same(run(core, submits[:4]), alone(submits[:4]))  # type: ignore[arg-type]
    assert share_of(core) == 1
    check_same(run(core, submits, each_step=2), alone(submits))  # type: ignore[arg-type]
    assert core.stats().spec_draft_failures == head.isolation.num_failed == 0
    assert len(head.passes) == 1 and head.num_passes(4) == 1


class Short(Block):
    """One that was made for 64 positions, which no block goes beyond."""

    max_positions = 64

    def begin(
        self, batch: Any, kv: Any, features: Any, before: Any, most: int
    ) -> tuple[Any, tuple[Any, ...]]:
        assert batch.positions.max() + self.block_drafts + 1 < self.max_positions
        return super().begin(batch, kv, features, before, most)


def test_a_block_ends_before_the_longest_text_does() -> None:
    mock = Short()
    core = drafting(make_head(mock))
    submits = [submit("a", prompt(20), max_tokens=100)]
    check_same(run(core, submits), alone(submits))
    assert share_of(core) == 1
    assert max(int(batch.positions.max()) for batch in mock.batches) > 50


def test_a_block_without_a_distribution_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    submits = [submit(str(at), prompt(9, at), max_tokens=40) for at in range(4)]
    head = make_head(Block(nan_on=11))
    core = drafting(head)
    with caplog.at_level(logging.WARNING):
        check_same(run(core, submits), alone(submits))
    assert core.stats().spec_draft_failures > 0
    assert "gets no more drafts" in caplog.text


@pytest.mark.parametrize("at", [1, 2, 3, 5, 7])
def test_a_block_whose_sampler_fails_once_is_drawn_from_again(at: int) -> None:
    submits = [submit(str(name), prompt(9, name), max_tokens=20 + name) for name in range(3)]
    head = make_head(Block(), ops=Failing(at))
    core = drafting(head)
    check_same(run(core, submits), alone(submits))
    assert head.isolation.num_failed == 1 and core.stats().spec_draft_failures == 0
    assert share_of(core) == 1
