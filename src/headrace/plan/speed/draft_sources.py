"""Where drafts were counted, as an option names it: a server, a text of its /metrics, or a run.

A run is a folder that `headrace bench load --save` wrote or its result.json, whose metrics.jsonl is
read from the first to the last reading; or what `headrace bench load --json` or `bench report
--json` printed, which has the counts of the measured span.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.errors import ConfigError, shown
from headrace.plan.run_file import is_run, read_run
from headrace.telemetry.draft_counts import DraftCounts, counts_of_readings, counts_of_text

Fetch = Callable[[str], str]
"""The text of a server's /metrics, by its address; raises ConfigError."""

_MOST_BYTES = 64 << 20
_ROWS = "vllm:spec_decode_num_drafts_total"


class _Server(msgspec.Struct, frozen=True):
    drafts: DraftCounts | None = None


class _Summary(msgspec.Struct, frozen=True):
    server: _Server | None = None


class _Printed(msgspec.Struct, frozen=True):
    summary: _Summary


def is_address(text: str) -> bool:
    """Whether it is a server's."""
    return text.startswith(("http://", "https://"))


def read_draft_counts(option: str, text: str, fetch: Fetch | None = None) -> DraftCounts:
    """The counts that an option names. fetch: None where no server is asked.

    Raises ConfigError naming the option where nothing there counts drafts.
    """
    counts = _counts(option, text, fetch)
    if counts is None:
        raise ConfigError(
            f"{option}: {shown(text)} has no drafts: {_ROWS} has to be above 0 there, and of a run "
            "be read before and after it"
        )
    return counts


def _counts(option: str, text: str, fetch: Fetch | None) -> DraftCounts | None:
    if is_address(text):
        if fetch is None:
            raise ConfigError(f"{option} is {shown(text)}; name a file")
        return counts_of_text(fetch(text))
    path = Path(text).expanduser()
    if is_run(path):
        return counts_of_readings(read_run(path).readings)
    return counts_of_file(read_text(option, path))


def counts_of_file(content: str) -> DraftCounts | None:
    """Of what `bench load --json` printed, or a text of /metrics; None of anything else."""
    if content.lstrip().startswith("{"):
        try:
            server = msgspec.json.decode(content, type=_Printed).summary.server
        except (msgspec.DecodeError, RecursionError):
            return None
        return None if server is None else server.drafts
    return counts_of_text(content)


def read_text(option: str, path: Path) -> str:
    """Of a file that an option names; raises ConfigError."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{option}: {shown(str(path))} cannot be read: {error.strerror}; name a server, a text "
            "of its /metrics, or a result of `headrace bench load`"
        ) from error
