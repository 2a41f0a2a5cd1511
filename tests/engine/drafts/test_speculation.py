"""Guessed drafts: where they come from, how many pay, and that none changes an answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.lookup.past_answers import PastAnswers
from headrace.engine.drafts.lookup.prompt_lookup import PromptLookup
from headrace.engine.drafts.proposer import NO_DRAFTS, Drafter, Proposal
from headrace.engine.drafts.source import Guess
from headrace.engine.drafts.speculation import Speculation
from headrace.engine.drafts.speculative_config import read_speculative_config, speculation_of
from headrace.engine.drafts.step_costs import FIRST_PLAIN_STEPS, StepCosts
from headrace.engine.load import load_engine
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.errors import ConfigError
from headrace.structured.grammar import Grammar
from tests.engine.drafts.test_drafts import check_same, core_of, requests, run
from tests.engine.mock import Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import plans_of, prompt


def request_of(token_ids: Sequence[int], *, prompt: int | None = None, salt: str = "") -> Request:
    count = len(token_ids) if prompt is None else prompt
    return Request("r", list(token_ids), count, SamplingParams(), max_len=1 << 20, cache_salt=salt)


# --- how many pay ---

Curve = Callable[[int], float]


def memory_bound(tokens: int) -> float:
    return 1.0 + 0.05 * (tokens - 1)


def compute_bound(tokens: int) -> float:
    return 0.2 + 0.8 * tokens


def in_tiles(tokens: int) -> float:
    """Kernels that compute eight rows at a time."""
    return 1.0 + 0.5 * ((tokens - 1) // 8)


class Drawn:
    """A source whose drafts are right with a chance each."""

    name = "drawn"

    def __init__(self, chance: float, count: int) -> None:
        self.chance, self._count = chance, count

    def begin_step(self) -> None:
        pass

    def guess(self, request: Request, most: int) -> Guess:
        return Guess([1] * min(self._count, most), 8)

    def clear(self) -> None:
        pass

    def forget(self, request: Request) -> None:
        pass


class Said:
    """A source that guesses the same tokens of every request, and remembers whom it was for."""

    name = "said"

    def __init__(self, *token_ids: int) -> None:
        self.token_ids = list(token_ids)
        self.requests: list[Request] = []

    def begin_step(self) -> None:
        pass

    def guess(self, request: Request, most: int) -> Guess:
        self.requests.append(request)
        return Guess(self.token_ids[:most], 8)

    def clear(self) -> None:
        pass

    def forget(self, request: Request) -> None:
        pass


class CertainOf:
    """A proposer that leaves one request no choice."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def propose(self, request: Request, most: int) -> Proposal | None:
        return Proposal([9, 9][:most], is_certain=True) if request is self.request else None


def test_a_guess_ends_before_what_would_end_the_request() -> None:
    speculation = Speculation([Said(5, 6, 7, 8)], most_drafts=8, adaptive=False)
    drafter, request = Drafter([], speculation), request_of([1, 2])
    request.end_ids, request.num_computed = frozenset({7}), 1
    drafter.begin_step([request], 128)
    assert drafter.drafts(request, 8).token_ids == [5, 6]
    request.end_ids = frozenset({5})
    drafter.begin_step([request], 128)
    assert drafter.drafts(request, 8) is NO_DRAFTS


def test_nothing_is_guessed_of_a_request_whose_tokens_are_certain() -> None:
    source = Said(5, 6)
    speculation = Speculation([source], most_drafts=8, adaptive=False)
    held, free = request_of([1, 2]), request_of([1, 2])
    held.num_computed = free.num_computed = 1
    drafter = Drafter([CertainOf(held)], speculation)
    drafter.begin_step([held, free], 128)
    assert source.requests == [free]
    assert drafter.drafts(held, 8).are_certain
    assert drafter.drafts(free, 8).token_ids == [5, 6]


def test_places_are_given_to_the_likeliest_guesses() -> None:
    source = Drawn(0.9, 8)
    speculation = Speculation([source], most_drafts=8)
    rows = [request_of([0]) for _ in range(4)]
    for _ in range(40):
        speculation.begin_step([(row, 8) for row in rows], len(rows))
        places = len(rows) + sum(len(speculation.drafts(row, 8)) for row in rows)
        for at, row in enumerate(rows):
            given = [1] * 9 if at == 3 else [2]
            speculation.note(row, len(row.token_ids), given)
            row.token_ids += given
        speculation.note_step(len(rows), places, memory_bound(places))
    speculation.begin_step([(row, 8) for row in rows], len(rows), 6)
    assert [len(speculation.drafts(row, 8)) for row in rows] == [0, 0, 0, 6]


class Slow(Drawn):
    """A source whose guesses take time of a clock."""

    def __init__(self, chance: float, count: int, takes_s: float) -> None:
        super().__init__(chance, count)
        self.takes_s, self.now_s, self.num_guesses = takes_s, 0.0, 0

    def guess(self, request: Request, most: int) -> Guess:
        self.now_s += self.takes_s
        self.num_guesses += 1
        return super().guess(request, most)


@pytest.mark.parametrize(("takes_s", "drafts_pay"), [(0.0, True), (0.05, True), (1.0, False)])
def test_drafts_that_gain_less_than_looking_them_up_takes_are_not_made(
    takes_s: float, drafts_pay: bool
) -> None:
    """Steps without drafts are measured as if nothing had been looked up, which then rests."""
    rng = random.Random(5)
    source = Slow(0.6, 4, takes_s)
    speculation = Speculation([source], most_drafts=4, clock=lambda: source.now_s)
    row, steps, drafts = request_of([0]), 400, 0
    for _ in range(steps):
        before_s = source.now_s
        speculation.begin_step([(row, 4)], 1)
        count = len(speculation.drafts(row, 4))
        drafts += count
        right = 0
        while right < count and rng.random() < source.chance:
            right += 1
        last = 1 if right == count and rng.random() < source.chance else 2
        given = [1] * right + [last]
        speculation.note(row, len(row.token_ids), given)
        row.token_ids += given
        speculation.note_step(1, 1 + count, 1 + 0.2 * count + source.now_s - before_s)
    assert speculation.costs.plain_seconds(1) == pytest.approx(1.0, rel=0.01)
    if drafts_pay:
        assert drafts > steps
    else:
        assert drafts < 0.05 * steps
        assert source.num_guesses < 0.3 * steps


def replayed(curve: Curve, source: Drawn, batch: int, steps: int, fixed: int | None) -> float:
    """Tokens for each unit of time of so many requests, over recorded step times with some noise.

    fixed: as many drafts in each step; None for those that the controller takes.
    """
    rng = random.Random(11)
    speculation = Speculation([source], most_drafts=8)
    rows = [request_of([0]) for _ in range(batch)]
    seconds = tokens = 0.0
    for _ in range(steps):
        speculation.begin_step([(row, 8) for row in rows], len(rows))
        taken = [
            len(speculation.drafts(row, 8)) if fixed is None else fixed for row in rows
        ]  # fmt: skip
        places = batch + sum(taken)
        took = curve(places) * rng.lognormvariate(0, 0.03)
        seconds += took
        for row, count in zip(rows, taken, strict=True):
            right = 0
            while right < count and rng.random() < source.chance:
                right += 1
            # What comes behind the drafts shows whether the next guess would have been right.
            last = 1 if right == count and rng.random() < source.chance else 2
            given = [1] * right + [last]
            if fixed is None:
                speculation.note(row, len(row.token_ids), given)
            row.token_ids += given
            tokens += len(given)
        speculation.note_step(batch, places, took)
    return tokens / seconds


@pytest.mark.parametrize("curve", [memory_bound, compute_bound, in_tiles])
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("batch", [1, 8])
def test_it_is_never_below_off_and_near_the_best_fixed_choice(
    curve: Curve, chance: float, batch: int
) -> None:
    source, steps = Drawn(chance, 8), 600 if batch == 1 else 150
    off = replayed(curve, source, batch, steps, 0)
    best = max(replayed(curve, source, batch, steps, count) for count in (0, 1, 2, 4, 6, 8))
    adaptive = replayed(curve, source, batch, steps, None)
    assert adaptive > 0.97 * off
    assert adaptive > 0.89 * best


def test_the_first_slow_steps_are_no_measure_of_those_without_drafts() -> None:
    """Three steps that take half as long again, as an engine's first ones do; drafts come later."""
    speculation = Speculation([Drawn(1.0, 4)], most_drafts=4)
    request = request_of([1, 2, 3])
    for step in range(FIRST_PLAIN_STEPS):
        speculation.begin_step([(request, 4)], 1)
        assert not speculation.drafts(request, 4)
        speculation.note(request, len(request.token_ids), [1])
        request.token_ids.append(1)
        speculation.note_step(1, 1, 1.5 if step < 3 else 1.0)
    assert speculation.costs.plain_seconds(1) < 1.1
    speculation.begin_step([(request, 4)], 1)
    assert speculation.drafts(request, 4)


def test_a_disturbed_step_does_not_make_its_size_too_expensive_for_ever() -> None:
    costs = StepCosts()
    for _ in range(20):
        costs.note(1, 1, 0.01)
    costs.note(1, 5, 0.2)
    for _ in range(400):
        costs.note(1, 1, 0.01)
    assert costs.of(1, 5) < 2
    for _ in range(20):
        costs.note(1, 1, 0.01)
        costs.note(1, 5, 0.012)
    assert 1.1 < costs.of(1, 5) / costs.of(1, 1) < 1.35


def test_the_curve_follows_a_machine_that_becomes_slower_as_a_whole() -> None:
    costs = StepCosts()
    for scale in (1, 3):
        for _ in range(60):
            for tokens in (1, 4, 9):
                costs.note(1, tokens, 0.01 * scale * memory_bound(tokens))
    for tokens in (4, 9):
        assert costs.of(1, tokens) / costs.of(1, 1) == pytest.approx(memory_bound(tokens), rel=0.05)


def test_drafts_measured_beside_some_requests_serve_for_others() -> None:
    costs = StepCosts()

    def seconds(batch: int, tokens: int) -> float:
        return 0.01 * (1 + 0.05 * (tokens - 1) + 0.4 * (batch - 1))

    for _ in range(40):
        for batch, tokens in ((1, 1), (9, 9), (9, 17), (1, 5), (1, 9)):
            costs.note(batch, tokens, seconds(batch, tokens))
    for batch, tokens in ((9, 9), (9, 17), (1, 9), (5, 5), (1, 17), (5, 13)):
        expected = seconds(batch, tokens) / seconds(1, 1)
        assert costs.of(batch, tokens) == pytest.approx(costs.of(1, 1) * expected, rel=0.08)


# --- in the engine ---


def repeating(core: EngineCore) -> tuple[int, int]:
    """Requests of every kind, twice: drafts of their own texts, and of past answers."""
    for seed in (3, 3):
        run(core, requests(10, seed))
    stats = core.stats()
    return stats.spec_draft_tokens, stats.spec_accepted_tokens


def test_no_answer_changes() -> None:
    submits = requests(10, 3)
    alone = run(core_of(speculative_config="none"), submits)
    core = core_of(speculative_config='{"adaptive": false}')
    check_same(run(core, submits), alone)
    check_same(run(core, submits), alone)
    stats = core.stats()
    assert stats.spec_accepted_tokens > 0
    assert sum(stats.spec_accepted_by_position.values()) == stats.spec_accepted_tokens


@pytest.mark.parametrize("end", ["abort", "timeout", "error"])
def test_nothing_is_kept_of_a_request_however_it_ends(end: str) -> None:
    text = prompt(12)
    model = MockModel()
    if end == "error":
        answer = run(make_core(), [submit("r", text * 2, max_tokens=200)])["r"].token_ids
        at = next(at for at, each in enumerate(answer[12:], 12) if each not in text + answer[:at])
        model = MockModel(nan_on=answer[at])
    core = make_core(model, speculative_config='{"adaptive": false}')
    core.submit(submit("r", text * 2, max_tokens=200, timeout_s=0.06 if end == "timeout" else None))
    results: dict[str, Collected] = {}
    for _ in range(8):
        collect(results, core.step())
    speculation = core._speculation
    assert speculation is not None and len(speculation._histories) == 1
    if end == "abort":
        core.cancel("r")
    drain(core, results)
    assert results["r"].finish_reason == end
    lookup, answers = speculation._sources
    assert isinstance(lookup, PromptLookup) and isinstance(answers, PastAnswers)
    assert not speculation._histories and not lookup._texts and not answers._readings
    assert bool(answers._num_tokens) is (end != "error")


def test_prompts_forced_spans_and_guesses_beside_each_other_leave_answers_as_they_are() -> None:
    # Requests enter while others decode, so that steps have prompts and drafts of both kinds.
    rng = random.Random(9)
    submits = []
    for at in range(8):
        params: dict[str, object] = {"max_tokens": 60, "seed": at, "temperature": 0.8}
        if at % 2:
            params["grammar"] = Grammar("regex", "[a-z]{20}(abcdef[0-9]ghij){1,3}")
        stem = prompt(6, at) * 2
        submits.append(submit(f"r{at}", stem * rng.randint(1, 4), **params))
    alone = run(core_of(speculative_config="none", enable_forced_spans=False), submits)
    core = core_of(speculative_config='{"adaptive": false}', max_num_batched_tokens=24)
    plans = plans_of(core)
    for each_step in (1, 8, 8):
        check_same(run(core, submits, each_step=each_step), alone)
    # Which of them meet in one step depends on when the grammars are compiled.
    rows = [row for plan in plans for row in plan.rows]
    assert {row.drafts.are_certain for row in rows if row.drafts.token_ids} == {True, False}
    assert any(not row.samples for row in rows)
    assert len({len(plan.rows) for plan in plans}) > 3


def test_a_request_can_do_without() -> None:
    submits = requests(10, 3)
    core = core_of(speculative_config='{"adaptive": false}')
    submits = [
        msgspec.structs.replace(
            each, params=msgspec.structs.replace(each.params, speculation=False)
        )
        for each in submits
    ]
    run(core, submits)
    assert core.stats().spec_drafts == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ngrams",
            "unknown method; did you mean 'ngram'?; give auto, none, ngram, suffix, mtp, or",
        ),
        (
            "eagle3",
            "needs a model, the folder of an EAGLE-3 head that was made for this model; give "
            '{"method": "eagle3", "model": ...}',
        ),
        ('{"method": "ngram"', "truncated; give auto, none, ngram, suffix, mtp, or a JSON object"),
        ("3", "it is not an object; give auto"),
        (
            '{"method": "hydra"}',
            "unknown method 'hydra'; methods are auto, none, ngram, suffix, "
            "mtp, draft_model, eagle3",
        ),
        ('{"method": "draftmodel"}', "did you mean 'draft_model'?"),
        ('{"num_speculative_tokens": 0}', "is 0; give a whole number from 1 to 64"),
        ('{"num_speculative_tokens": 1e9}', "is 1000000000.0; give a whole number from 1 to 64"),
        ('{"num_speculative_tokens": "five"}', 'is "five"; give a whole number from 1 to 64'),
        ('{"adaptive": 1}', "adaptive is 1; give true or false"),
        ('{"method": ["ngram", "mtp"]}', 'method is ["ngram", "mtp"]; give one of auto, none'),
        ('{"method": "ngram", "method": "mtp"}', "'method' is there twice; give it once"),
        (
            '{"method": "suffix", "model": "m"}',
            "model is 'm', and method suffix has none; omit one of them, or use auto, mtp, draft_",
        ),
        (
            '{"model": "m", "prompt_lookup_max": 4}',
            "prompt_lookup_max is 4, and method draft_model does not read it; omit it, or use "
            "auto, ngram or suffix",
        ),
        (
            '{"method": "none", "num_speculative_tokens": 4}',
            "num_speculative_tokens is 4, and method none does not read it; omit it, or use auto,",
        ),
        ('{"model": ""}', "model is ''; give a path or a name, or omit it"),
        (
            '{"num_speculativ_tokens": 1}',
            "did you mean 'num_speculative_tokens'?; fields are method, ",
        ),
        ('{"prompt_lookup_min": 5, "prompt_lookup_max": 3}', "prompt_lookup_min is 5"),
    ],
)
def test_what_it_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="--speculative-config") as caught:
        read_speculative_config(text)
    assert said in str(caught.value)


def test_what_it_cannot_be_is_refused_before_a_model_is_opened() -> None:
    config = EngineConfig(model="/no/such/model", speculative_config='{"metod": "ngram"}')
    with pytest.raises(ConfigError, match=r"--speculative-config.*metod"):
        load_engine(config)


def test_sources_are_those_of_the_method() -> None:
    def names(text: str) -> list[str]:
        speculation = speculation_of(read_speculative_config(text))
        return [] if speculation is None else [source.name for source in speculation._sources]

    assert names("auto") == names("{}") == ["ngram", "suffix"]
    assert names('{"method": "suffix"}') == ["ngram", "suffix"]
    assert names('{"method": "ngram"}') == names("ngram") == ["ngram"]
    assert names("suffix") == ["ngram", "suffix"]
    assert read_speculative_config(" mtp\n").has_own_mtp
    assert names('{"suffix_decoding_max_cached_tokens": 0}') == ["ngram"]
    alone = speculation_of(read_speculative_config("auto"), shares=False)
    assert alone is not None and [source.name for source in alone._sources] == ["ngram"]
    assert speculation_of(read_speculative_config('{"prompt_lookup_max": 1}')) is not None
    assert names("none") == names('{"method": "none"}') == []


def test_steps_with_drafts_are_compared_with_those_without() -> None:
    speculation = Speculation([Drawn(1.0, 4)], most_drafts=4, adaptive=False)
    row = request_of([0])
    for _ in range(4):  # steps without drafts, of which there is nothing to compare
        speculation.begin_step([(row, 0)], 1)
        speculation.note(row, len(row.token_ids), [1])
        row.token_ids.append(1)
        speculation.note_step(1, 1, 0.010)
    assert speculation.compared.steps == 0
    speculation.begin_step([(row, 4)], 1)
    speculation.note(row, len(row.token_ids), [1, 1, 1])
    speculation.note_step(1, 5, 0.015)
    steps, tokens, seconds, plain_s = speculation.compared
    assert (steps, tokens, seconds) == (1, 3.0, 0.015)
    assert plain_s == pytest.approx(0.010)
