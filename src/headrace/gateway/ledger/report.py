"""A usage report as programs and spreadsheets take it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from headrace.gateway.accounts.errors import amount_text
from headrace.gateway.ledger.usage import Usage, as_dict

# What spreadsheets take for the beginning of a formula; clients choose the names of models.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def dollars(nusd: int) -> str:
    """Nano-dollars as a number of dollars, exact: at least two decimals, at most nine."""
    return amount_text(nusd, "nusd").replace("$", "")


def fields_of(one: Usage, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Every column, the grouping first, and the cost in dollars last, None if all of it is unknown.
    labels: labels of keys by id, for a column `key_label` if it groups by key."""
    nobody_knows = one.unknown_cost and not one.cost_nusd
    fields = {**as_dict(one), "cost_usd": None if nobody_knows else dollars(one.cost_nusd)}
    if labels is not None and "key" in one.by:
        fields["key_label"] = labels.get(one.by["key"], "")
    return fields


def write_csv(
    file: TextIO,
    names: Sequence[str],
    found: Sequence[Usage],
    labels: Mapping[str, str] | None = None,
) -> None:
    """names: what the report is grouped by. labels: see `fields_of`."""
    columns = [*names, *(one for one in Usage.__struct_fields__ if one != "by"), "cost_usd"]
    texts = list(names)
    if labels is not None and "key" in names:
        columns.append("key_label")
        texts.append("key_label")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for one in found:
        fields = fields_of(one, labels)
        for name in texts:
            if fields[name].startswith(_FORMULAS):
                fields[name] = "'" + fields[name]
        writer.writerow(fields)
