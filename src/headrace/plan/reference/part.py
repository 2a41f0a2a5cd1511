"""One table of a topic, as a rule that picks rows of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.plan.reference.table import Column, Table, table_of


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of `kind` whose `field` is one of `values`, all of them without a field."""

    title: str
    kind: str
    columns: tuple[Column, ...]
    field: str = ""
    values: tuple[Any, ...] = ()
    """() takes what is filled, and None of a value takes what is not."""
    keep: Callable[[Any], bool] | None = None
    """Instead, a rule of its own."""
    order: Callable[[Any], Any] | None = None
    """Order of the lines; without one, that of the catalog's files."""
    notes: tuple[str, ...] = ()
    view: bool = False
    """Whether its rows are shown in another part as well, which is where they belong."""

    def rows(self, known: Catalog) -> Sequence[Any]:
        """The rows it shows, in their order."""
        found = [row for row in known.table(self.kind) if self._has(row)]
        return found if self.order is None else sorted(found, key=self.order)

    def table(self, known: Catalog) -> Table:
        """With a line for each row."""
        return table_of(self.title, self.kind, self.rows(known), self.columns, self.notes)

    def _has(self, row: Any) -> bool:
        if self.keep is not None:
            return self.keep(row)
        if not self.field:
            return True
        value = getattr(row, self.field)
        return value in self.values if self.values else bool(value)
