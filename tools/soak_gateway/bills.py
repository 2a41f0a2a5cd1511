"""The ledger beside what providers told and clients saw."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.soak_gateway.client import STATUSES, Seen
from tools.soak_gateway.gateway import INPUT_USD, OUTPUT_USD
from tools.soak_gateway.provider import Told

# Nano-dollars per token of a price per million tokens.
_INPUT_NUSD, _OUTPUT_NUSD = round(INPUT_USD * 1000), round(OUTPUT_USD * 1000)
_COLUMNS = "id, outcome, status, cache, usage_from, cost_nusd, input_tokens, output_tokens, purpose"
# What leaves no line, or leaves one where the key was right.
_MAY_LEAVE_NONE = ("half a body", "leaves early", "no JSON", "too large", "wrong key")


def problems(
    ledger: Path, seen: Sequence[Seen], told: Mapping[int, Sequence[Told]], counts: Counter[str]
) -> list[str]:
    """What does not agree; counts hears how many lines of which kind there are."""
    connection = sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)
    rows = connection.execute(f"SELECT {_COLUMNS} FROM requests").fetchall()
    connection.close()
    found: list[str] = []
    by_id = {one.planned.id: one for one in seen}
    lines = Counter(row[0] for row in rows if not row[-1])
    found += [f"{name} has {many} lines" for name, many in lines.items() if many > 1]
    for name, one in by_id.items():
        if name not in lines and one.planned.fate not in _MAY_LEAVE_NONE:
            found.append(f"no line: {one}")
    for row in rows:
        name, outcome, status, cache, usage_from, cost, read, written, _ = row
        counts[f"line: {outcome}{' from the cache' if cache else ''}"] += 1
        there = by_id.get(name.partition("/")[0])  # also of what was paid for besides it
        if there is None:
            found.append(f"a line of nobody: {row}")
            continue
        if usage_from == "none":
            continue
        price = 0 if cache else read * _INPUT_NUSD + written * _OUTPUT_NUSD
        if cost != price:
            found.append(f"billed {cost}, {price} expected: {row}")
        if usage_from == "provider" and not cache:
            counts["bills compared"] += 1
            if Told(read, written) not in told.get(there.planned.prompted, ()):
                found.append(f"no provider told this: {row}")
        if outcome == "answered" and there.status not in (None, status):
            found.append(f"the client saw {there.status}: {row}")
    return found


def misunderstood(one: Seen) -> str | None:
    """What a client saw and should not have."""
    planned = one.planned
    expected = STATUSES.get(planned.fate)
    if expected is not None:
        # A server may close before all of a body that is too large was sent.
        gone = planned.fate == "too large" and one.status is None
        return None if one.status == expected or gone else f"{expected} expected: {one}"
    if one.status is None and planned.fate in ("reads", "reads slowly", "leaves in the middle"):
        return f"no reply: {one}"
    if one.status not in (None, 200, 429, 500, 502, 503, 504):
        return f"an odd status: {one}"
    return None
