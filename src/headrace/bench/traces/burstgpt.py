"""BurstGPT's traces: seconds, tokens of request and response, model and kind of log.

Two layouts are known, without and with `Session ID` and `Elapsed time`; the columns used here are
in both. Responses of 0 tokens are failed requests. Sessions are not replayed as conversations: the
trace says when each request came, and a session's next turn would wait for an answer instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.bench.traces.csv_table import read_table
from headrace.bench.traces.row import TraceRow

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def rows(path: Path) -> Iterator[TraceRow]:
    """The file's rows in its order; times are counted from the first day's midnight."""
    for at, prompt, output in read_table(path, COLUMNS):
        yield TraceRow(
            at_ns=at.seconds_ns(), prompt_tokens=prompt.tokens(), output_tokens=output.tokens()
        )
