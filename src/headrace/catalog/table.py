"""The rows of one kind, found by id, by alias and by whatever is near."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from headrace.catalog.names import near, plain
from headrace.catalog.rows import Row
from headrace.errors import CatalogError

R = TypeVar("R", bound=Row)
_MANY = 5


class Table(Generic[R]):
    """Rows in the order of the files. Names are compared without case, spaces and punctuation."""

    def __init__(self, kind: str, rows: Iterable[R]) -> None:
        """Raises CatalogError where two rows answer to one name."""
        self.kind = kind
        self._rows = {row.id: row for row in rows}
        self._by_name: dict[str, R] = {}
        for row in self._rows.values():
            for name in {plain(text) for text in (row.id, row.name, *row.aliases)}:
                other = self._by_name.setdefault(name, row)
                if other is not row:
                    raise CatalogError(
                        f"{kind} {row.id!r} and {other.id!r} both answer to {name!r}; change an "
                        "alias of one of them"
                    )

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __getitem__(self, name: str) -> R:
        """The row of that id or alias; raises CatalogError with the nearest names."""
        found = self.find(name)
        if found is None:
            raise CatalogError(f"no {self.kind} {name!r} in the catalog{self.meant(name)}")
        return found

    def find(self, name: str) -> R | None:
        """The row of that id or alias; None where there is none."""
        return self._rows.get(name) or self._by_name.get(plain(name))

    def names(self) -> list[str]:
        """Every id and alias, each row's own id first."""
        return [name for row in self for name in (row.id, *row.aliases)]

    def meant(self, name: str) -> str:
        """What an error adds: the nearest names."""
        found = near(name, self.names(), _MANY)
        return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""

    def search(self, text: str) -> list[R]:
        """Rows in which every word of `text` is part of a name, an alias or a text value."""
        words = [plain(word) for word in text.split()]
        return [row for row in self if all(word in _haystack(row) for word in words)]


def _haystack(row: Row) -> str:
    texts = [row.id, row.name, *row.aliases]
    for fact in row.facts.values():
        if isinstance(fact.value, str):
            texts.append(fact.value)
        elif isinstance(fact.value, tuple):
            texts.extend(fact.value)
    return " ".join(plain(text) for text in texts)
