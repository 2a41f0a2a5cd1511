"""One request of a trace, whatever its format, and a trace as read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import msgspec

from headrace.bench.prompts.lengths import FromPairs, Size
from headrace.errors import ConfigError

NS_PER_S = 1_000_000_000
# Ten years: a longer one is an error of units or a damaged row.
MAX_DURATION_NS = 315_576_000 * NS_PER_S


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival of a request, in the trace's own time, and its lengths in tokens."""

    at_ns: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] | None = None
    """An id for each started block of the prompt, of the trace's block size; equal ids mean equal
    tokens up to there. None if the trace has none."""


class Trace:
    """Rows in order of time, the first at 0.

    block_tokens: of the rows' blocks, None without any. timed: whether the times are the file's; if
    it has none, all are 0. `notes` says what was left out or put in order.
    """

    def __init__(
        self,
        name: str,
        format_name: str,
        rows: Sequence[TraceRow],
        *,
        block_tokens: int | None = None,
        timed: bool = True,
        notes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.format_name = format_name
        self.rows = tuple(rows)
        self.block_tokens = block_tokens
        self.timed = timed
        self.notes = tuple(notes)

    @cached_property
    def digest(self) -> bytes:
        """Equal ones have the same times, lengths and blocks."""
        digest = hashlib.sha256(f"{self.block_tokens}:".encode())
        for row in self.rows:
            digest.update(msgspec.json.encode(row))
        return digest.digest()

    @property
    def duration_ns(self) -> int:
        """From the first row to the last."""
        return self.rows[-1].at_ns if self.rows else 0

    def sizes(self) -> FromPairs:
        """The rows' lengths, for loads that take the lengths of a trace but not its times."""
        return FromPairs(tuple(Size(row.prompt_tokens, row.output_tokens) for row in self.rows))


def settled(
    name: str,
    format_name: str,
    rows: Sequence[TraceRow],
    *,
    block_tokens: int | None = None,
    timed: bool = True,
) -> Trace:
    """Rows as a file has them, made ready: without those that nobody can send, in order, from 0.

    A request without a prompt or without an answer is a failed one in these traces. Raises
    ConfigError where nothing is left.
    """
    kept = [row for row in rows if row.prompt_tokens and row.output_tokens]
    notes = []
    if len(kept) < len(rows):
        notes.append(
            f"{name}: {len(rows) - len(kept)} of {len(rows)} rows skipped, with no tokens in "
            "prompt or answer"
        )
    if not kept:
        raise ConfigError(
            f"{name}: the chosen part has no requests; choose more rows or another part"
        )
    ordered = sorted(kept, key=lambda row: row.at_ns)
    if ordered != kept:
        notes.append(f"{name}: rows were not in order of time and have been sorted")
    start = ordered[0].at_ns
    moved = [msgspec.structs.replace(row, at_ns=row.at_ns - start) for row in ordered]
    if moved[-1].at_ns > MAX_DURATION_NS:
        raise ConfigError(
            f"{name}: first and last row are {moved[-1].at_ns / NS_PER_S:.0f} s apart, more "
            "than ten years; correct the times"
        )
    return Trace(name, format_name, moved, block_tokens=block_tokens, timed=timed, notes=notes)
