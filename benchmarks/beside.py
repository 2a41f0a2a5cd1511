"""Cases of `headrace bench against` beside servers that are started here, as rows with their aims.

The cases, the pairs in turns, the ratios, the machine's limits and the largest ratio that they
allow are that command's; here stand the peers' command lines, what was aimed at, and the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.markdown import table, tell
from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.turns import CaseResult

MET_SHARE = 0.85
"""Of the limit that binds: an aim is met as well where headrace reaches it."""
Aim: TypeAlias = float | Literal["share"]
"""A ratio to reach, or `share` where there is none and MET_SHARE alone is aimed at."""
NO_DRAFTS = ("--speculative-config", "none")
"""Answers of random weights repeat themselves, and guesses would be counted as speed."""
REQUEST_TIMEOUT_S = 3600
"""Of the largest case: llama-server reads 131,072 tokens for 32 requests behind 4,096 before the
last of them has its first, which takes two cores a quarter of an hour."""


class Session(NamedTuple):
    """Both servers from their start to their end. command: the peer's, with {port} in it."""

    command: str
    cases: Sequence[AgainstCase]
    minutes: float


class Row(NamedTuple):
    """A case of one model, or of one kind of weights."""

    model: str
    name: str
    result: CaseResult

    @property
    def ratio(self) -> float:
        """The median over pairs."""
        return median(self.result.ratios)


class Measured(NamedTuple):
    """Rows of a session, with lines that say what ran and what the machine was."""

    rows: list[Row]
    lines: list[str]


def measured(name: str, model: Path, session: Session, serve: Sequence[str]) -> Measured:
    """One session. model: its whole path. serve: options of our server. Raises SystemExit where
    nothing was measured.
    """
    command = [sys.executable, "-m", "headrace", "bench", "against", session.command, str(model)]
    command += ["--cases", ",".join(case.name for case in session.cases), "--json"]
    command += ["--minutes", str(session.minutes), "--timeout", str(REQUEST_TIMEOUT_S)]
    command += ["--", *NO_DRAFTS, *serve]
    # ik_llama.cpp's server writes a log where it runs.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=folder)
    if not done.stdout:
        raise SystemExit(f"{name}: nothing was measured (status {done.returncode})")
    found = json.loads(done.stdout)
    rows, lines = [], [*_server_lines(found), _limits_line(found["limits"])]
    for result in msgspec.convert(found["results"], list[CaseResult]):
        if not result.ours:
            lines.append(f"{name}, {result.case}: not measured: {result.why_missing}")
            continue
        rows.append(Row(name, result.case, result))
        tell(" | ".join(map(str, cells(rows[-1], None))))
    return Measured(rows, lines)


def first_touched(
    name: str, model: Path, session: Session, serve: Sequence[str], processes: int
) -> Measured:
    """The session's last case as the first of its kind, in so many fresh processes of each server.

    A case before it warms both up; what the last one needs beyond that was never touched.
    """
    every = [measured(name, model, session, serve) for _ in range(processes)]
    case = session.cases[-1].name
    last = [row.result for each in every for row in each.rows if row.name == case]
    if not last:
        return Measured([], every[-1].lines)
    of_first = CaseResult(
        case=case,
        ours=tuple(result.ours[0] for result in last),
        peer=tuple(result.peer[0] for result in last),
        most_tokens_per_s=last[-1].most_tokens_per_s,
    )
    return Measured([Row(name, f"{of_first.case}, first touch", of_first)], every[-1].lines)


def _server_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for side in ("headrace", "peer"):
        ready = found["ready_s"].get(side)
        yield (
            f"{side}: {found[side].get('build', '')}, ready after {ready:.1f} s: "
            f"`{found[side].get('command', '')}`"
        )


def _limits_line(limits: Sequence[Mapping[str, Any]]) -> str:
    reads = [limit["bytes_per_s"] / 1e9 for limit in limits]
    rates = [limit["ops_per_s"] / 1e9 for limit in limits]
    attention = [limit["attention_ops_per_s"] / 1e9 for limit in limits]
    kind = limits[0]["kind"] if limits else ""
    return (
        f"read {len(limits)} times: {spread(reads)} GB/s, {kind} {spread(rates, 0)} GOPS, "
        f"attention {spread(attention, 0)} GOPS"
    )


def verdict(aim: Aim, ratio: float, share: float | None, most_ratio: float | None) -> str | None:
    """Whether an aim is met: by the ratio, or by MET_SHARE of the limit that binds.

    The share alone judges where no ratio is aimed at, and where the one that is lies beyond
    `most_ratio`, the largest possible. None where there is neither a ratio to reach nor a share.
    """
    if aim != "share" and ratio >= aim:
        return "met"
    if share is not None and share >= MET_SHARE:
        return "met by share"
    if aim == "share":
        return None if share is None else "missed by share"
    return "missed by share" if most_ratio is not None and aim > most_ratio else "missed"


def columns(peer: str) -> tuple[str, ...]:
    """Heads of the table."""
    return (
        "", "case", "headrace, tokens/s", f"{peer}, tokens/s", "ratio", "largest possible",
        "of the limit", "aim", "",
    )  # fmt: skip


def cells(row: Row, aim: Aim | None) -> list[object]:
    """A row of the table."""
    result = row.result
    judged = None if aim is None else verdict(aim, row.ratio, result.share, result.most_ratio)
    return [
        row.model, row.name, spread(result.ours), spread(result.peer), spread(result.ratios, 2),
        None if result.most_ratio is None else f"{result.most_ratio:.2f}",
        None if result.share is None else f"{result.share:.0%}",
        f"{MET_SHARE:.0%} of the limit" if aim == "share" else aim, judged,
    ]  # fmt: skip


def report(peer: str, every: Sequence[Measured], aims: Mapping[tuple[str, str], Aim]) -> str:
    """The table of all sessions, and below it what ran. aims: by model and case."""
    rows = [row for each in every for row in each.rows]
    body = [cells(row, aims.get((row.model, row.name))) for row in rows]
    lines = dict.fromkeys(line for each in every for line in each.lines)
    return "\n".join([table(columns(peer), body), "", *(f"- {line}" for line in lines)])


def spread(values: Sequence[float], places: int = 1) -> str:
    """The median, and the range where there are several."""
    if not values:
        return "-"
    middle = f"{median(values):,.{places}f}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):,.{places}f}..{max(values):,.{places}f}]"
