"""Sides of an A/B test or a canary: who is on which, and when a side is taken out.

Who asks is hashed with the model's name to a place between 0 and 1, and the sides lie there one
after another in the order of the file. So the same user has the same side in every process, and
who is on the last side stays there while its weight grows.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.settings.traffic import AssignBy, RollbackSettings
from headrace.gateway.targets.target import Target
from headrace.protocol.json_object import JsonObject

logger = logging.getLogger(__name__)

HEADER = "x-headrace-variant"
EVERYBODY = "*"
_PLACES = 2**64
# Where a request does not say who asks, what else stays the same the longest.
_ELSE: dict[AssignBy, tuple[AssignBy, ...]] = {
    "user": ("user", "session", "key", "request"),
    "session": ("session", "user", "key", "request"),
    "key": ("key", "request"),
    "request": ("request",),
}


class Who(NamedTuple):
    """By what a request is given to a side; None for what it does not say. chosen: of the header.
    tags: of its key."""

    user: str | None = None
    session: str | None = None
    key: str | None = None
    request: str | None = None
    chosen: str | None = None
    tags: tuple[str, ...] = ()


NOBODY = Who()


class Variant(NamedTuple):
    """One side."""

    name: str
    weight: float
    targets: tuple[Target, ...]


class Side(NamedTuple):
    """A side in the order in which they are tried, with the reason for people."""

    variant: Variant
    reason: str


class TakenOut(NamedTuple):
    """A side that failed too often. Shares: of failed requests among the last of each side."""

    model: str
    variant: str
    error_share: float
    first_error_share: float
    over: int


class Variants:
    """State of one model. choosers: tags of keys that may name a side. on_taken_out: hears of a
    side that is taken out, once."""

    def __init__(
        self,
        model: str,
        sides: Sequence[Variant],
        assign_by: AssignBy,
        *,
        choosers: Sequence[str] = (),
        rollback: RollbackSettings | None = None,
        on_taken_out: Callable[[TakenOut], None] | None = None,
    ) -> None:
        self._model = model
        self.sides = tuple(sides)
        self._assign_by = assign_by
        self._choosers = frozenset(choosers)
        self._rollback = rollback
        self._on_taken_out = on_taken_out
        over = 0 if rollback is None else rollback.window_requests
        self._failed = {one.name: deque[bool](maxlen=over) for one in sides}
        self.out: dict[str, TakenOut] = {}

    @property
    def targets(self) -> tuple[Target, ...]:
        """Of all sides, each once."""
        every = {one.name: one for side in self.sides for one in side.targets}
        return tuple(every.values())

    def order(self, who: Who) -> list[Side]:
        """The side of who asks first, and then those that stand in for it: the first of the file
        and the others. Raises RequestError for a header that is not followed."""
        own, reason = self._chosen(who.chosen, who) if who.chosen else self._assigned(who)
        others = [
            Side(one, f"variant {one.name}: stands in for {own.name}")
            for one in self.sides
            if one is not own and one.name not in self.out
        ]
        return [Side(own, reason), *others]

    def left_out(self) -> tuple[str, ...]:
        """Sides that were taken out."""
        return tuple(self.out)

    def ended(self, assigned: str, *, failed: bool) -> None:
        """What became of a request that was given to a side by chance."""
        seen = self._failed.get(assigned)
        if self._rollback is None or seen is None:
            return
        seen.append(failed)
        if not failed or assigned in self.out or assigned == self.sides[0].name:
            return
        first = self._failed[self.sides[0].name]
        share = sum(seen) / len(seen)
        first_share = sum(first) / len(first) if first else 0.0
        more = round(share - first_share, 9)
        if len(seen) < self._rollback.window_requests or more < self._rollback.error_share:
            return
        told = TakenOut(self._model, assigned, share, first_share, len(seen))
        self.out[assigned] = told
        logger.error(
            "variant %s of model %s is taken out until the configuration is read anew: %.0f %% of "
            "its last %d requests failed, of %s %.0f %%",
            assigned, self._model, share * 100, len(seen), self.sides[0].name, first_share * 100,
        )  # fmt: skip
        if self._on_taken_out is not None:
            self._on_taken_out(told)

    def _assigned(self, who: Who) -> tuple[Variant, str]:
        total = sum(one.weight for one in self.sides)
        by, value = self._unit(who)
        place = _place(self._model, value) * total
        own = self.sides[-1]
        reached = 0.0
        for one in self.sides:
            reached += one.weight
            if place < reached:
                own = one
                break
        reason = f"variant {own.name}: {own.weight:g} of {total:g} by {by}"
        if not value:
            reason += ", of whom nothing is said"
        if own.name in self.out:
            instead = next(one for one in self.sides if one.name not in self.out)
            return instead, f"variant {instead.name}: {own.name} was taken out"
        return own, reason

    def _unit(self, who: Who) -> tuple[AssignBy, str]:
        for by in _ELSE[self._assign_by]:
            value: str | None = getattr(who, by)
            if value:
                return by, value
        return self._assign_by, ""

    def _chosen(self, name: str, who: Who) -> tuple[Variant, str]:
        if EVERYBODY not in self._choosers and self._choosers.isdisjoint(who.tags):
            raise RequestError(
                f"{HEADER}: this key may not choose a variant of model {self._model}; leave it "
                "out, or have a tag of models.NAME.variant_choosers put on the key",
                param=HEADER,
                code="variant_not_allowed",
            )
        found = next((one for one in self.sides if one.name == name), None)
        if found is None:
            known = [one.name for one in self.sides]
            raise RequestError(
                f"{HEADER}: model {self._model} has no variant {shown(name)}"
                f"{nearest(name, known)}; there are {', '.join(known)}",
                param=HEADER,
                code="unknown_variant",
            )
        return found, f"variant {found.name}: the request chose it"


def user_of(body: JsonObject) -> str | None:
    """Who a body says it is from: OpenAI's `user`, Anthropic's `metadata.user_id`."""
    user = body.decoded("user") if "user" in body else None
    if user is None and "metadata" in body:
        metadata = body.decoded("metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) and user else None


def _place(model: str, value: str) -> float:
    """Between 0 and 1, evenly; of each model another."""
    digest = hashlib.sha256(f"{model}\0{value}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) / _PLACES
