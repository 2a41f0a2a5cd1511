"""From the values of a YAML file to nested typed settings; errors say line, path and remedy.

Names are looked at before msgspec sees them, because an unknown one is mostly a known one mistyped.
What is wrong is told all at once: whoever is told one thing at a time tries once for each.
"""

from __future__ import annotations

import logging
import math
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headrace.config.load import nearest
from headrace.config.plain_words import no_word, plain_value, plain_words, words_of
from headrace.config.yaml_file import Document
from headrace.errors import ConfigError, config_error, shown

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)
# In place of a value that is wrong, which was told.
_WRONG: Any = object()


def formerly(name: str) -> msgspec.Meta:
    """Annotation of a field that had another name, which files may still use, with a warning."""
    return msgspec.Meta(extra={"former_name": name})


def former_name(hint: Any) -> str | None:
    """What a field of this annotation was called before."""
    extras = [getattr(note, "extra", None) or {} for note in _annotations(hint)]
    return next((extra["former_name"] for extra in extras if "former_name" in extra), None)


class _Fields(NamedTuple):
    by_name: dict[str, msgspec.structs.FieldInfo]
    """Fields by their name in the file."""
    hints: dict[str, Any]
    """Types by the attribute's name."""
    names_now: dict[str, str]
    """Current name in the file, by a field's former name."""


def _fields_of(of: type[msgspec.Struct]) -> _Fields:
    by_name = {field.encode_name: field for field in msgspec.structs.fields(of)}
    hints = typing.get_type_hints(of, include_extras=True)
    before = {name: former_name(hints[field.name]) for name, field in by_name.items()}
    return _Fields(by_name, hints, {old: name for name, old in before.items() if old is not None})


class Problem(NamedTuple):
    """A value that could not be read, and why."""

    path: str
    """Where in the file, as "models.chat.targets"."""
    said: str
    """With the file and the line."""


class Partly(NamedTuple, Generic[S]):
    """Settings with their problems."""

    settings: S | None
    """With defaults in place of what is wrong; None where something has none, so that names of it
    may be missing."""
    problems: tuple[Problem, ...]


class _WrongError(ConfigError):
    """A wrong value; `path` is as in Problem."""

    def __init__(self, path: str, said: str) -> None:
        super().__init__(said)
        self.path = path


class _Reader:
    """A reader of one document. name: of the file, as errors show it."""

    def __init__(self, lines: Mapping[str, int], name: str) -> None:
        self._lines = lines
        self._name = name
        # Of each kind of settings, which a file may have hundreds of: looking at types is slow.
        self._fields: dict[type[msgspec.Struct], _Fields] = {}
        self.problems: list[Problem] = []
        # Whether one of several that have names was left out.
        self.lost = False

    def error(self, path: str, message: str, within: str = "") -> _WrongError:
        """An error at a path ("models.chat.targets.0.weight"), or `within` what is there."""
        at = path
        line = next((self._lines[one] for one in _and_parents(path) if one in self._lines), None)
        path += within
        where = self._name if line is None else f"{self._name}:{line}"
        return _WrongError(at, f"{where}: {path}: {message}" if path else f"{where}: {message}")

    def kept(self, value: Any, wanted: Any, path: str) -> Any:
        """As `value`, or _WRONG once it was told what is wrong with it."""
        try:
            return self.value(value, wanted, path)
        except _WrongError as error:
            self.problems.append(Problem(error.path, str(error)))
            return _WRONG

    def struct(self, value: Any, of: type[S], path: str) -> S:
        """`value` as the settings `of`; _WRONG where what is wrong was told."""
        if not isinstance(value, dict):
            raise self.error(path, _mapping_expected(value, of))
        if of not in self._fields:
            self._fields[of] = _fields_of(of)
        fields, hints, names_now = self._fields[of]
        found: dict[str, Any] = {}
        before = len(self.problems)
        wrong: S = _WRONG
        for key, inner in value.items():
            if (name := names_now.get(key)) is not None and name not in value:
                old = self.error(_join(path, key), f"is now called `{name}`: rename it")
                logger.warning("%s", old)
                field = fields[name]
                found[field.name] = self.kept(inner, hints[field.name], _join(path, key))
                continue
            if name is not None:
                both = self.error(
                    _join(path, key), f"is now called `{name}`, which is given too: remove one"
                )
                self.problems.append(Problem(both.path, str(both)))
                continue
            if key not in fields:
                meant = nearest(str(key), fields) or f"; there are {', '.join(fields)}"
                told = self.error(_join(path, key), f"unknown name{meant}")
                self.problems.append(Problem(told.path, str(told)))
                continue
            field = fields[key]
            found[field.name] = self.kept(inner, hints[field.name], _join(path, key))
        missing = [
            name for name, field in fields.items() if field.required and field.name not in found
        ]
        is_told = len(self.problems) > before
        if missing and not is_told:  # else a name that is unknown may be meant for it
            raise self.error(path, f"{' and '.join(missing)} must be given")
        if missing or any(found.get(one.name) is _WRONG for one in fields.values() if one.required):
            return wrong
        try:
            return of(**{name: one for name, one in found.items() if one is not _WRONG})
        except (ConfigError, ValueError) as error:  # of a __post_init__
            if is_told:
                return wrong
            raise self.error(path, str(error)) from error

    def value(self, value: Any, wanted: Any, path: str) -> Any:
        """`value` as a field's type: settings within settings are looked into."""
        plain = _without_none(wanted)
        if value is None and plain is not wanted:
            return None
        origin = typing.get_origin(_bare(plain))
        arguments = typing.get_args(_bare(plain))
        if _is_struct(plain):
            return self.struct(value, plain, path)
        if origin is tuple and len(arguments) == 2 and _holds_struct(arguments[0]):
            if not isinstance(value, list):
                raise self.error(path, f"{_kind(value, plain)}: it must be a list")
            each = [self.kept(one, arguments[0], _join(path, at)) for at, one in enumerate(value)]
            right = tuple(one for one in each if one is not _WRONG)
            return right if len(right) < len(each) else self._checked(right, plain, path)
        if origin is dict and _holds_struct(arguments[1]):
            if not isinstance(value, dict):
                raise self.error(path, _mapping_expected(value, plain))
            pairs = [
                (self.kept(key, arguments[0], at), self.kept(one, arguments[1], at))
                for key, one, at in ((key, one, _join(path, key)) for key, one in value.items())
            ]
            # What names it elsewhere is no further mistake.
            named = {
                str(key) if name is _WRONG else name: one
                for key, (name, one) in zip(value, pairs, strict=True)
                if one is not _WRONG
            }
            self.lost |= len(named) < len(pairs)
            return named
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(path, f"{shown(value)}: it must be a finite number")
        try:
            return msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            said, _, at = str(error).partition(" - at `$")
            words = words_of(wanted)
            if words and said.startswith("Invalid enum value"):
                told = no_word(value, said, words)
                raise self.error(path, told, within=at.rstrip("`")) from error
            known = None if _holds_secret(wanted, set()) else value
            told = plain_words(said, known, path.rpartition(".")[2])
            raise self.error(
                path, f"{_shown(value, wanted)}{told}", within=at.rstrip("`")
            ) from error

    def _checked(self, value: tuple[Any, ...], wanted: Any, path: str) -> tuple[Any, ...]:
        """The list itself within its limits; what it holds is checked already."""
        limits = [one for one in _annotations(wanted) if isinstance(one, msgspec.Meta)]
        least = max((one.min_length or 0 for one in limits), default=0)
        if len(value) < least:
            raise self.error(path, f"at least {least} must be given")
        return value


def read_nested(document: Document, of: type[S], name: str) -> S:
    """The settings of a document; an empty one has the defaults.

    name: of the file. Lists of settings are `tuple[Settings, ...]`, named ones
    `dict[str, Settings]`. Raises ConfigError with line and path of all that is not as it must be.
    """
    found, problems = read_partly(document, of, name)
    if problems or found is None:
        raise config_error([one.said for one in problems])
    return found


def read_partly(document: Document, of: type[S], name: str) -> Partly[S]:
    """As `read_nested`, for who looks for more that is wrong."""
    reader = _Reader(document.lines, name)
    loaded = {} if document.loaded is None else document.loaded
    found = reader.kept(loaded, of, "")
    whole = found is not _WRONG and not reader.lost
    return Partly(found if whole else None, tuple(reader.problems))


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _and_parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _annotations(wanted: Any) -> tuple[Any, ...]:
    return typing.get_args(wanted)[1:] if typing.get_origin(wanted) is typing.Annotated else ()


def _bare(wanted: Any) -> Any:
    return typing.get_args(wanted)[0] if _annotations(wanted) else wanted


def _without_none(wanted: Any) -> Any:
    """X of `X | None`; anything else as it is."""
    bare = _bare(wanted)
    if typing.get_origin(bare) not in (typing.Union, types.UnionType):
        return wanted
    others = [one for one in typing.get_args(bare) if one is not type(None)]
    return others[0] if len(others) == 1 and len(others) < len(typing.get_args(bare)) else wanted


def _shown(value: Any, wanted: Any) -> str:
    """`value` before what is wrong with it; nothing of what holds a secret, or may, or is long."""
    if isinstance(value, (dict, list)) or _holds_secret(wanted, set()):
        return ""
    return f"{plain_value(value)}: "


_KINDS: Mapping[type, str] = MappingProxyType(
    {dict: "a mapping", list: "a list", str: "a text", int: "a number", float: "a number",
     bool: "true or false", type(None): "nothing"}
)  # fmt: skip


def _kind(value: Any, wanted: Any) -> str:
    """`value` itself, or where it may be a secret or is long, what it is."""
    return _shown(value, wanted).removesuffix(": ") or _KINDS.get(type(value), "a date")


def _mapping_expected(value: Any, wanted: Any) -> str:
    lines = f"{_kind(value, wanted)}: it must be `name: value` lines"
    return f"{lines}, with a space after each colon" if isinstance(value, str) else lines


def _holds_secret(wanted: Any, seen: set[type]) -> bool:
    """Whether a type says of itself, or of a field, that it is a secret (`Meta.extra`)."""
    if any((getattr(one, "extra", None) or {}).get("secret") for one in _annotations(wanted)):
        return True
    if _is_struct(wanted):
        if wanted in seen:
            return False
        seen.add(wanted)
        hints = typing.get_type_hints(wanted, include_extras=True)
        return any(_holds_secret(one, seen) for one in hints.values())
    return any(_holds_secret(one, seen) for one in typing.get_args(wanted))


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _holds_struct(wanted: Any) -> bool:
    plain = _without_none(_bare(wanted))
    return _is_struct(plain) or any(_holds_struct(one) for one in typing.get_args(plain))
