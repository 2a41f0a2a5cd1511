"""Terms of a key with some of them changed; what is not named stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.gateway.accounts.terms import Budget, Limits, Terms


def dollar_budgets(terms: Terms) -> tuple[Budget, ...]:
    """Those in dollars that count every model."""
    return tuple(one for one in terms.budgets if _is_of_dollars(one))


def with_dollar_budgets(terms: Terms, wanted: Sequence[Budget]) -> Terms:
    """Others in their place. One of the same window keeps what else was said of it, and what was
    spent of it; it is raised no more. Raises ConfigError."""
    before = {(one.window, one.calendar): one for one in dollar_budgets(terms)}
    kept = tuple(one for one in terms.budgets if not _is_of_dollars(one))
    changed = tuple(
        msgspec.structs.replace(
            before.get((one.window, one.calendar), one),
            amount=one.amount, raised_to=None, raised_until_ms=None,
        )
        for one in wanted
    )  # fmt: skip
    return msgspec.structs.replace(terms, budgets=kept + changed)


def with_limits(terms: Terms, changed: dict[str, int | None]) -> Terms:
    """changed: rpm, tpm, concurrency of all models; None takes it away. Raises ConfigError."""
    before = next((one for one in terms.limits if one.model == "*"), Limits())
    after = msgspec.structs.replace(before, **changed)
    kept = tuple(one for one in terms.limits if one.model != "*")
    return msgspec.structs.replace(terms, limits=kept if after == Limits() else (after, *kept))


def _is_of_dollars(budget: Budget) -> bool:
    return budget.unit == "nusd" and budget.model == "*"
