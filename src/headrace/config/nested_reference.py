"""What may stand in a file of nested settings, from their types: one section for each struct."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.config.nested import former_name


class Setting(NamedTuple):
    """A line of a reference. values: what it may be, in words. default: as YAML has it,
    "required" where it must be given, "" where nothing stands there."""

    name: str
    values: str
    default: str
    meaning: str


class Section(NamedTuple):
    """A section of the reference of settings."""

    path: str
    """Where the struct stands ("models.NAME.targets[]")."""
    text: str
    """What its docstring says."""
    settings: tuple[Setting, ...]


def sections_of(root: type[msgspec.Struct]) -> Iterator[Section]:
    """The root first, then each struct within it, once, where it is first met."""
    seen: set[type] = set()
    waiting: list[tuple[str, type[msgspec.Struct]]] = [("", root)]
    while waiting:
        path, struct = waiting.pop(0)
        if struct in seen:
            continue
        seen.add(struct)
        hints = typing.get_type_hints(struct, include_extras=True)
        rows = []
        for field in msgspec.structs.fields(struct):
            hint = hints[field.name]
            meta = next((one for one in _metas(hint) if one.description), None)
            where = f"{path}.{field.encode_name}" if path else field.encode_name
            text = "" if meta is None or meta.description is None else meta.description
            if (former := former_name(hint)) is not None:
                text = f"{text} Formerly `{former}`."
            rows.append(
                Setting(
                    field.encode_name,
                    _words(hint),
                    _default(field),
                    text,
                )
            )
            waiting += _within(hint, where)
        text = " ".join((struct.__doc__ or "").split())
        yield Section(path, text, tuple(rows))


def _metas(hint: Any) -> list[msgspec.Meta]:
    if typing.get_origin(hint) is typing.Annotated:
        inner, *rest = typing.get_args(hint)
        return [one for one in rest if isinstance(one, msgspec.Meta)] + _metas(inner)
    return []


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _words(hint: Any) -> str:
    """A type and its limits, in words."""
    bare = _bare(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(one) for one in arguments if one is not type(None))
    if origin is typing.Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin is tuple:
        return f"list of {_words(arguments[0])}"
    if bare is Any:
        return "any value"
    if origin is dict:
        return f"{_words(arguments[1])} by name"
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return "settings"
    if bare is typing.Any:
        return "anything"
    name = {str: "text", int: "integer", float: "number", bool: "true or false"}[bare]
    return " ".join([name, *(_limits(one) for one in _metas(hint) if _limits(one))])


def _limits(meta: msgspec.Meta) -> str:
    parts = [
        f"{sign} {value:g}"
        for sign, value in ((">=", meta.ge), (">", meta.gt), ("<=", meta.le), ("<", meta.lt))
        if value is not None
    ]
    return ", ".join(parts)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT or value is None or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, msgspec.Struct):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _within(hint: Any, where: str) -> list[tuple[str, type[msgspec.Struct]]]:
    """Structs that a type holds, and where they stand."""
    bare = _bare(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (typing.Union, types.UnionType):
        return [one for part in arguments for one in _within(part, where)]
    if origin is tuple:
        return _within(arguments[0], where + "[]")
    if origin is dict:
        return _within(arguments[1], where + ".NAME")
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return [(where, bare)]
    return []
