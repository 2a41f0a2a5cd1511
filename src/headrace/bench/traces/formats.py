"""The formats of traces that are known, and which of them a file has.

A format is known by its first line: the columns of a CSV file, the fields of the first object of a
JSONL file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from headrace.bench.prompts.read_json import unreadable
from headrace.bench.traces import azure, burstgpt, mooncake, vidur
from headrace.bench.traces.csv_table import header_of
from headrace.bench.traces.row import NS_PER_S, Trace, TraceRow, settled
from headrace.errors import ConfigError, shown

# A file of one endless line is no trace; this much of it is enough to see that.
_FIRST_LINE_CHARACTERS = 1_000_000


class TraceFormat(NamedTuple):
    """A format. `fields`: those that a file must have, of a header or of a first object."""

    title: str
    fields: tuple[str, ...]
    rows: Callable[[Path], Iterator[TraceRow]]
    is_csv: bool = True
    timed: bool = True


# The first that fits is taken: Vidur's files of lengths have some of the columns of those with
# times.
FORMATS: MappingProxyType[str, TraceFormat] = MappingProxyType(
    {
        "azure": TraceFormat("Azure LLM inference trace, 2023 or 2024", azure.COLUMNS, azure.rows),
        "burstgpt": TraceFormat("BurstGPT", burstgpt.COLUMNS, burstgpt.rows),
        "mooncake": TraceFormat("Mooncake", mooncake.FIELDS, mooncake.rows, is_csv=False),
        "vidur": TraceFormat("Vidur", vidur.COLUMNS, vidur.rows),
        "vidur-lengths": TraceFormat(
            "Vidur, lengths without times", vidur.LENGTH_COLUMNS, vidur.lengths, timed=False
        ),
    }
)


def detect(path: Path) -> str:
    """The name of the file's format. Raises ConfigError, with what is known, for any other."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline(_FIRST_LINE_CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    columns, fields = set(header_of(first)), _fields(first)
    for name, known in FORMATS.items():
        if set(known.fields) <= (columns if known.is_csv else fields):
            return name
    listed = "; ".join(f"{name} ({', '.join(known.fields)})" for name, known in FORMATS.items())
    raise ConfigError(
        f"{path}:1: {shown(first[:80].rstrip())} is not the first line of a known trace "
        f"format; the formats are {listed}"
    )


def read_trace(
    path: Path,
    *,
    format_name: str | None = None,
    limit: int | None = None,
    skip: int = 0,
    duration_s: float | None = None,
    block_tokens: int | None = None,
) -> Trace:
    """A trace, or the part of it after `skip` rows, of `limit` rows or `duration_s` seconds.

    Rows are those of the file, failed requests among them, and the duration ends with the first row
    beyond it; nothing further is read. format_name: of FORMATS; None looks at the file.
    block_tokens: where hash ids are of blocks of another size than Mooncake's 512. Raises
    ConfigError for a format, a part or a row that is wrong.
    """
    name = format_name or detect(path)
    known = FORMATS.get(name)
    if known is None:
        raise ConfigError(f"trace format {shown(name)}: must be one of {', '.join(FORMATS)}")
    if skip < 0 or (limit is not None and limit < 1):
        raise ConfigError(f"trace rows: skip {skip} and limit {limit} must be 0 and 1 or more")
    if duration_s is not None and not 0 < duration_s < math.inf:
        raise ConfigError(f"trace duration {duration_s} s: must be above 0 and finite")
    if block_tokens is not None and block_tokens < 1:
        raise ConfigError(f"block size {block_tokens}: must be 1 token or more")
    blocks = None
    rows = known.rows(path)
    if name == "mooncake":
        blocks = block_tokens or mooncake.BLOCK_TOKENS
        rows = mooncake.rows(path, blocks)
    part: Iterator[TraceRow] = islice(rows, skip, None if limit is None else skip + limit)
    if duration_s is not None:
        part = _within(part, duration_s)
    return settled(path.name, name, list(part), block_tokens=blocks, timed=known.timed)


def _within(rows: Iterator[TraceRow], duration_s: float) -> Iterator[TraceRow]:
    """Rows until one that comes so long after the first."""
    end_ns: int | None = None
    for row in rows:
        end_ns = row.at_ns + round(duration_s * NS_PER_S) if end_ns is None else end_ns
        if row.at_ns > end_ns:
            return
        yield row


def _fields(first: str) -> set[str]:
    try:
        found = msgspec.json.decode(first)
    except (msgspec.DecodeError, RecursionError):
        return set()
    return set(found) if isinstance(found, dict) else set()
