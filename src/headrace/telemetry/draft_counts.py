"""What a server counted of drafts, and the figures that follow: one reading for all who compare.

Of rows with drafts, each of one request in one step:

    tokens of a step = 1 + accepted / rows        reached(j) = accepted at place j / rows

Of steps with drafts whose time the engine compared with one without (headrace's own counters):

    cost = seconds / seconds of as many without       speedup = tokens of a request / steps / cost
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.telemetry.readings import MOST_PLACES, Reading, growth, read_texts


class DraftCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a span, or since the start of a server. Rows are above 0."""

    rows: float
    drafted: float
    accepted: float
    accepted_by_place: tuple[float, ...] = ()
    compared_steps: float = 0.0
    """Steps with drafts that were compared; 0 where a server counts none."""
    compared_tokens: float = 0.0
    """Of a request, over those steps."""
    compared_s: float = 0.0
    plain_s: float = 0.0
    """With `compared_s`: what they took, and what as many without drafts would have."""

    @property
    def reached(self) -> tuple[float, ...]:
        """Shares of the rows whose first j drafts were accepted, by j from 1."""
        return tuple(each / self.rows for each in self.accepted_by_place)

    @property
    def tokens_per_step(self) -> float:
        return 1 + self.accepted / self.rows

    @property
    def drafts_per_row(self) -> float:
        return self.drafted / self.rows

    @property
    def cost_ratio(self) -> float | None:
        """A step with drafts, and making them, over one without; None where nobody compared."""
        return self.compared_s / self.plain_s if self.plain_s > 0 else None

    @property
    def speedup(self) -> float | None:
        """By drafts, of all requests of the steps that were compared."""
        cost = self.cost_ratio
        if not cost or self.compared_steps <= 0:
            return None
        return self.compared_tokens / self.compared_steps / cost


def counts_of_text(text: str) -> DraftCounts | None:
    """Of a /metrics text, since its server began; None where it counts no rows with drafts."""
    readings, _ = read_texts([(0, text)])
    return counts_of(readings[0].values) if readings else None


def counts_of_readings(readings: Sequence[Reading]) -> DraftCounts | None:
    """From the first to the last; None where no row had drafts, or that is not told twice."""
    names = {name for reading in readings for name in reading.values}
    grown = {name: growth(readings, name) for name in names & _NAMES.keys()}
    return counts_of({name: value for name, value in grown.items() if value is not None})


_NAMES = {
    "draft_rows": "rows", "drafted": "drafted", "accepted": "accepted",
    "compared_steps": "compared_steps", "compared_tokens": "compared_tokens",
    "compared_s": "compared_s", "plain_s": "plain_s",
    **{f"accepted_{place}": "" for place in range(MOST_PLACES)},
}  # fmt: skip
"""Short names of readings, with the field that each is."""


def counts_of(values: Mapping[str, float]) -> DraftCounts | None:
    """Of counters by their short names; None where no row had drafts."""
    if not values.get("draft_rows"):
        return None
    by_place: list[float] = []
    while len(by_place) < MOST_PLACES and f"accepted_{len(by_place)}" in values:
        by_place.append(values[f"accepted_{len(by_place)}"])
    fields = {field: values[name] for name, field in _NAMES.items() if field and name in values}
    for field in ("drafted", "accepted"):
        fields.setdefault(field, sum(by_place))
    return DraftCounts(**fields, accepted_by_place=tuple(by_place))
