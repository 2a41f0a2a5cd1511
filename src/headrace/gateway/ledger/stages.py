"""The record of a model made of others: which model answered, the cost on the way, and times.

Times are by nearest rank, costs exact sums of whole nano-dollars; requests of unknown price are
counted beside them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.gateway.ledger.days import Days
from headrace.gateway.serving.entry import AttemptEntry
from headrace.protocol.neutral.usage import TokenUsage

_LINES = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
_COLUMNS = ", ".join(
    ("id", "variant", "outcome", "cost_nusd", "total_ms", "usage_from", "attempts", *_LINES)
)
_attempts = msgspec.json.Decoder(tuple[AttemptEntry, ...])
# Enough for a median that holds; older ones tell of other days.
_NEWEST = 1000


class StageCount(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one stage's model."""

    model: str
    asked: int
    """How often it answered."""
    told: int
    """How often that answer was returned to the client."""
    cost_nusd: int
    """Of all its answers."""
    unknown_cost: int
    lasted_ms_p50: float | None
    """Of one answer."""

    @property
    def share(self) -> float | None:
        """The share of its answers that were returned to the client."""
        return self.told / self.asked if self.asked else None


class BesidesCount(msgspec.Struct, frozen=True, kw_only=True):
    """Questions of the gateway's own: to judges and routers."""

    purpose: str
    answers: int
    cost_nusd: int
    unknown_cost: int
    lasted_ms_p50: float | None


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a composed model."""

    model: str
    requests: int
    """For the model, without those that the gateway's cache answered."""
    answered: int
    """Requests with an answer."""
    cost_nusd: int
    """Everything that was paid for them."""
    unknown_cost: int
    total_ms_p50: float | None
    total_ms_p95: float | None
    stages: tuple[StageCount, ...]
    besides: tuple[BesidesCount, ...]
    baseline: str
    baseline_nusd: int | None
    """About what they would have cost if `baseline` alone had answered them with as many tokens;
    None if its price or tokens are unknown."""

    @property
    def cost_per_request_nusd(self) -> float | None:
        """The cost per request, of those that took something."""
        return self.cost_nusd / self.answered if self.answered else None


class _Group:
    """Answers of one kind while they are counted."""

    def __init__(self) -> None:
        self.count = self.told = self.cost_nusd = self.unknown = 0
        self.lasted_ms: list[float] = []

    def take(self, cost_nusd: int | None, lasted_ms: float, *, told: bool) -> None:
        self.count += 1
        self.told += told
        self.cost_nusd += cost_nusd or 0
        self.unknown += cost_nusd is None
        self.lasted_ms.append(lasted_ms)


def stages_of(
    connection: sqlite3.Connection,
    model: str,
    stages: Sequence[str],
    baseline: str,
    baseline_cost: Callable[[TokenUsage], int | None],
    days: Days | None = None,
) -> Stages:
    """The counts of a composed model. stages: the models it is made of, in order. baseline_cost:
    the cost of an answer of the model `baseline`. Raises sqlite3.Error."""
    within = days or Days()
    since, before = within.since_ms or 0, within.before_ms or 2**62
    by_stage: dict[str, _Group] = {name: _Group() for name in stages}
    besides: dict[str, _Group] = {}
    ids: set[str] = set()
    total_ms: list[float] = []
    answered = cost = unknown = requests = 0
    would_cost: int | None = 0
    query = (
        f"SELECT {_COLUMNS} FROM requests WHERE model = ? AND purpose = '' AND cache = '' "
        "AND operation = 'chat' AND at_ms >= ? AND at_ms < ?"
    )
    for row in connection.execute(query, (model, since, before)):
        one = dict(zip(_COLUMNS.split(", "), row, strict=True))
        requests += 1
        ids.add(one["id"])
        if one["usage_from"] == "none":
            continue
        answered += one["outcome"] == "answered"
        total_ms.append(one["total_ms"])
        cost += one["cost_nusd"] or 0
        unknown += one["cost_nusd"] is None
        group = by_stage.setdefault(one["variant"], _Group())
        group.take(one["cost_nusd"], _lasted_ms(one["attempts"], one["total_ms"]), told=True)
        lines: dict[str, Any] = {name: one[name] or 0 for name in _LINES}
        spent = baseline_cost(TokenUsage(**lines))
        would_cost = None if spent is None or would_cost is None else would_cost + spent
    query = (
        "SELECT parent, model, purpose, cost_nusd, total_ms, outcome FROM requests "
        "WHERE purpose <> '' AND at_ms >= ? AND at_ms < ?"
    )
    for parent, asked, purpose, cost_nusd, lasted_ms, outcome in connection.execute(
        query, (since, before)
    ):
        if parent not in ids or purpose == "shadow":
            continue
        cost += cost_nusd or 0
        unknown += cost_nusd is None
        is_stage = purpose == "stage" and outcome == "answered"
        group = by_stage.setdefault(asked, _Group()) if is_stage else besides.setdefault(
            "cut" if purpose == "stage" else purpose, _Group()
        )  # fmt: skip
        group.take(cost_nusd, lasted_ms, told=False)
    return Stages(
        model=model,
        requests=requests,
        answered=answered,
        cost_nusd=cost,
        unknown_cost=unknown,
        total_ms_p50=rank(total_ms, 50),
        total_ms_p95=rank(total_ms, 95),
        stages=tuple(
            StageCount(
                model=name,
                asked=one.count,
                told=one.told,
                cost_nusd=one.cost_nusd,
                unknown_cost=one.unknown,
                lasted_ms_p50=rank(one.lasted_ms, 50),
            )
            for name, one in by_stage.items()
        ),
        besides=tuple(
            BesidesCount(
                purpose=name,
                answers=one.count,
                cost_nusd=one.cost_nusd,
                unknown_cost=one.unknown,
                lasted_ms_p50=rank(one.lasted_ms, 50),
            )
            for name, one in sorted(besides.items())
        ),
        baseline=baseline,
        baseline_nusd=would_cost if answered else None,
    )


def lasted_s(connection: sqlite3.Connection, targets: Sequence[str]) -> float | None:
    """The median time of answers of any of `targets`, of the newest; None where there are none."""
    marks = ", ".join("?" for _ in targets)
    query = (
        f"SELECT attempts, total_ms FROM requests WHERE target IN ({marks}) AND cache = '' "
        "AND outcome = 'answered' AND operation = 'chat' ORDER BY number DESC LIMIT ?"
    )
    found = [
        _lasted_ms(attempts, total_ms)
        for attempts, total_ms in connection.execute(query, (*targets, _NEWEST))
    ]
    middle = rank(found, 50)
    return None if middle is None else middle / 1000


def rank(values: list[float], percent: int) -> float | None:
    """The smallest value that so many per cent do not exceed."""
    if not values:
        return None
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def _lasted_ms(attempts: str, total_ms: float) -> float:
    """The time of the answer alone, without earlier attempts."""
    try:
        listed: Sequence[Any] = _attempts.decode(attempts)
    except msgspec.MsgspecError:
        return total_ms
    return listed[-1].lasted_ms if listed else total_ms
