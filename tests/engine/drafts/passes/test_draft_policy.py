"""How many drafts of a model pay: replayed over step times and passes of several machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from headrace.engine.drafts.gain_account import GainAccount
from headrace.engine.drafts.passes.draft_generator import (
    Judge,
    JudgedDraft,
    Pass,
    RatedDraft,
    Verdict,
)
from headrace.engine.drafts.passes.draft_lengths import DraftRoom
from headrace.engine.drafts.passes.draft_policy import DraftPolicy
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request

WRONG = 9


def request_of(name: str, prompt: int = 8, max_len: int = 1 << 20) -> Request:
    return Request(name, [0] * prompt, prompt, SamplingParams(temperature=0), max_len)


class Machine:
    """A target whose step of n tokens takes step(n), and a draft whose pass takes draft(n) and
    whose drafts are right with a chance each."""

    def __init__(self, chance: float, *, target: float, row: float, draft: float) -> None:
        self.chance, self.draft_s, self._row_s, self._target_s = chance, draft, row, target
        self.passes = [Pass(1, draft)]
        self.num_read = 0
        self.read: dict[Request, int] = {}
        self.begun: dict[Request, int] = {}
        self.num_rated: dict[Request, int] = {}
        self.probability = max(chance, 0.5)
        """That it gives each draft: it does not know of hard texts, which is to be learned."""
        self.rng = random.Random(11)

    def step_s(self, num_tokens: int) -> float:
        return (self._target_s + self._row_s * num_tokens) * self.rng.lognormvariate(0, 0.03)

    def rated(self, request: Request) -> Sequence[RatedDraft]:
        """Each as likely as another, by what it says."""
        return [RatedDraft(1, self.probability)] * self.num_rated.get(request, 0)

    def plain_s(self, batch: int) -> float:
        return self._target_s + self._row_s * batch

    def num_passes(self, num_drafts: int) -> int:
        """One for each."""
        return num_drafts

    def lag(self, request: Request) -> int:
        return len(request.token_ids) - self.read.get(request, 0)

    def num_at_hand(self, request: Request) -> int:
        return self.read.get(request, 0) - self.begun.get(request, 0)

    def watch(self, requests: object) -> None:
        """It reads tokens alone."""

    def take_watching_s(self) -> float:
        return 0.0

    def num_missing(self, request: Request) -> int:
        return 0

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        self.passes, found = [], dict[Request, list[int]]()
        self.num_rated.clear()
        left = 128 if most_read is None else most_read
        tokens = 0
        for request, _ in wanted:
            if latest:
                unread = len(request.token_ids) - left
                if self.read.get(request, 0) < unread:
                    self.read[request] = self.begun[request] = unread
            lag = self.lag(request)
            reads = lag if lag <= 16 else min(lag, left)
            left -= reads if lag > 16 else 0
            tokens += reads
            self.read[request] = self.read.get(request, 0) + reads
            self.num_read += reads
            if reads == lag:
                found[request] = []
        if tokens:
            self.passes.append(Pass(tokens, self.draft_s * (1 + 0.06 * (tokens - 1))))
        counts, going, place = dict(wanted), [*found], 0
        while going:
            made = [
                JudgedDraft(each, place, self.probability, place + 1 < counts[each])
                for each in going
            ]
            verdicts = ["on"] * len(made) if judge is None else judge(made)
            for each, verdict in zip(going, verdicts, strict=True):
                self.num_rated[each] = place + 1
                found[each] += [1] * (verdict != "drop")
            kept = zip(made, verdicts, strict=True)
            going = [draft.request for draft, verdict in kept if draft.more and verdict == "on"]
            place += 1
            if going:
                self.passes.append(Pass(len(going), self.draft_s * (1 + 0.06 * (len(going) - 1))))
        return {request: drafts for request, drafts in found.items() if drafts}


class BlockMachine(Machine):
    """The same with a draft that gives all of its drafts in one pass."""

    def num_passes(self, num_drafts: int) -> int:
        return min(num_drafts, 1)

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        found = super().guess(wanted, most_read, latest=latest)
        self.passes = self.passes[:1]
        return found


def replayed(machine: Machine, batch: int, steps: int, fixed: int | None, prompt: int = 8) -> float:
    """Tokens for the time; fixed: so many drafts in each step, None for those that are chosen."""
    costs = StepCosts()
    account = GainAccount()
    drafts = DraftPolicy(machine, costs, most=5, adaptive=fixed is None, account=account)
    plain_s = machine.plain_s(batch)
    rows = [request_of(str(at), prompt) for at in range(batch)]
    seconds, tokens = 0.0, 0
    for _ in range(steps):
        room = 5 if fixed is None else fixed
        found = {}
        drafts.begin_step()
        if room:
            found = drafts.guess(batch, [DraftRoom(row, room) for row in rows], 1 << 20)
        taken = [len(found.get(row, ())) for row in rows]
        took = machine.step_s(batch + sum(taken))
        seconds += took + drafts.seconds
        before = tokens
        costs.note(batch, batch + sum(taken), took)
        for row, count in zip(rows, taken, strict=True):
            right = 0
            while right < count and machine.rng.random() < machine.chance:
                right += 1
            given = [1] * right + [WRONG]
            if right == count and machine.rng.random() < machine.chance:
                given[-1] = 1
            drafts.note(row, len(row.token_ids), given)
            # Of the drafts, K and V of all but the last are there where they came.
            if count:
                machine.read[row] = len(row.token_ids) + min(right, count - 1)
            row.token_ids += given
            tokens += len(given)
        took += drafts.seconds
        gained, spent = (tokens - before) / batch - 1, took / plain_s - 1
        if sum(taken):
            account.note(gained, spent)
        else:
            account.note_plain()
        drafts.note_step(took, (gained - spent) * plain_s if sum(taken) else None)
    return tokens / seconds


MACHINES = {
    "memory": {"target": 1.0, "row": 0.05, "draft": 0.15},
    "small": {"target": 0.7, "row": 0.2, "draft": 0.3},
    "arithmetic": {"target": 0.1, "row": 0.9, "draft": 0.2},
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("batch", [1, 8])
def test_it_is_never_below_off_and_near_the_best_fixed_choice(
    machine: str, chance: float, batch: int
) -> None:
    steps = 400 if batch == 1 else 120

    def speed(fixed: int | None) -> float:
        return replayed(Machine(chance, **MACHINES[machine]), batch, steps, fixed)

    off, chosen = speed(0), speed(None)
    best = max(off, *(speed(fixed) for fixed in (1, 2, 3, 5)))
    assert chosen > 0.94 * off
    assert chosen > 0.9 * best


@pytest.mark.parametrize("chance", [0.05, 0.6, 0.9])
def test_a_block_is_chosen_by_what_its_one_pass_costs(chance: float) -> None:
    """A pass that takes a half of a step: five of them would not pay, and one does."""
    shape = {"target": 1.0, "row": 0.05, "draft": 0.5}

    def speed(fixed: int | None) -> float:
        return replayed(BlockMachine(chance, **shape), 1, 400, fixed)

    off, chosen, most = speed(0), speed(None), speed(5)
    assert chosen > 0.94 * off and chosen > 0.9 * most
    chain = replayed(Machine(chance, **shape), 1, 400, None)
    assert chosen > 1.1 * chain or chance < 0.5


def test_a_prompt_is_read_only_where_that_pays() -> None:
    costs = StepCosts()
    for _ in range(20):
        costs.note(1, 1, 1.0)
    for length, expected in ((40, 1), (4000, 0)):
        machine = Machine(0.5, target=1.0, row=0.05, draft=0.15)
        drafts = DraftPolicy(machine, costs, most=3)
        request = request_of("r", length, length + 40)
        for _ in range(40):
            drafts.begin_step()
            drafts.guess(1, [DraftRoom(request, 3)], 64)
            drafts.note_step(1.0)
        assert machine.num_read == length if expected else machine.num_read <= 16


def test_of_a_text_that_was_not_read_the_end_is_read_for_a_try() -> None:
    """All of it would cost more than tries may, and more with each token that comes."""
    machine = Machine(0.0, target=1.0, row=0.05, draft=0.15)
    costs = StepCosts()
    drafts = DraftPolicy(machine, costs, most=5)
    row = request_of("long", 126)
    for _ in range(200):  # of nothing that comes, so that none is chosen
        short = request_of("short", 2)
        drafts.begin_step()
        found = drafts.guess(1, [DraftRoom(short, 5)], 1 << 20)
        drafts.note(short, 2, [WRONG])
        drafts.forget(short)
        drafts.note_step(machine.step_s(1))
        costs.note(1, 1, machine.step_s(1))
    for _ in range(4000):
        drafts.begin_step()
        found = drafts.guess(1, [DraftRoom(row, 5)], 1 << 20)
        if found:
            break
        drafts.note_step(machine.step_s(1))
    assert drafts.is_try and len(found[row]) == 1
    assert machine.num_read <= 200 * 2 + 16


def judging(
    batch: int, *, row_s: float = 0.02, pass_s: float = 0.3, gain: float = 1.0
) -> Callable[..., list[Verdict]]:
    """The judge of so many rows of two drafts, in steps that take 1 s and row_s for each token; by
    what is known in the beginning the next draft comes 6 times of 10."""
    costs, machine = StepCosts(), Machine(0.5, target=1.0, row=row_s, draft=pass_s)
    for _ in range(200):
        for tokens in (batch, 2 * batch, 3 * batch):
            costs.note(batch, tokens, 1.0 + row_s * tokens)
    drafts = DraftPolicy(machine, costs, most=3)
    for num_tokens in (1, 2, 4, 8) * 3:
        drafts._passes.note(num_tokens, pass_s)
    drafts.gain = gain
    rows = [request_of(str(at)) for at in range(batch)]

    def judged(*probabilities: float, more: bool = True) -> list[Verdict]:
        judge = drafts._judge(batch, [(row, 2) for row in rows])  # of one step
        assert judge is not None
        made = zip(rows, probabilities, strict=False)
        return [*judge([JudgedDraft(row, 0, each, more) for row, each in made])]

    return judged


def test_a_row_ends_before_a_place_or_a_pass_that_costs_more_than_it_gives() -> None:
    # A place costs 0.1 / 1.1 = 0.09 tokens, a pass 0.5 / 1.1 = 0.45.
    judged = judging(1, row_s=0.1, pass_s=0.5)
    assert judged(0.05) == ["drop"]
    assert judged(0.5) == ["end"]  # 0.5 * 0.6 < 0.09 + 0.45
    assert judged(0.97) == ["on"]  # 0.97 * 0.6 > 0.09 + 0.45
    assert judged(0.97, more=False) == ["end"]


def test_rows_that_go_on_share_a_pass_and_one_alone_pays_for_all_of_it() -> None:
    # A place costs 0.02 * 4 / 1.08 = 0.07 tokens, a pass 0.3 * 4 / 1.08 = 1.1; the next one gives
    # 0.97 * 0.6 - 0.07 = 0.51.
    judged = judging(4)
    assert judged(0.97, 0.97, 0.97, 0.97) == ["on"] * 4
    assert judged(0.97, 0.97, 0.97, 0.3) == ["on"] * 4  # what it gives is less, but above 0
    assert judged(0.97, 0.02, 0.97, 0.97) == ["on", "drop", "on", "on"]
    assert judged(0.97, 0.3, 0.02, 0.02) == ["end", "end", "drop", "drop"]


def test_a_place_is_worth_what_the_step_gives_with_its_other_drafts() -> None:
    assert judging(4)(0.1) == ["end"]
    assert judging(4, gain=1.5)(0.1) == ["drop"]
    assert judging(1, row_s=0.1, pass_s=0.5, gain=1.2)(0.97) == ["end"]


@pytest.mark.parametrize(("credit", "kept"), [(2.9, 4000), (0.3, 0)])
def test_what_was_read_of_a_text_is_kept_where_the_credit_pays_for_what_came(
    credit: float, kept: int
) -> None:
    """Forty tokens that came while nothing was drafted, behind a long text that was read."""
    machine = Machine(0.5, target=1.0, row=0.05, draft=0.15)
    costs = StepCosts()
    for _ in range(20):
        costs.note(1, 1, 1.0)
    drafts = DraftPolicy(machine, costs, most=5)
    row = request_of("r", 4040)
    machine.read[row] = 4000
    drafts._account.steps = 0.0  # nothing is chosen
    drafts._tries._credit_s = credit
    drafts.begin_step()
    assert drafts.guess(1, [DraftRoom(row, 5)], 1 << 20) and drafts.is_try
    assert machine.num_read == (40 if kept else 16)
    assert machine.num_read + kept == machine.num_at_hand(row)


def test_passes_that_take_no_time_by_a_coarse_clock_are_no_fault() -> None:
    machine = Machine(0.9, target=1.0, row=0.05, draft=0.0)
    costs = StepCosts()
    drafts = DraftPolicy(machine, costs, most=3)
    row, made = request_of("r"), 0
    for _ in range(60):
        drafts.begin_step()
        found = drafts.guess(1, [DraftRoom(row, 3)], 64)
        made += bool(found)
        drafts.note(row, len(row.token_ids), [1])
        row.token_ids.append(1)
        costs.note(1, 1, 1.0)
        drafts.note_step(1.0, 0.5 if found else None)
    assert made


def test_what_is_there_for_nothing_is_kept_where_it_promises_as_much() -> None:
    costs = StepCosts()
    for tokens in (2, 4, 8) * 9:
        costs.note(2, tokens, 1.0)
    machine = Machine(0.5, target=1.0, row=0.05, draft=0.01)
    drafts = DraftPolicy(machine, costs, most=3)
    drafts._passes.note(1, machine.draft_s)
    good, poor = request_of("good"), request_of("poor")
    found = drafts.guess(2, [DraftRoom(good, 3, 5, 4.5), DraftRoom(poor, 3, 1, 0.1)], 64)
    assert set(found) == {poor}


def test_steps_have_no_more_drafts_than_there_is_room_for() -> None:
    costs = StepCosts()
    for tokens in (8, 16, 32, 64) * 9:
        costs.note(8, tokens, 1.0)
    machine = Machine(0.9, target=1.0, row=0.01, draft=0.02)
    drafts = DraftPolicy(machine, costs, most=5)
    rows = [DraftRoom(request_of(str(at)), 5) for at in range(8)]
    assert sum(map(len, drafts.guess(8, rows, 17).values())) in (8, 16)


def test_costs_of_passes_are_a_line_between_those_that_were_seen() -> None:
    costs = PassCosts()
    assert costs.seconds(1) == 0
    costs.note(4, 3.0)
    costs.note(4, 1.18)  # the first is in cold caches
    assert costs.seconds(1) == pytest.approx(1.0)
    assert costs.seconds(8) == pytest.approx(1.42)
    for _ in range(40):
        costs.note(128, 5.0)
    costs.note(128, 500.0)
    assert 5.0 < costs.seconds(128) < 6.5
    assert costs.seconds(66) == pytest.approx((1.18 + costs.seconds(128)) / 2)


def test_a_pass_that_was_recorded_teaches_nothing() -> None:
    class Recorded(Machine):
        """A draft whose next passes are recorded, which takes ten times as long."""

        def guess(self, *args: Any, **named: Any) -> dict[Request, list[int]]:
            found = super().guess(*args, **named)
            self.passes = [Pass(each.num_tokens, 10 * each.seconds, False) for each in self.passes]
            return found

    machine = Recorded(1.0, target=1.0, row=0.01, draft=0.05)
    policy = DraftPolicy(machine, StepCosts(), most=3, adaptive=False)
    request = request_of("r")
    policy.guess(1, [DraftRoom(request, 3)], 3)
    assert policy.seconds > 1.0, "it is booked all the same"
    assert policy._passes.seconds(1) == pytest.approx(0.05)


def test_the_first_pass_may_read_a_prompt() -> None:
    """What a pass of one token takes is not taken for what a long one does."""
    costs = PassCosts()
    costs.note(128, 8.62)
    assert costs.seconds(1) == pytest.approx(1.0)


class Watched(Machine):
    """A draft that is right when it was watched for some tokens, as a head is."""

    def __init__(self, chance: float, **shape: float) -> None:
        super().__init__(chance, **shape)
        self.since: dict[Request, int] = {}
        self.num_watched = 0

    def watch(self, requests: Collection[Request] | None) -> None:
        self.since = {} if requests is None else dict.fromkeys(requests, 0)

    def num_missing(self, request: Request) -> int:
        if request not in self.since:
            return 16
        self.since[request] += 1
        self.num_watched += 1
        return max(0, 16 - self.since[request])


def test_a_draft_is_watched_before_it_is_tried_and_not_for_long() -> None:
    machine = Watched(0.0, target=1.0, row=0.05, draft=0.15)
    costs = StepCosts()
    drafts = DraftPolicy(machine, costs, most=5)
    machine.watch(())
    drafts._watched = ()
    row, tries = request_of("r"), 0
    machine.read[row] = 8
    for _ in range(100):  # none has come so far
        drafts._chances.begin(row, [1], wanted=1)
        drafts.note(row, len(row.token_ids), [WRONG])
    for _ in range(6000):
        drafts.begin_step()
        if drafts.guess(1, [DraftRoom(row, 5)], 1 << 20):
            assert drafts.is_try and machine.since[row] >= 16
            tries += 1
            drafts.note(row, len(row.token_ids), [WRONG])
        took = machine.step_s(1)
        drafts.note_step(took + drafts.seconds, -drafts.seconds if drafts.is_try else None)
        costs.note(1, 1, took)
        row.token_ids.append(WRONG)
        machine.read[row] = len(row.token_ids) - 1
    assert 8 <= tries <= 6000 * 0.02
    assert machine.num_watched < 6000 * 0.2
