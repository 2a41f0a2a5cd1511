"""A mapping whose values are made when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, overload

T = TypeVar("T")
D = TypeVar("D")


class Late(Mapping[str, T]):
    """A mapping whose values are made at first use. makers: called once each; a name is known
    before its value is made."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._makers[name]()
        return found

    @overload
    def get(self, name: str, /) -> T | None: ...
    @overload
    def get(self, name: str, /, default: D) -> T | D: ...
    def get(self, name: str, /, default: D | None = None) -> T | D | None:
        """Asked with every request, mostly for what is not there."""
        found = self._made.get(name)
        if found is not None:
            return found
        return self[name] if name in self._makers else default

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
