"""Settings as flags: what every field of a config struct is called, takes and means.

The command line, the YAML file and docs/flags.md are all made from `flags_of`; none of them knows a
setting by name.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

Kind = Literal["str", "int", "float", "bool", "choice"]


class Flag(NamedTuple):
    """One setting."""

    name: str
    """The field's name; the flag is `--` + name with dashes."""
    kind: Kind
    """What one value is."""
    choices: tuple[str, ...]
    """The values a "choice" takes, as text."""
    repeated: bool
    """May be given several times."""
    optional: bool
    """None (absent) has a meaning of its own."""
    default: Any
    help: str
    limits: str
    aliases: tuple[str, ...] = ()
    """Other flags for it."""
    secret: bool = False
    """Its value is never shown."""
    env: str | None = None
    """The environment variable it is read from where no flag and no file gives it."""
    auto: bool = False
    """"auto" stands for None."""
    json: bool = False
    """Its text may be a JSON object, which a file may also write as a mapping."""

    @property
    def flag(self) -> str:
        """The flag as it is typed."""
        return "--" + self.name.replace("_", "-")


_KINDS: dict[Any, Kind] = {
    str: "str", int: "int", float: "float", bool: "bool",
}  # fmt: skip


def flags_of(config: type[msgspec.Struct]) -> Iterator[Flag]:
    """The flags of a config struct, in the order of its fields.

    Raises TypeError for a field without a description or of a type flags cannot express, so that
    an undocumented setting cannot exist.
    """
    hints = get_type_hints(config, include_extras=True)
    for field in msgspec.structs.fields(config):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{config.__name__}.{field.name} has no description")
        inner, *extras = get_args(hint)
        metas = [extra for extra in extras if isinstance(extra, msgspec.Meta)]
        text = next((meta.description for meta in metas if meta.description), None)
        if not text:
            raise TypeError(f"{config.__name__}.{field.name} has no description")
        kind, choices, repeated, optional, nested = _shape(inner, f"{config.__name__}.{field.name}")
        default = None if field.default is msgspec.NODEFAULT else field.default
        limits = ", ".join(limit for meta in metas + nested if (limit := _limits(meta)))
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        yield Flag(field.name, kind, choices, repeated, optional, default, text, limits, **extra)


class _Shape(NamedTuple):
    kind: Kind
    choices: tuple[str, ...]
    repeated: bool
    optional: bool
    metas: list[msgspec.Meta]


def _shape(hint: Any, where: str) -> _Shape:
    optional = False
    metas: list[msgspec.Meta] = []
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        if len(members) != 1:
            raise TypeError(f"{where}: a setting has one type, not {hint}")
        hint = members[0]
    repeated = get_origin(hint) is tuple
    if repeated:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        metas = [extra for extra in extras if isinstance(extra, msgspec.Meta)]
    if get_origin(hint) is Literal:
        choices = tuple(str(value) for value in get_args(hint))
        return _Shape("choice", choices, repeated, optional, metas)
    if hint not in _KINDS:
        raise TypeError(f"{where}: a setting cannot be a {hint}")
    return _Shape(_KINDS[hint], (), repeated, optional, metas)


def _limits(meta: msgspec.Meta) -> str:
    parts = [("≥", meta.ge), (">", meta.gt), ("≤", meta.le), ("<", meta.lt)]
    limits = [f"{sign} {value}" for sign, value in parts if value is not None]
    return ", ".join([*limits, *([f"≥ {meta.min_length} characters"] if meta.min_length else [])])
