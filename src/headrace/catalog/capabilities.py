"""What headrace itself executes, technique by technique, and what the catalog's rows say of it.

`capabilities.toml` is the only file of the catalog that says what headrace supports. Rows of
techniques and formats get headrace as a runtime from it, and headrace's own row its formats and
features, so that none of them can claim what no test shows. Whether the tests and commands exist is
for the tests to check: this room knows neither.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.catalog.files import Written
from headrace.errors import CatalogError

HEADRACE = "headrace"
FILE = "capabilities.toml"
# Of the facts that are made here: sources.toml describes it.
_SOURCE = {"source": "own-tests", "as_of": dt.date(2026, 11, 23), "confidence": "exact"}
# Fields that name supporters, by the kind of row, and the field of a Capability with its ids.
_SUPPORTED = {"technique": "techniques", "quantization": "quantizations"}


class Capability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A technique or format that somebody who serves models looks for."""

    name: str
    does: Literal["runs", "part", "plans", "knows"]
    by: tuple[str, ...] = ()
    """Tests that show it, where it runs or runs in part: a file, or file::function."""
    missing: str = ""
    """What does not run, where it runs in part."""
    plan: str = ""
    """The command that plans it; empty without one."""
    items: tuple[str, ...] = ()
    """Ids of items of the coverage that say the same."""
    no_items: str = ""
    """Why no item says the same, where none does."""
    techniques: tuple[str, ...] = ()
    """Rows that headrace becomes a runtime of where it runs."""
    quantizations: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    """Words for the formats of headrace's runtime row."""
    features: tuple[str, ...] = ()
    readme: bool = True
    """Whether README's table has it."""


def load_capabilities(path: Path) -> tuple[Capability, ...]:
    """Read the file. Raises CatalogError naming file, capability and fault."""
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{path.name}: not valid TOML: {error}") from error
    try:
        found = msgspec.convert(parsed.get("capability", []), tuple[Capability, ...])
    except msgspec.ValidationError as error:
        raise CatalogError(f"{path.name}: {error}") from error
    for capability in found:
        _check(capability, f"{path.name}: {capability.name!r}")
    return found


def with_headrace(
    kind: str, rows: Iterable[Written], capabilities: Iterable[Capability]
) -> list[Written]:
    """Rows as files have them, and what headrace runs of them.

    Raises CatalogError where a capability names a row that is not among them.
    """
    running = [capability for capability in capabilities if capability.does == "runs"]
    rows = list(rows)
    if kind == "runtime":
        return [_own_row(row, running) if row.id == HEADRACE else row for row in rows]
    if kind not in _SUPPORTED:
        return rows
    shown = {
        row_id: capability
        for capability in running
        for row_id in getattr(capability, _SUPPORTED[kind])
    }
    lacking = set(shown) - {row.id for row in rows}
    if lacking:
        raise CatalogError(f"{FILE}: no {kind} {', '.join(sorted(lacking))}; correct the id")
    return [_supported(row, shown[row.id]) if row.id in shown else row for row in rows]


def _own_row(row: Written, running: Iterable[Capability]) -> Written:
    running = list(running)
    made = {
        name: {
            "value": [word for capability in running for word in getattr(capability, name)],
            **_SOURCE,
        }
        for name in ("formats", "features")
    }
    return row._replace(table={**row.table, **made})


def _supported(row: Written, capability: Capability) -> Written:
    """The row with headrace as its first runtime; other runtimes keep their source."""
    said = row.table.get("runtimes", {"value": [], **_SOURCE})
    fact: Mapping[str, Any] = said if isinstance(said, Mapping) else {"value": said}
    shown = f"headrace: {capability.by[0]}."
    note = f"{fact['note']} {shown}" if "note" in fact else shown
    runtimes = {**fact, "value": [HEADRACE, *fact["value"]], "note": note}
    return row._replace(table={**row.table, "runtimes": runtimes})


def _check(capability: Capability, where: str) -> None:
    runs = capability.does in ("runs", "part")
    if runs != bool(capability.by):
        raise CatalogError(f"{where}: by names the tests of what runs, in whole or in part")
    if (capability.does == "part") != bool(capability.missing):
        raise CatalogError(f'{where}: does = "part" and what is missing go together')
    if capability.does == "plans" and not capability.plan:
        raise CatalogError(f"{where}: has no plan; name the command that plans it")
    if bool(capability.items) == bool(capability.no_items):
        raise CatalogError(
            f"{where}: items names what the coverage says of it; where it says nothing, no_items "
            "gives the reason"
        )
    if capability.does != "runs" and (capability.formats or capability.features):
        raise CatalogError(f"{where}: only what runs is a format or a feature")
