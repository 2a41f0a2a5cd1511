"""All guardrails of a file, and which of them hold for a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.guards.action import FIELD
from headrace.gateway.guards.guard import Guard

_MOST_NAMES = 64


class Guardrails:
    """The guardrails of the file, in its order. of_models: names of guardrails by model of the
    file."""

    def __init__(self, guards: tuple[Guard, ...], of_models: Mapping[str, tuple[str, ...]]) -> None:
        self.all = guards
        self._of_models = of_models
        self.names = frozenset(guard.name for guard in guards)

    def of(
        self, models: Iterable[str], of_caller: Iterable[str], asked: Iterable[str]
    ) -> tuple[Guard, ...]:
        """The applicable guardrails in the order of the file. models: all that may answer; a
        guardrail of any of them applies.

        Raises RequestError for an unknown name: a request for a check is not ignored.
        """
        wanted = {one.name for one in self.all if one.is_default}
        for model in models:
            wanted.update(self._of_models.get(model, ()))
        for name in (*of_caller, *asked):
            if name not in self.names:
                meant = nearest(name, sorted(self.names))
                raise RequestError(
                    f"{FIELD}: {shown(name)} is not a guardrail of this gateway{meant}", param=FIELD
                )
            wanted.add(name)
        return tuple(one for one in self.all if one.name in wanted)

    def close(self) -> None:
        """End connections at rest."""
        for guard in self.all:
            close = getattr(guard.look, "close", None)
            if close is not None:
                close()


def asked_names(value: object) -> tuple[str, ...]:
    """The names in a body's field. Raises RequestError."""
    if value is None:
        return ()
    if (
        not isinstance(value, list)
        or len(value) > _MOST_NAMES
        or not all(isinstance(one, str) for one in value)
    ):
        raise RequestError(f"{FIELD}: expected a list of at most {_MOST_NAMES} names", param=FIELD)
    return tuple(value)
