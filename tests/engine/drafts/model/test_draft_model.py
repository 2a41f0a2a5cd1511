"""A draft model: its drafts change no answer, and are right where it draws what the target does."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pytest

from headrace.engine.core import EngineCore
from headrace.engine.drafts.model.draft_model import DraftModelChain
from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    Judge,
    JudgedDraft,
    Verdict,
)
from headrace.engine.messages import Submit
from headrace.engine.request import Request
from headrace.errors import ConfigError
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.structured.grammar import Grammar
from tests.engine.conftest import Survived
from tests.engine.drafts.test_drafts import check_same, core_of, requests, run
from tests.engine.grammars.test_grammars import vocabulary
from tests.engine.mock import (
    VOCAB,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    make_draft,
    submit,
)
from tests.engine.plans import prompt

ALWAYS = '{"method": "draft_model", "model": "m", "adaptive": false, "num_speculative_tokens": 4}'


@dataclass
class OtherModel(MockModel):
    """A model that mostly says what the mock does, and otherwise the token behind it."""

    wrong_every: int = 3

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
        logits = super().forward(batch, kv)
        for index, row in enumerate(batch.logit_rows.tolist()):
            if int(batch.positions[row]) % self.wrong_every == 0:
                logits[index] = np.roll(logits[index], 1)
        return logits


def drafting(
    draft: DraftModelChain, model: MockModel | None = None, **settings: object
) -> EngineCore:
    return make_core(
        model, vocabulary=vocabulary, draft=draft, speculative_config=ALWAYS, **settings
    )


def judge_by(draft: DraftModelChain, judge: Judge | None) -> None:
    """Have all of its drafts judged."""
    inner = draft.guess

    def guess(wanted: Sequence[tuple[Request, int]], *rest: object, **named: object) -> object:
        return inner(wanted, judge=judge)

    draft.guess = guess  # type: ignore[assignment, method-assign]


def going_on(drafts: Sequence[JudgedDraft]) -> list[Verdict]:
    return ["on"] * len(drafts)


def share_of(core: EngineCore) -> float:
    stats = core.stats()
    assert stats.spec_draft_tokens > 0
    return stats.spec_accepted_tokens / stats.spec_draft_tokens


def alone(submits: Sequence[Submit], **model: object) -> dict[str, Collected]:
    return run(
        core_of(speculative_config="none")
        if not model
        else make_core(MockModel(**model), vocabulary=vocabulary, speculative_config="none"),  # type: ignore[arg-type]
        submits,
    )


@pytest.mark.parametrize("windows", [(0,), (17, 0)])
def test_the_target_as_its_own_draft_is_always_right(windows: tuple[int, ...]) -> None:
    """Of every kind of request: at any temperature, within grammars, with penalties and masks."""
    submits = requests(10, 3)
    core = drafting(
        make_draft(MockModel(windows=windows)), MockModel(windows=windows),
        num_gpu_blocks_override=64 * len(windows),
    )  # fmt: skip
    expected = alone(submits, windows=windows)
    for _ in range(2):  # the second time, prefixes are cached
        check_same(run(core, submits), expected)
    assert share_of(core) == 1
    assert core.stats().spec_draft_failures == 0


@pytest.mark.load
@pytest.mark.parametrize(
    ("windows", "of_draft"), [((0,), (0, 20)), ((17, 0), (0,)), ((17, 0), (9,))]
)
def test_no_answer_of_many_changes_where_blocks_are_short(
    windows: tuple[int, ...], of_draft: tuple[int, ...]
) -> None:
    submits = requests(40, 3)
    draft = make_draft(OtherModel(windows=of_draft), num_blocks=30 * len(of_draft))
    core = drafting(
        draft, MockModel(windows=windows), num_gpu_blocks_override=9 * len(windows),
        max_num_batched_tokens=24,
    )  # fmt: skip
    check_same(run(core, submits, each_step=8), alone(submits, windows=windows))
    stats = core.stats()
    assert stats.num_preemptions > 0 < stats.prefix_hits_tokens
    # Which requests run together is the threads' that compile grammars: where the two models see
    # different tokens of the past, none of the guesses may be right.
    assert stats.spec_accepted_tokens < stats.spec_draft_tokens
    assert stats.spec_accepted_tokens > 0 or of_draft != windows
    assert draft.cache.kv.num_owned == 0


@pytest.mark.parametrize("wrong_every", [1, 2, 5])
def test_a_draft_that_is_wrong_changes_no_answer(wrong_every: int) -> None:
    submits = requests(8, 5)
    core = drafting(make_draft(OtherModel(wrong_every=wrong_every)))
    check_same(run(core, submits), alone(submits))
    assert share_of(core) < 1


def test_all_requests_go_through_one_pass_for_each_place() -> None:
    submits = [submit(str(at), prompt(9, at), max_tokens=40) for at in range(6)]
    model = MockModel()
    core = drafting(make_draft(model))
    run(core, submits)
    sizes = [batch.num_requests for batch in model.batches]
    assert set(sizes) == {6}
    # Of each draft that came its K and V are there; what is missing is the last, and what was
    # drawn behind it.
    assert {batch.num_tokens for batch in model.batches[4:]} == {6, 12}


def test_a_long_prompt_is_read_in_parts_and_others_go_on_meanwhile() -> None:
    model = MockModel()
    core = drafting(make_draft(model), max_num_batched_tokens=512)
    long = prompt(3 * CATCH_UP_TOKENS + 5)
    for each in (submit("a", prompt(9, 1), max_tokens=60), submit("b", long, max_tokens=60)):
        core.submit(each)
    results = drain(core)
    assert results["b"].token_ids == alone([submit("b", long, max_tokens=60)])["b"].token_ids
    most = max(batch.num_tokens for batch in model.batches)
    assert most <= CATCH_UP_TOKENS + 16
    assert share_of(core) == 1


def test_a_pass_that_draws_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would be that of starting it, where a device computes beside the host."""
    draft, waited = make_draft(MockModel()), []
    monkeypatch.setattr(draft._ops, "wait_for", waited.append)
    core = drafting(draft, max_num_batched_tokens=512)
    core.submit(submit("long", prompt(2 * CATCH_UP_TOKENS + 5), max_tokens=8))
    drain(core)
    assert len(waited) == 2, "all parts of the prompt but the last, which draws"


def test_a_prompt_that_others_share_is_read_once() -> None:
    model = MockModel()
    core = drafting(make_draft(model), max_num_batched_tokens=512)
    stem = prompt(160)
    run(core, [submit(f"n{at}", stem, max_tokens=24, temperature=1.0, seed=7, choice=at)
               for at in range(4)])  # fmt: skip
    assert share_of(core) == 1
    read = sum(1 for position, _ in model.computed if position < 128)
    assert read < 2 * 128
    model.computed.clear()
    run(core, [submit("later", stem, max_tokens=24)])
    assert min(position for position, _ in model.computed) >= 128


def test_a_prefix_that_only_the_target_has_is_read_by_the_draft() -> None:
    stem = prompt(70)
    quiet = submit("quiet", stem, max_tokens=1)
    core = drafting(make_draft(MockModel()))
    run(core, [quiet])  # it gives one token, so that nothing is drafted
    assert core.stats().spec_drafts == 0
    got = run(core, [submit("r", stem, max_tokens=40)])["r"]
    assert got.outputs[0].cached_tokens > 60
    assert got.token_ids == alone([submit("r", stem, max_tokens=40)])["r"].token_ids
    assert share_of(core) == 1


def test_cancelled_requests_leave_no_block_behind() -> None:
    draft = make_draft(OtherModel())
    core = drafting(draft)
    results: dict[str, Collected] = {}
    for at in range(6):
        core.submit(submit(str(at), prompt(20 + at, at), max_tokens=50))
    rng = random.Random(2)
    for at in range(6):
        for _ in range(rng.randrange(1, 4)):
            collect(results, core.step())
            core.check()
        core.cancel(str(at))
    drain(core, results)
    kv = draft.cache.kv
    assert kv.num_owned == 0 and kv.num_free + kv.num_cached == kv.num_blocks
    core.reset_prefix_cache()
    assert kv.num_free == kv.num_blocks


def test_a_draft_without_a_distribution_is_left_out_for_that_request_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    submits = [submit(name, prompt(9, at), max_tokens=40) for at, name in enumerate("ab")]
    expected = alone(submits)
    spoils = next(at for at in expected["a"].token_ids if at not in expected["b"].token_ids)
    draft = make_draft(MockModel(nan_on=spoils))
    core = drafting(draft)
    with caplog.at_level(logging.WARNING):
        check_same(run(core, submits), expected)
    assert core.stats().spec_draft_failures == 1
    (said,) = [record.getMessage() for record in caplog.records]
    assert "request a gets no more drafts" in said
    assert share_of(core) == 1
    assert draft.cache.kv.num_owned == 0


def test_the_controller_goes_on_with_others_where_a_draft_has_no_distribution() -> None:
    """As it serves: adaptive, with drafts that are judged."""

    class SpoiledAt(MockModel):
        def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
            logits = super().forward(batch, kv)
            logits[batch.token_ids[batch.logit_rows] == spoils] = np.nan
            return logits

    submits = [submit(name, prompt(9, at), max_tokens=200) for at, name in enumerate("abcd")]
    expected = alone(submits)
    spoils = expected["a"].token_ids[60]
    draft, now = make_draft(SpoiledAt()), 0.0

    def slow() -> float:
        nonlocal now
        now += 0.01
        return now

    def quick() -> float:
        nonlocal now
        now += 0.0001
        return now

    core = make_core(vocabulary=vocabulary, draft=draft, max_num_batched_tokens=512,
                     speculative_config='{"method": "draft_model", "model": "m"}')  # fmt: skip
    core._clock, draft._clock = slow, quick
    check_same(run(core, submits), expected)
    stats = core.stats()
    assert draft.isolation.num_failed == 0 < stats.spec_draft_failures
    assert stats.spec_accepted_tokens > 0


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_row_without_a_distribution_costs_the_others_no_pass(all_of_them: bool) -> None:
    """Also where drafts are judged by their probabilities."""

    class Spoiled(MockModel):
        def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
            logits = super().forward(batch, kv)
            logits[0 if not all_of_them else slice(None), 3] = np.nan
            return logits

    submits = [submit(str(at), prompt(9, at), max_tokens=20) for at in range(4)]
    forwards = []
    for judge in (None, going_on):
        model = Spoiled()
        draft = make_draft(model)
        judge_by(draft, judge)
        core = drafting(draft)
        check_same(run(core, submits), alone(submits))
        assert draft.isolation.num_failed == 0 < core.stats().spec_draft_failures
        forwards.append(model.steps)
    assert forwards[0] == forwards[1]


def test_a_draft_that_raises_is_left_out_for_that_request_alone(survived: Survived) -> None:
    submits = [submit(name, prompt(9, at), max_tokens=40) for at, name in enumerate("ab")]
    expected = alone(submits)
    others = {*expected["b"].token_ids, *prompt(9, 0), *prompt(9, 1)}
    spoils = next(at for at in expected["a"].token_ids if at not in others)
    core = drafting(make_draft(MockModel(raise_on=spoils)))
    check_same(run(core, submits), expected)
    assert core.stats().spec_draft_failures == 1
    assert survived == Survived()


def test_where_memory_was_short_for_a_pass_its_requests_get_drafts_again() -> None:
    """A pass finds too little for all of them, then for any, and then enough."""

    class Short(MockModel):
        limits = iter([8, 8, 2, 1, 1, 0, 0, 0, 0] + [8] * 4 + [0, 2, 0])
        refused = 0

        def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
            if len(batch.token_ids) < 9 and batch.num_requests > next(self.limits, 1 << 30):
                self.refused += 1
                raise MemoryError("no memory for the draft")
            return super().forward(batch, kv)

    submits = [submit(str(at), prompt(9, at), max_tokens=40) for at in range(4)]
    model = Short()
    draft = make_draft(model)
    core = drafting(draft)
    check_same(run(core, submits), alone(submits))
    stats = core.stats()
    assert model.refused > 3 and stats.spec_draft_failures == 0
    assert all(count > 0 for count in stats.spec_accepted_by_position.values())
    assert stats.spec_accepted_tokens > 60, "drafts came back"


def test_memory_that_is_short_when_it_is_tried_is_refused_with_what_helps() -> None:
    core = drafting(make_draft(MockModel(most_tokens=0)))
    said = "no memory left for a token of the draft model: lower --gpu-memory-utilization"
    with pytest.raises(ConfigError, match=said):
        core.warm_up()


def test_a_warm_up_takes_the_median_of_its_warm_passes() -> None:
    """The first are cold, and others are disturbed by what else the machine does."""
    taken_s = [
        0.009,
        0.007,
        0.008,
        *[0.001, 0.004, 0.001, 0.001, 0.005, 0.001, 0.006, 0.001, 0.001],
    ]
    stamps = accumulate(each for taken in taken_s for each in (0.0, taken))
    draft = make_draft(MockModel(), clock=lambda: next(stamps))
    drafting(draft).warm_up()
    (found,) = draft.passes
    assert found.num_tokens == 1 and found.seconds == pytest.approx(0.001)


def test_a_warm_up_of_a_large_draft_does_not_take_long() -> None:
    stamps = accumulate(each for _ in range(12) for each in (0.0, 0.1))
    draft = make_draft(MockModel(), clock=lambda: next(stamps))
    drafting(draft).warm_up()
    assert next(stamps) == pytest.approx(0.4), "three cold passes and one"


def test_a_pool_that_is_too_small_gives_drafts_to_some() -> None:
    submits = [submit(str(at), prompt(30, at), max_tokens=30) for at in range(6)]
    draft = make_draft(MockModel(), num_blocks=9)
    core = drafting(draft)
    check_same(run(core, submits), alone(submits))
    assert share_of(core) == 1


def test_beyond_the_length_that_the_draft_was_made_for_there_are_no_drafts() -> None:
    submits = [submit("r", prompt(20), max_tokens=60)]
    core = drafting(make_draft(MockModel(max_positions=48)))
    check_same(run(core, submits), alone(submits))
    assert share_of(core) == 1
    longest = 48 // 5 * 5
    assert 0 < core.stats().spec_accepted_tokens < longest


def test_a_request_can_do_without_it() -> None:
    model = MockModel()
    core = drafting(make_draft(model))
    run(core, [submit("r", prompt(9), max_tokens=20, speculation=False)])
    assert model.steps == 0


@pytest.mark.parametrize("wider", [VOCAB - 4, VOCAB + 40])
def test_the_padding_of_the_vocabularies_may_differ(wider: int) -> None:
    """Ids from NUM_TOKENS on are nobody's. The mock's logits are VOCAB wide; the target is told
    to be as wide as the padding it has."""
    submits = [
        submit(
            "r", [*prompt(9), VOCAB - 1], max_tokens=20, logit_bias={3: 1.0},
            grammar=Grammar("regex", "[a-h0-9]+"), bad_words_token_ids=((4, 5), (6,)),
        ),
        submit("s", prompt(9), max_tokens=20, temperature=1.0, seed=3),
    ]  # fmt: skip

    @dataclass
    class Padded(MockModel):
        vocab_size: int = wider

        def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
            logits = super().forward(batch, kv)
            return np.pad(logits, ((0, 0), (0, 40)))[:, :wider].copy()

    core = drafting(make_draft(Padded()))
    check_same(run(core, submits), alone(submits))
    assert share_of(core) == 1


@pytest.mark.parametrize(("verdict", "length"), [("drop", 1), ("end", 2), ("on", 4)])
def test_rows_end_where_a_draft_s_probability_says_so(verdict: Verdict, length: int) -> None:
    draft, seen = make_draft(MockModel()), list[tuple[int, int]]()
    inner = draft.guess

    def judged(drafts: Sequence[JudgedDraft]) -> list[Verdict]:
        # Of one pass, so all at one place.
        assert len({each.place for each in drafts}) == 1 and len(drafts) <= 6
        assert all(0 < each.probability <= 1 for each in drafts)
        assert all(each.more for each in drafts if each.place < 1)
        return ["on" if each.place == 0 else verdict for each in drafts]

    def guess(wanted: Sequence[tuple[Request, int]], *rest: object, **named: object) -> object:
        found = inner(wanted, judge=judged)
        seen.extend((len(found[request]), len(draft.rated(request))) for request in found)
        return found

    draft.guess = guess  # type: ignore[assignment, method-assign]
    submits = requests(6, 3)
    check_same(run(drafting(draft), submits), alone(submits))
    assert max(made for made, _ in seen) == length
    # Rated, too, is one that is left out, or would end the request.
    assert all(made <= rated <= made + 1 for made, rated in seen)


def test_of_a_text_that_was_not_read_the_end_alone_gives_drafts_at_once() -> None:
    draft, lags = make_draft(MockModel()), list[int]()
    inner = draft.guess

    def guess(wanted: Sequence[tuple[Request, int]], *rest: object, **named: object) -> object:
        lags.extend(draft.lag(request) for request, _ in wanted)
        found = inner(wanted, 20, latest=True)
        assert sum(each.num_tokens for each in draft.passes) <= 25 * len(wanted)
        return found

    draft.guess = guess  # type: ignore[assignment, method-assign]
    submits = [submit("long", prompt(90), max_tokens=40, temperature=0.8, seed=3)]
    core = drafting(draft)
    check_same(run(core, submits), alone(submits))
    assert lags[0] > 80 and max(lags[1:]) <= 20 and core.stats().spec_draft_tokens > 0
    draft.cache.check()


class Forgetful(MockModel):
    """A model of the last token alone, so that where its text begins makes no difference."""

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
        super().forward(batch, kv)
        rows = batch.token_ids[batch.logit_rows].tolist()
        found = [np.random.default_rng(token_id).standard_normal(VOCAB) for token_id in rows]
        return np.array(found, np.float32).reshape(len(rows), VOCAB)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0, "seed": 3},
        {"repetition_penalty": 1.5},
        {"temperature": 0.8, "seed": 5, "frequency_penalty": 1.2, "presence_penalty": 0.7},
        {"temperature": 1.3, "seed": 7, "min_tokens": 8, "ignore_eos": False, "logprobs": 2},
    ],
)
@pytest.mark.parametrize("length", [30, 90])
def test_a_draft_that_begins_late_draws_as_its_target_does(
    params: dict[str, object], length: int
) -> None:
    """By the place in the request's text, and by its counts of prompt and of output."""
    draft, firsts = make_draft(Forgetful()), set[int]()
    inner = draft.guess

    def guess(wanted: Sequence[tuple[Request, int]], *rest: object, **named: object) -> object:
        found = inner(wanted, 20, latest=True)
        firsts.update(draft.cache._twins[request].first for request in found)
        return found

    draft.guess = guess  # type: ignore[assignment, method-assign]
    submits = [submit("late", prompt(length), **{"max_tokens": 40, **params})]
    core = drafting(draft, Forgetful())
    expected = run(make_core(Forgetful(), speculative_config="none"), submits)
    check_same(run(core, submits), expected)
    assert firsts == {length + 1 - 20} and share_of(core) == 1
    draft.cache.check()


@pytest.mark.parametrize("kept", [True, False])
def test_what_was_read_is_kept_where_all_that_came_since_is_read(kept: bool) -> None:
    draft, firsts, step = make_draft(MockModel()), list[int](), 0
    inner = draft.guess

    def guess(wanted: Sequence[tuple[Request, int]], *rest: object, **named: object) -> object:
        nonlocal step
        step += 1
        ((request, _),) = wanted
        if 2 < step < 40:
            return {}
        lag = draft.lag(request)
        found = inner(wanted, (lag if kept else 16) if lag < 90 else None, latest=lag < 90)
        firsts.extend(draft.cache._twins[request].first for request in found)
        if step >= 40:
            assert found and 0 < draft.num_at_hand(request) <= len(request.token_ids)
        return found

    draft.guess = guess  # type: ignore[assignment, method-assign]
    submits = [submit("r", prompt(90), max_tokens=60)]
    check_same(run(drafting(draft), submits), alone(submits))
    assert (set(firsts) == {0}) is kept
