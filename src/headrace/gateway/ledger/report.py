"""A usage report as programs and spreadsheets take it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from headrace.gateway.accounts.errors import amount_text
from headrace.gateway.ledger.usage import Usage, as_dict

# What spreadsheets take for the beginning of a formula; clients choose the names of models.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def dollars(nusd: int) -> str:
    """Nano-dollars as a number of dollars, exact: at least two decimals, at most nine."""
    return amount_text(nusd, "nusd").replace("$", "")


def fields_of(one: Usage) -> dict[str, Any]:
    """Every column, what it is of first, and the cost in dollars last."""
    return {**as_dict(one), "cost_usd": dollars(one.cost_nusd)}


def write_csv(file: TextIO, names: Sequence[str], found: Sequence[Usage]) -> None:
    """names: what the report is grouped by."""
    columns = [*names, *(one for one in Usage.__struct_fields__ if one != "by"), "cost_usd"]
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for one in found:
        fields = fields_of(one)
        for name in names:
            if fields[name].startswith(_FORMULAS):
                fields[name] = "'" + fields[name]
        writer.writerow(fields)
