"""Where two catalogs differ, and which prices changed between two days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Literal

import msgspec

from headrace.catalog.catalog import Catalog
from headrace.catalog.fact import Fact
from headrace.catalog.rows import KINDS, Price, Row

# The dates of a dated row are not a change of price.
_OF_THE_ROW = frozenset({"provider", "model", "effective_from", "effective_to", "in_use"})


class Difference(msgspec.Struct, frozen=True):
    """A fact that differs between two catalogs, or a price between two days."""

    kind: str
    row: str
    """The id, or "provider model" where prices of two days are compared."""
    field: str
    old: Fact | None
    """None where the old side does not have it."""
    new: Fact | None
    """None where the new side does not have it."""
    of_row: Literal["new", "gone", "both"] = "both"
    """Whether the row as a whole is new or gone, or is on both sides."""

    @property
    def of_value(self) -> bool:
        """Whether the value or its unit differs; else only source, date or the like do."""
        if self.old is None or self.new is None:
            return True
        return (self.old.value, self.old.unit) != (self.new.value, self.new.unit)


def differences(old: Catalog, new: Catalog, kinds: Iterable[str] = KINDS) -> list[Difference]:
    """Every fact in which `new` differs, in the order of its kinds and rows."""
    found: list[Difference] = []
    for kind in kinds:
        before = {row.id: row for row in old.table(kind)}
        after = {row.id: row for row in new.table(kind)}
        for row_id in dict.fromkeys([*before, *after]):
            found += _of_rows(kind, row_id, before.get(row_id), after.get(row_id))
    return found


def price_differences(catalog: Catalog, old: dt.date, new: dt.date) -> list[Difference]:
    """What changed between two days in the prices in force, by provider and model."""
    sold: dict[tuple[str, str], list[Price]] = {}
    for price in catalog.prices:
        if price.in_use:
            product = catalog.provider_id(price.provider), catalog.model_id(price.model)
            sold.setdefault(product, []).append(price)
    return [
        difference
        for (provider, model), prices in sold.items()
        for difference in _of_rows(
            "price",
            f"{provider} {model}",
            _in_force(prices, old),
            _in_force(prices, new),
            _OF_THE_ROW,
        )
    ]


def _in_force(prices: list[Price], day: dt.date) -> Price | None:
    now = [price for price in prices if price.holds_on(day)]
    return max(now, key=lambda price: price.effective_from) if now else None


def _of_rows(
    kind: str,
    row: str,
    old: Row | None,
    new: Row | None,
    without: frozenset[str] = frozenset(),
) -> list[Difference]:
    before = dict(old.facts) if old else {}
    after = dict(new.facts) if new else {}
    of_row: Literal["new", "gone", "both"] = "new" if old is None else "both"
    if new is None:
        of_row = "gone"
    return [
        Difference(kind, row, field, before.get(field), after.get(field), of_row)
        for field in dict.fromkeys([*before, *after])
        if field not in without and not _same(before.get(field), after.get(field))
    ]


def _same(old: Fact | None, new: Fact | None) -> bool:
    return old is not None and new is not None and old.says_the_same(new)
