"""The last plan of this user, kept in one file so that its figures can be asked for.

The file is `headrace/plan.json` under $XDG_STATE_HOME (~/.local/state): what `--json` prints, and
beside it, under "headrace", how the plan was asked for. A file that `--json` wrote is read alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.atomic_file import atomic_file
from headrace.errors import ConfigError, shown

# Whole numbers beyond it are no floating point numbers, and no figure of a plan.
_LARGEST = 10**300


class PlanMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The command, version and time that a plan was made with."""

    plan: str
    """"fit", "speed", "cost" or another command's name."""
    command: str = ""
    version: str = ""
    made_at: str = ""
    """ISO 8601, UTC."""
    catalogs: tuple[str, ...] = ()
    """Folders of rows that overrode what ships."""


class SavedInput(msgspec.Struct, frozen=True):
    """An Input as JSON has it."""

    name: str
    value: int | float | str | None
    unit: str = ""
    source: str = ""
    basis: str = ""
    as_of: str = ""
    disputed_by: tuple[str, ...] = ()
    note: str = ""

    @property
    def figure(self) -> str | None:
        """The id of the figure that it is; None of a value that comes from outside of the plan."""
        id = self.source.removeprefix("figure ")
        return None if id == self.source else id


class SavedFigure(msgspec.Struct, frozen=True):
    """A Quantity as JSON has it."""

    id: str
    name: str
    value: int | float | None
    unit: str
    low: int | float | None
    high: int | float | None
    """With `value` and `low`: none where JSON cannot say the number."""
    formula_id: str
    formula: str
    inputs: tuple[SavedInput, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether nothing about it is estimated."""
        return self.low == self.value == self.high


class SavedPlan(msgspec.Struct, frozen=True):
    """A plan as far as explaining goes. about: None of a file that `--json` wrote."""

    quantities: tuple[SavedFigure, ...]
    model: str = ""
    hardware: str | None = None
    about: PlanMetadata | None = msgspec.field(default=None, name="headrace")

    @property
    def figures(self) -> dict[str, SavedFigure]:
        """By id."""
        return {one.id: one for one in self.quantities}

    @property
    def title(self) -> str:
        """What was planned: command, model and hardware, as far as they are known."""
        where = f" on {self.hardware}" if self.hardware else ""
        kind = f"plan {self.about.plan}" if self.about else "plan"
        return f"{kind} of {self.model}{where}" if self.model else kind


def saved_plan_path(environ: Mapping[str, str]) -> Path:
    """Where the last plan lies (XDG Base Directory: state; a relative path is ignored)."""
    root = Path(environ.get("XDG_STATE_HOME", ""))
    if not root.is_absolute():
        root = Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    return root / "headrace" / "plan.json"


def save_plan(plan: Mapping[str, Any], about: PlanMetadata, environ: Mapping[str, str]) -> Path:
    """Keep what `--json` prints, whole or not at all; OSError where that cannot be."""
    path = saved_plan_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"headrace": msgspec.to_builtins(about), **plan}, indent=1)
    with atomic_file(path) as file:
        file.write(content.encode(errors="replace"))
    return path


def read_plan(path: Path | None, environ: Mapping[str, str]) -> SavedPlan:
    """The plan in a file, or the last one. Raises ConfigError where there is none."""
    again = "make one with `headrace plan fit MODEL --json > plan.json`"
    if path is None:
        path = saved_plan_path(environ)
        again = "make a plan first, such as `headrace plan fit MODEL`"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no plan in {path}: {again}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        plan = msgspec.json.decode(content, type=SavedPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a plan as --json prints it ({error}): {again}") from error
    for one in plan.quantities:
        given = (one.value, one.low, one.high, *(input.value for input in one.inputs))
        if any(isinstance(value, int) and abs(value) > _LARGEST for value in given):
            raise ConfigError(
                f"{path} has a number above {_LARGEST:.0e} in figure {shown(one.id)}: {again}"
            )
    return plan
