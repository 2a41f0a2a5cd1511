"""Azure's LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens.

In 2023 a time is `2023-11-16 18:15:46.6805900`, to 100 ns; in 2024 it also says its zone and may
lack the fraction: `2024-05-12 00:00:00.003930+00:00`. The files of 2024 hold a week each, tens of
millions of rows: read a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from headrace.bench.traces.csv_table import Cell, read_table
from headrace.bench.traces.row import NS_PER_S, TraceRow

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_TIME = re.compile(
    r"(?P<second>[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9}))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows(path: Path) -> Iterator[TraceRow]:
    """The file's rows in its order; times are counted from 1970."""
    for at, prompt, output in read_table(path, COLUMNS):
        yield TraceRow(at_ns=_ns(at), prompt_tokens=prompt.tokens(), output_tokens=output.tokens())


def _ns(cell: Cell) -> int:
    """Nanoseconds since 1970; a time without a zone is taken for UTC.

    The fraction is read apart: a datetime keeps six digits of the seven that there are.
    """
    found = _TIME.fullmatch(cell.text)
    if not found:
        raise cell.error("must be a time like 2023-11-16 18:15:46.6805900; correct the row")
    try:
        moment = datetime.fromisoformat(f"{found['second']}{found['zone'] or '+00:00'}")
    except ValueError as error:
        raise cell.error(f"is not a time ({error}); correct the row") from error
    passed = moment - _EPOCH
    seconds = passed.days * 86_400 + passed.seconds
    return seconds * NS_PER_S + int((found["fraction"] or "0").ljust(9, "0"))
