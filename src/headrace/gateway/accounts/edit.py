"""Terms of a key with some of them changed; what is not named stays as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.terms import Budget, Limits, Terms

PriorityWord = Literal["high", "normal", "low"]
# As engines have it: lower goes first, and who says nothing has 0.
PRIORITIES: Mapping[PriorityWord, int] = {"high": -1, "normal": 0, "low": 1}
_OF_POLICY = ("data_collection", "zero_retention", "regions")


def dollar_budgets(terms: Terms) -> tuple[Budget, ...]:
    """The budgets in dollars that count every model."""
    return tuple(budget for budget in terms.budgets if _is_of_dollars(budget))


def with_dollar_budgets(terms: Terms, wanted: Sequence[Budget]) -> Terms:
    """Others in their place. One of the same window keeps what else was said of it, and what was
    spent of it; it is raised as it says here, or no more. Raises ConfigError."""
    before = {(budget.window, budget.calendar): budget for budget in dollar_budgets(terms)}
    kept = tuple(one for one in terms.budgets if not _is_of_dollars(one))
    changed = tuple(
        msgspec.structs.replace(
            before.get((one.window, one.calendar), one),
            amount=one.amount, raised_to=one.raised_to, raised_until_ms=one.raised_until_ms,
        )
        for one in wanted
    )  # fmt: skip
    return msgspec.structs.replace(terms, budgets=kept + changed)


def with_limits(terms: Terms, changed: dict[str, int | None]) -> Terms:
    """changed: rpm, tpm, concurrency of all models; None takes it away. Raises ConfigError."""
    before = next((limit for limit in terms.limits if limit.model == "*"), Limits())
    after = msgspec.structs.replace(before, **changed)
    kept = tuple(one for one in terms.limits if one.model != "*")
    return msgspec.structs.replace(terms, limits=kept if after == Limits() else (after, *kept))


def with_traits(terms: Terms, changed: Mapping[str, Any]) -> Terms:
    """changed: tags, guardrails, priority, when_stores_are_down, and data_collection,
    zero_retention and regions of the data policy, each as these have it."""
    policy = {name: changed[name] for name in _OF_POLICY if name in changed}
    own = {name: value for name, value in changed.items() if name not in _OF_POLICY}
    if policy:
        own["data_policy"] = msgspec.structs.replace(terms.data_policy, **policy)
    return msgspec.structs.replace(terms, **own)


def priority_of(value: PriorityWord | int | None) -> int | None:
    """The priority as a number."""
    return PRIORITIES[value] if isinstance(value, str) else value


def check_guardrails(named: Iterable[str], known: Collection[str]) -> None:
    """Raises ConfigError for one that the gateway's file has not: its key could ask nothing."""
    for name in named:
        if name not in known:
            meant = nearest(name, known)
            raise ConfigError(
                f"guardrails: {shown(name)} is not a guardrail of this gateway{meant}"
            )


def _is_of_dollars(budget: Budget) -> bool:
    return budget.unit == "nusd" and budget.model == "*"
