"""The variants of an A/B test or a canary: which request gets which, and when one is taken out.

The subject is hashed with the model's name to a place between 0 and 1, on which the variants lie in
the order of the configuration. So a user has the same variant in every process, and users of the
last variant keep it while its weight grows.
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
# Where the preferred subject is missing, the one that stays the same the longest.
_ELSE: dict[AssignBy, tuple[AssignBy, ...]] = {
    "user": ("user", "session", "key", "request"),
    "session": ("session", "user", "key", "request"),
    "key": ("key", "request"),
    "request": ("request",),
}


class Who(NamedTuple):
    """The subject by which a request is assigned to a variant; None for what it does not name."""

    user: str | None = None
    session: str | None = None
    key: str | None = None
    request: str | None = None
    chosen: str | None = None
    """The variant that the header names."""
    tags: tuple[str, ...] = ()
    """Tags of its key."""


NOBODY = Who()


class Variant(NamedTuple):
    """One variant of a model."""

    name: str
    weight: float
    targets: tuple[Target, ...]


class Side(NamedTuple):
    """A variant in the order in which they are tried, with the reason for people to read."""

    variant: Variant
    reason: str


class TakenOut(NamedTuple):
    """A variant that failed too often."""

    model: str
    variant: str
    error_share: float
    """Share of failed requests among its last `over`."""
    first_error_share: float
    """The same for the first variant."""
    over: int


class Variants:
    """The variants of one model. `choosers` are tags of keys that may choose one. `on_taken_out` is
    called once for each variant that is taken out."""

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
        window_requests = 0 if rollback is None else rollback.window_requests
        self._failed = {variant.name: deque[bool](maxlen=window_requests) for variant in sides}
        self.out: dict[str, TakenOut] = {}

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of all variants, each once."""
        every = {target.name: target for side in self.sides for target in side.targets}
        return tuple(every.values())

    def order(self, who: Who) -> list[Side]:
        """The subject's variant, then those that stand in for it, the first of the configuration
        first. Raises RequestError for a header that is not allowed."""
        own, reason = self._chosen(who.chosen, who) if who.chosen else self._assigned(who)
        others = [
            Side(variant, f"variant {variant.name}: replaces {own.name}")
            for variant in self.sides
            if variant is not own and variant.name not in self.out
        ]
        return [Side(own, reason), *others]

    def left_out(self) -> tuple[str, ...]:
        """Variants that were taken out."""
        return tuple(self.out)

    def ended(self, assigned: str, *, failed: bool) -> None:
        """Count the result of a request that was assigned to a variant."""
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
        taken_out = TakenOut(self._model, assigned, share, first_share, len(seen))
        self.out[assigned] = taken_out
        logger.error(
            "variant %s of model %s is taken out until the configuration is read again: %.0f %% of "
            "its last %d requests failed, of %s %.0f %%",
            assigned, self._model, share * 100, len(seen), self.sides[0].name, first_share * 100,
        )  # fmt: skip
        if self._on_taken_out is not None:
            self._on_taken_out(taken_out)

    def _assigned(self, who: Who) -> tuple[Variant, str]:
        total = sum(variant.weight for variant in self.sides)
        by, value = self._unit(who)
        place = _place(self._model, value) * total
        own = self.sides[-1]
        reached = 0.0
        for variant in self.sides:
            reached += variant.weight
            if place < reached:
                own = variant
                break
        reason = f"variant {own.name}: {own.weight:g} of {total:g} by {by}"
        if not value:
            reason += ", which the request does not name"
        if own.name in self.out:
            instead = next(variant for variant in self.sides if variant.name not in self.out)
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
                f"{HEADER}: this key may not choose a variant of model {self._model}; omit it, or "
                "have a tag of models.NAME.variant_choosers put on the key",
                param=HEADER,
                code="variant_not_allowed",
            )
        variant = next((variant for variant in self.sides if variant.name == name), None)
        if variant is None:
            known = [variant.name for variant in self.sides]
            raise RequestError(
                f"{HEADER}: model {self._model} has no variant {shown(name)}"
                f"{nearest(name, known)}; there are {', '.join(known)}",
                param=HEADER,
                code="unknown_variant",
            )
        return variant, f"variant {variant.name}: the request chose it"


def user_of(body: JsonObject) -> str | None:
    """The user that a body names: OpenAI's `user`, Anthropic's `metadata.user_id`."""
    user = body.decoded("user") if "user" in body else None
    if user is None and "metadata" in body:
        metadata = body.decoded("metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) and user else None


def _place(model: str, value: str) -> float:
    """A place between 0 and 1, evenly distributed and independent for each model."""
    digest = hashlib.sha256(f"{model}\0{value}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) / _PLACES
