"""Traces as Vidur writes them: arrived_at in seconds, num_prefill_tokens, num_decode_tokens.

Its files of lengths alone (num_prefill_tokens, num_decode_tokens, without times) are read, too:
all requests come at 0, and the load gives them their times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.bench.traces.csv_table import read_table
from headrace.bench.traces.row import TraceRow

LENGTH_COLUMNS = ("num_prefill_tokens", "num_decode_tokens")
COLUMNS = ("arrived_at", *LENGTH_COLUMNS)


def rows(path: Path) -> Iterator[TraceRow]:
    """The file's rows in its order."""
    for at, prompt, output in read_table(path, COLUMNS):
        yield TraceRow(
            at_ns=at.seconds_ns(), prompt_tokens=prompt.tokens(), output_tokens=output.tokens()
        )


def lengths(path: Path) -> Iterator[TraceRow]:
    """The rows of a file without times."""
    for prompt, output in read_table(path, LENGTH_COLUMNS):
        yield TraceRow(at_ns=0, prompt_tokens=prompt.tokens(), output_tokens=output.tokens())
