"""The catalog: what ships and what people add to it, read kind by kind as it is asked for.

Later folders override earlier ones field by field: a row with the id of another changes the fields
it names and keeps the rest. Nothing here looks at the environment or the clock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from headrace.catalog.building import build_row
from headrace.catalog.capabilities import FILE as CAPABILITIES
from headrace.catalog.capabilities import Capability, load_capabilities, with_headrace
from headrace.catalog.contradiction import Contradiction
from headrace.catalog.fact import Source
from headrace.catalog.files import CatalogFile, Written, read_catalog_file, toml_files
from headrace.catalog.names import near, plain
from headrace.catalog.rows import (
    KINDS,
    Constant,
    Decision,
    Hardware,
    Measurement,
    Model,
    Price,
    Provider,
    Quantization,
    Row,
    Rule,
    Runtime,
    Technique,
)
from headrace.catalog.table import Table
from headrace.errors import CatalogError

DATA = Path(__file__).parent / "data"
Entry = TypeVar("Entry", Source, Contradiction)


class Catalog:
    """Rows by kind, sources and contradictions. Made by `Catalog.load`."""

    def __init__(self, extra_dirs: Iterable[Path] = (), *, data: Path = DATA) -> None:
        self._data = data
        self._extra = tuple(extra_dirs)
        self._tables: dict[str, Table[Any]] = {}

    @classmethod
    def load(cls, extra_dirs: Iterable[Path | str] = ()) -> Catalog:
        """What ships, overridden by the folders in their order.

        Files are read on first use; a fault in one raises CatalogError then, naming file, row,
        field, value and remedy.
        """
        return cls([Path(folder).expanduser() for folder in extra_dirs])

    @property
    def models(self) -> Table[Model]:
        """Language models."""
        return self.table("model")

    @property
    def hardware(self) -> Table[Hardware]:
        """Devices and machines."""
        return self.table("hardware")

    @property
    def quantizations(self) -> Table[Quantization]:
        """Storage kinds and methods."""
        return self.table("quantization")

    @property
    def runtimes(self) -> Table[Runtime]:
        """Programs that run models."""
        return self.table("runtime")

    @property
    def providers(self) -> Table[Provider]:
        """Who sells tokens and GPU hours; gateways."""
        return self.table("provider")

    @property
    def prices(self) -> Table[Price]:
        """Dated prices of tokens."""
        return self.table("price")

    @property
    def techniques(self) -> Table[Technique]:
        """What can be done, and what it gains."""
        return self.table("technique")

    @property
    def measurements(self) -> Table[Measurement]:
        """Published speeds and scores."""
        return self.table("measurement")

    @property
    def constants(self) -> Table[Constant]:
        """Numbers and rules of thumb."""
        return self.table("constant")

    @property
    def decisions(self) -> Table[Decision]:
        """Decision trees."""
        return self.table("decision")

    @property
    def rules(self) -> Table[Rule]:
        """Rules of `headrace plan recommend`."""
        return self.table("rule")

    def table(self, kind: str) -> Table[Any]:
        """The rows of a kind by its name; raises CatalogError for another."""
        if kind not in KINDS:
            raise CatalogError(f"no kind {kind!r}; there are: {', '.join(KINDS)}")
        if kind not in self._tables:
            self._tables[kind] = Table(kind, self._rows(kind))
        return self._tables[kind]

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """Every source by id."""
        shipped = read_catalog_file(self._data / "sources.toml", "sources.toml").sources
        return _by_id([shipped, *([s for f in files for s in f.sources] for files in self._added)])

    @cached_property
    def contradictions(self) -> Mapping[str, Contradiction]:
        """The register of contradictions, by id; their sources are checked."""
        origin = "contradictions.toml"
        shipped = read_catalog_file(self._data / origin, origin).contradictions
        added = ([c for f in files for c in f.contradictions] for files in self._added)
        register = _by_id([shipped, *added])
        for contradiction in register.values():
            for statement in contradiction.statements:
                if statement.source not in self.sources:
                    raise CatalogError(
                        f"contradiction {contradiction.id}: no source {statement.source!r}"
                    )
        return register

    @cached_property
    def capabilities(self) -> tuple[Capability, ...]:
        """What headrace itself executes, technique by technique."""
        return load_capabilities(self._data / CAPABILITIES)

    def find(self, name: str) -> tuple[str, Row]:
        """Kind and row of that id or alias, in whatever kind; an id wins over an alias.

        Raises CatalogError with the nearest names, or with the ids where several answer to it.
        """
        found = [(kind, row) for kind in KINDS if (row := self.table(kind).find(name)) is not None]
        exact = [(kind, row) for kind, row in found if plain(row.id) == plain(name)]
        if len(exact) == 1 or len(found) == 1:
            return (exact or found)[0]
        if found:
            ids = ", ".join(f"{row.id} ({kind})" for kind, row in found)
            raise CatalogError(f"{name!r} may be {ids}; give the id")
        close = near(name, [name for kind in KINDS for name in self.table(kind).names()], 5)
        meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise CatalogError(
            f"no {name!r} in the catalog{meant}; `headrace catalog list --filter TEXT` searches"
        )

    def prices_of(self, model: str, provider: str | None = None) -> list[Price]:
        """Every price of a model, of all days and sources; names may be ids, aliases or neither."""
        wanted = self.model_id(model)
        sold_by = None if provider is None else self.provider_id(provider)
        return [
            price
            for price in self.prices
            if self.model_id(price.model) == wanted
            and (sold_by is None or self.provider_id(price.provider) == sold_by)
        ]

    def price(self, model: str, provider: str, on: dt.date) -> Price:
        """The price in force on a day; of several, the one that began last.

        Raises CatalogError naming the days for which there is one.
        """
        known = [price for price in self.prices_of(model, provider) if price.in_use]
        now = [price for price in known if price.holds_on(on)]
        if now:
            return max(now, key=lambda price: price.effective_from)
        if known:
            days = ", ".join(sorted(price.effective_from.isoformat() for price in known))
            raise CatalogError(f"no price of {model} at {provider} on {on}; there are from: {days}")
        sellers = sorted({price.provider for price in self.prices_of(model)})
        sold_at = f"; it has prices at {', '.join(sellers)}" if sellers else ""
        raise CatalogError(f"no price of {model!r} at {provider!r} in the catalog{sold_at}")

    def disputed_rows(self, contradiction: str) -> list[tuple[str, str, str]]:
        """Kind, id and field of every fact that names a contradiction."""
        return [
            (kind, row.id, path)
            for kind in KINDS
            for row in self.table(kind)
            for path, fact in row.facts.items()
            if contradiction in fact.disputed_by
        ]

    def model_id(self, name: str) -> str:
        """The id of the model called `name`; where there is none, the name as ids are written."""
        row = self.models.find(name)
        return plain(name) if row is None else row.id

    def provider_id(self, name: str) -> str:
        """The same of providers."""
        row = self.providers.find(name)
        return plain(name) if row is None else row.id

    @cached_property
    def _added(self) -> list[list[CatalogFile]]:
        """What the files of each added folder hold."""
        return [
            [read_catalog_file(path, str(path)) for path in toml_files(folder)]
            for folder in self._extra
        ]

    def _rows(self, kind: str) -> list[Row]:
        shipped = [
            row
            for path in toml_files(self._data / kind)
            for row in read_catalog_file(path, f"{kind}/{path.name}").rows
        ]
        layers = [_once(with_headrace(kind, shipped, self.capabilities))]
        for files in self._added:
            layers.append(_once([row for file in files for row in file.rows if row.kind == kind]))
        ids = dict.fromkeys(row_id for layer in layers for row_id in layer)
        return [
            build_row(
                [layer[row_id] for layer in layers if row_id in layer],
                self.sources,
                self.contradictions,
            )
            for row_id in ids
        ]


def _once(rows: Iterable[Written]) -> dict[str, Written]:
    """Rows by id; in one layer an id is there once."""
    found: dict[str, Written] = {}
    for row in rows:
        other = found.setdefault(row.id, row)
        if other is not row:
            raise CatalogError(
                f"{row.where}: the id is taken by a row in {other.origin}; give it another, or put "
                "it into one that overrides"
            )
    return found


def _by_id(layers: Iterable[Iterable[Entry]]) -> dict[str, Entry]:
    """Entries by id; later layers win, and in one layer an id is there once."""
    found: dict[str, Entry] = {}
    for layer in layers:
        seen: set[str] = set()
        for entry in layer:
            if entry.id in seen:
                raise CatalogError(f"{type(entry).__name__.lower()} {entry.id!r} is there twice")
            seen.add(entry.id)
            found[entry.id] = entry
    return found
