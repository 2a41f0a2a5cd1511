"""The same loads of two servers in turns, with the machine's limits read in between.

A pair of one case is measured within seconds, so that what drifts on the machine drifts for both,
and which server comes first changes from pair to pair; ratios are of pairs. What was not measured
is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from headrace.bench.against.cases import AgainstCase, UnseenPaceError, tokens_per_s
from headrace.bench.load.experiment import RunResult
from headrace.errors import HeadraceError
from headrace.telemetry.machine import Limits
from headrace.telemetry.readings import growth, read_texts, work_of
from headrace.telemetry.work import Work

_NS_PER_S = 1e9
_MOST_UNSEEN = 3
"""Pairs of a case that are tried while none of them can be seen."""

Run = Callable[[AgainstCase], RunResult]
"""One load of one server, with prompts that it has not seen."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One case, in tokens per second; the figures of a pair have the same place."""

    case: str
    ours: tuple[float, ...] = ()
    peer: tuple[float, ...] = ()
    most_tokens_per_s: float | None = None
    """What the machine's limits, read in the same minutes, allow for the bytes and operations that
    headrace counted for this load; None where they were not read or not counted."""
    why_missing: str | None = None
    """Why there are no pairs, or no further ones although time was left."""
    left_out: int = 0
    """Pairs that are not among the figures, since the pace of an answer could not be seen."""
    why_left_out: str | None = None
    """What was seen of the last of them."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours by the peer's, of each pair."""
        return tuple(a / b for a, b in zip(self.ours, self.peer, strict=True))

    @property
    def most_ratio(self) -> float | None:
        """The largest ratio that the limits allow."""
        most = self.most_tokens_per_s
        return None if most is None or not self.peer else most / median(self.peer)

    @property
    def share(self) -> float | None:
        """Of the limits, that headrace reached."""
        most = self.most_tokens_per_s
        return None if most is None or not self.ours else median(self.ours) / most


class Comparison(NamedTuple):
    """Results of all cases, and the limits at each reading, in order of time."""

    results: list[CaseResult]
    limits: list[Limits]


class _Pairs:
    """Pairs of one case that were measured so far."""

    def __init__(self, case: AgainstCase) -> None:
        self.case = case
        self.ours: list[float] = []
        self.peer: list[float] = []
        self.work: list[tuple[float, Work]] = []
        """Of each of our runs: tokens, and what steps did."""
        self.took_s = 0.0
        self.why_missing: str | None = None
        self.left_out = 0
        self.why_left_out: str | None = None

    @property
    def tried(self) -> int:
        """Pairs of runs that were made."""
        return len(self.ours) + self.left_out

    def leave_out(self, why: str) -> None:
        """The last pair, whose figures could not be seen."""
        self.left_out += 1
        self.why_left_out = why
        if not self.ours and self.left_out >= _MOST_UNSEEN:
            self.why_missing = why

    def so_far(self) -> str:
        """Its figures; empty where there are none."""
        if not self.ours:
            return ""
        return f", so far headrace {median(self.ours):,.1f}, peer {median(self.peer):,.1f} tokens/s"

    def fits(self, left_s: float) -> bool:
        """Whether one more pair would be measured within `left_s` seconds, as the last one was."""
        return self.why_missing is None and self.took_s < left_s

    def result(self, limits: Sequence[Limits]) -> CaseResult:
        why_none = None if self.ours else self.why_left_out
        return CaseResult(
            case=self.case.name,
            ours=tuple(self.ours),
            peer=tuple(self.peer),
            most_tokens_per_s=most_tokens_per_s(self.work, limits),
            why_missing=self.why_missing or why_none,
            left_out=self.left_out,
            why_left_out=self.why_left_out,
        )


def in_turns(
    cases: Sequence[AgainstCase],
    ours: Run,
    peer: Run,
    *,
    read_limits: Callable[[], Limits | None],
    budget_s: float,
    clock: Callable[[], float],
    progress: Callable[[str], None],
    refused: Mapping[str, str] | None = None,
) -> Comparison:
    """Pairs of every case until `budget_s` is over: at least one of the first, then what fits.

    A case that failed is not tried again; one whose pace could not be seen is. read_limits: called
    before, between rounds and after; None where the peer is not on this machine. progress: called
    with what begins. refused: reasons not to send cases, by their names.
    """
    pairs = [_Pairs(case) for case in cases]
    for of_case in pairs:
        of_case.why_missing = (refused or {}).get(of_case.case.name)
    sent = [of_case for of_case in pairs if of_case.why_missing is None]
    end_s = clock() + budget_s

    def begin(round_: int, of_case: _Pairs) -> None:
        left_s = max(0, round(end_s - clock()))
        so_far = of_case.so_far()
        progress(f"round {round_}: {of_case.case.name}{so_far} ({left_s} s left)")
        _pair(of_case, ours, peer, clock)

    limits = [read_limits()]
    for index, of_case in enumerate(sent):
        if index and clock() >= end_s:
            of_case.why_missing = f"the {budget_s:g} s were over; raise --minutes"
        else:
            begin(1, of_case)
    limits.append(read_limits())
    rounds = 1
    while any(of_case.fits(end_s - clock()) for of_case in pairs):
        rounds += 1
        for of_case in pairs:
            if of_case.fits(end_s - clock()):
                begin(rounds, of_case)
        limits.append(read_limits())
    known = [reading for reading in limits if reading is not None]
    return Comparison([of_case.result(known) for of_case in pairs], known)


def _pair(pairs: _Pairs, ours: Run, peer: Run, clock: Callable[[], float]) -> None:
    """One of each; which comes first changes from pair to pair.

    Both run even if the first cannot be seen: each counts its runs, by which prompts are drawn, and
    the next pair has to have the same ones.
    """
    began_s = clock()
    found: dict[str, tuple[RunResult, float]] = {}
    unseen: str | None = None
    sides = (("headrace", ours), ("the peer", peer))
    for name, run in sides if pairs.tried % 2 == 0 else sides[::-1]:
        try:
            done = run(pairs.case)
            if done.ending == "interrupted":
                raise KeyboardInterrupt
            found[name] = done, tokens_per_s(pairs.case, done.run.requests)
        except UnseenPaceError as error:
            unseen = f"{name}: {error}"
        except HeadraceError as error:
            pairs.why_missing = f"{name}: {error}"
            return
    pairs.took_s = clock() - began_s
    if unseen is not None:
        pairs.leave_out(unseen)
        return
    done, figure = found["headrace"]
    pairs.ours.append(figure)
    pairs.peer.append(found["the peer"][1])
    work = _work(pairs.case, done)
    if work is not None:
        pairs.work.append(work)


def _work(case: AgainstCase, done: RunResult) -> tuple[float, Work] | None:
    """Tokens that the figure counts, and the work of our steps; None without counts.

    Of a decode behind a long prompt those of readings since the first token, which have none of the
    prompt's work in them.
    """
    readings, _ = read_texts(done.run.server_metrics)
    records = done.run.requests
    prompt = sum(record.prompt_tokens or 0 for record in records)
    new = sum(record.output_tokens or 0 for record in records)
    tokens: float | None = {"prefill": prompt, "decode": new, "total": prompt + new}[case.figure]
    if case.figure == "decode" and case.prompt > case.new:
        first_s = max(record.content[0].at_ns for record in records) / _NS_PER_S
        readings = [reading for reading in readings if reading.at_s >= first_s]
        tokens = growth(readings, "output")
    counted = ("bytes", "operations", "attention")
    work = work_of({name: growth(readings, name) or 0.0 for name in counted})
    return (tokens, work) if tokens and work.bytes and work.operations else None


def most_tokens_per_s(done: Sequence[tuple[float, Work]], limits: Sequence[Limits]) -> float | None:
    """tokens / max(bytes / bandwidth, operations of products / their rate + of attention / its
    rate), medians of runs and of readings.

    No step can be quicker than its bytes take to be read or its operations to be made (roofline:
    Williams, Waterman, Patterson, CACM 2009), so neither can all of them together.
    """
    if not done or not limits:
        return None
    middle = Limits(
        bytes_per_s=median(reading.bytes_per_s for reading in limits),
        ops_per_s=median(reading.ops_per_s for reading in limits),
        kind=limits[0].kind,
        attention_ops_per_s=median(reading.attention_ops_per_s for reading in limits),
    )
    return median(tokens / middle.least_s(work) for tokens, work in done)
