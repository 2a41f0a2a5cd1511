"""Near-duplicates: how much of a text was already seen, in runs of five lines.

Exact hashes miss a vendored copy with another import line; runs of lines do not. Only the hashes
of the runs are kept, so a corpus of a hundred megabytes needs tens of megabytes here.
"""

from __future__ import annotations

import hashlib

# Five lines are rarely alike by chance (licence headers are cut before, see corpus.py).
RUN_LINES = 5


class SeenRuns:
    """The runs of lines of every text added so far."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def share_seen(self, text: str) -> float:
        """The share of the runs of `text` that some added text holds; 0 for a text of one run."""
        runs = _runs(text)
        return sum(run in self._seen for run in runs) / len(runs) if len(runs) > 1 else 0.0

    def add(self, text: str) -> None:
        self._seen.update(_runs(text))


def _runs(text: str) -> list[bytes]:
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    return [
        hashlib.blake2b("\n".join(lines[at : at + RUN_LINES]).encode(), digest_size=8).digest()
        for at in range(max(1, len(lines) - RUN_LINES + 1))
    ]
