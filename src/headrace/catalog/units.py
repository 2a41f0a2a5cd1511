"""Units of facts: what they are called, and how quantities such as "3.35 TB/s" are read.

A field has one unit, which its name says too (`bandwidth_bytes_per_s`); files may write any prefix
of it. GB is 10^9 and GiB is 2^30. Links are stated per direction, so there is no unit for both.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}b/s": factor / 8 for prefix, factor in _DECIMAL.items() if prefix}

# Base unit -> what may be written -> how many base units that is.
SPELLINGS: dict[str, dict[str, float]] = {
    "byte": {"byte": 1.0, "bytes": 1.0, **_BYTES},
    "byte/s": {"byte/s": 1.0, **{f"{name}/s": factor for name, factor in _BYTES.items()}, **_BITS},
    "byte/token": {"byte/token": 1.0, **{f"{k}/token": v for k, v in _BYTES.items()}},
    # Vendors write OP/s for integers; a multiply and an add are two of either.
    "FLOP/s": {
        f"{prefix}{word}": factor
        for prefix, factor in _DECIMAL.items()
        for word in ("FLOP/s", "OP/s")
    },
    "FLOP/byte": {"FLOP/byte": 1.0},
    "FLOP/token": {"FLOP/token": 1.0},
    "W": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "kWh": {"kWh": 1.0, "MWh": 1e3},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0, "day": 86400.0},
    "USD": {"USD": 1.0},
    "USD/h": {"USD/h": 1.0},
    "USD/month": {"USD/month": 1.0},
    "USD/kWh": {"USD/kWh": 1.0},
    "USD/1M tokens": {"USD/1M tokens": 1.0},
    "parameters": {"parameters": 1.0, "M parameters": 1e6, "B parameters": 1e9,
                   "T parameters": 1e12},
    "tokens": {"tokens": 1.0, "k tokens": 1e3, "Ki tokens": 2.0**10, "M tokens": 1e6},
    "tokens/s": {"tokens/s": 1.0},
    "tokens/word": {"tokens/word": 1.0},
    "characters/token": {"characters/token": 1.0},
    "words/token": {"words/token": 1.0},
    "words/min": {"words/min": 1.0},
    "requests": {"requests": 1.0},
    "requests/s": {"requests/s": 1.0},
    "requests/day": {"requests/day": 1.0},
    "tokens/month": {"tokens/month": 1.0, "M tokens/month": 1e6, "B tokens/month": 1e9},
    "tokens/h": {"tokens/h": 1.0, "M tokens/h": 1e6},
    "bits": {"bits": 1.0},
    "bits/weight": {"bits/weight": 1.0},
    "perplexity": {"perplexity": 1.0},
    "share": {"share": 1.0, "%": 0.01},
    "x": {"x": 1.0},
    "year": {"year": 1.0},
    "": {"": 1.0},
}  # fmt: skip

_QUANTITY = re.compile(r"([+-]?[\d_.]+(?:e[+-]?\d+)?)\s*(.+)")


def known_unit(text: str) -> str | None:
    """The base unit that `text` is a spelling of; None where it is none."""
    for base, spellings in SPELLINGS.items():
        if text in spellings:
            return base
    return None


def parse_quantity(text: str, unit: str) -> float:
    """The number of base units in `text`, e.g. 3.35e12 for "3.35 TB/s" with unit "byte/s".

    Raises ValueError naming the spellings of the unit.
    """
    spellings = SPELLINGS[unit]
    found = _QUANTITY.fullmatch(text.strip())
    factor = spellings.get(found[2].strip()) if found else None
    if found is None or factor is None:
        raise ValueError(
            f"write a number of {unit or 'nothing'}, or with one of: {_list(spellings)}"
        )
    try:
        # Binary fractions would add digits of their own: 1.792 TB/s is 1,792,000,000,000.
        return float(Decimal(found[1].replace("_", "")) * Decimal(str(factor)))
    except InvalidOperation:
        raise ValueError(f"{found[1]!r} is not a number") from None


def _list(spellings: dict[str, float]) -> str:
    return ", ".join(name for name in spellings if name)
