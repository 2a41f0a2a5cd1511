"""From flags and a YAML file to a frozen config; flags win over the file, it over defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headrace.config.flags import Flag, flags_of
from headrace.config.patterns import words_of_pattern
from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

if TYPE_CHECKING:
    import yaml

C = TypeVar("C", bound=msgspec.Struct)

# A file with every setting and a paragraph on each has 10 kB.
MAX_FILE_BYTES = 64 * 2**10

# Names have fewer; nobody mistypes one that is longer.
_MOST_COMPARED_CHARACTERS = 64

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
             "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip


_KIND_WORDS = {"str": "a text", "int": "an integer", "float": "a number", "bool": "true or false"}
_RANGE = re.compile(r"≥ (\S+), ≤ (\S+)")
_CHARACTERS = re.compile(r"≥ (\d+) characters")


def parse_int(text: str) -> int:
    """An integer, also as "32k" (32,000) or "32K" (32,768); the letters are vLLM's.

    Raises ValueError when `text` is neither.
    """
    factor = _SUFFIXES.get(text[-1:], 1)
    digits = text[:-1] if factor != 1 else text
    number = float(digits) * factor if "." in digits and factor != 1 else int(digits) * factor
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def from_environment(config: type[msgspec.Struct], environ: Mapping[str, str]) -> dict[str, Any]:
    """What `environ` says of settings that may be there: secrets, mostly. Empty ones are absent."""
    found: dict[str, Any] = {}
    for flag in flags_of(config):
        value = environ.get(flag.env or "", "").strip()
        if value:
            parts = [part.strip() for part in value.split(",")]
            found[flag.name] = [part for part in parts if part] if flag.repeated else value
    return found


def build(config: type[C], values: Mapping[str, Any], *, source: str) -> C:
    """`config` from plain values; unknown names, wrong types and limits raise ConfigError."""
    try:
        return msgspec.convert(typed(config, values), config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_readable(config, values, str(error))}") from error


def read_file(path: Path, configs: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """The settings of a YAML file, by field name; names may be written as the flags are.

    Raises ConfigError for a file that is missing, too large, not YAML, not a mapping, names a
    setting none of `configs` has, or names one twice.
    """
    import yaml

    from headrace.config.yaml_problem import YAML_ERRORS, yaml_error

    where = f"--config {path}"
    text = read_text_file(path, "--config", MAX_FILE_BYTES)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        loaded = yaml.safe_load(text)
    except YAML_ERRORS as error:
        raise yaml_error(error, text, where) from error
    if loaded is None:
        return {}
    if not isinstance(node, yaml.MappingNode) or not isinstance(loaded, dict):
        raise ConfigError(f"{where}: settings must be `name: value` lines")
    names = {
        _name(one.removeprefix("--")): flag.name
        for config in configs
        for flag in flags_of(config)
        for one in (flag.flag, *flag.aliases)
    }
    _check_once(node, names, where)
    values: dict[str, Any] = {}
    for key, value in loaded.items():
        name = _name(key)
        if name not in names:
            raise ConfigError(f"{where}: unknown setting {key!r}{nearest(name, names)}")
        values[names[name]] = value
    return values


def _check_once(node: yaml.MappingNode, names: Mapping[str, str], where: str) -> None:
    """Raise ConfigError for a setting that is there twice; loading would keep the last.

    names: of settings, by every way to write them.
    """
    lines: dict[str, int] = {}
    for key, _ in node.value:
        name, line = _name(key.value), key.start_mark.line + 1
        name = names.get(name, name)
        if name in lines:
            raise ConfigError(
                f"{where}: setting {key.value!r} is given twice, in lines {lines[name]} and {line}"
            )
        lines[name] = line


def _name(key: object) -> str:
    """The field's name of a setting, which may be written with dashes."""
    return str(key).replace("-", "_")


def typed(config: type[msgspec.Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    """Integers written with a suffix, and lone values of repeated settings, made what they mean."""
    flags = {flag.name: flag for flag in flags_of(config)}
    return {name: _value(flags.get(name), value) for name, value in values.items()}


def _value(flag: Flag | None, value: Any) -> Any:
    if flag is None or value is None:
        return value
    if flag.repeated and not isinstance(value, (list, tuple)):
        value = [value]
    if flag.auto and value == "auto":
        return None
    if flag.json and isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    if flag.kind == "int" and isinstance(value, str):
        try:
            return parse_int(value)
        except (ValueError, OverflowError):
            return value
    integer_choices = flag.kind == "choice" and all(choice.isdigit() for choice in flag.choices)
    if integer_choices and isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def _readable(config: type[msgspec.Struct], values: Mapping[str, Any], message: str) -> str:
    """msgspec's "Expected … - at `$.port`", told as flag, value and what is expected."""
    text, _, path = message.partition(" - at `$.")
    name = path.rstrip("`").split("[")[0]
    flag = next((flag for flag in flags_of(config) if flag.name == name), None)
    if flag is None:
        return message
    expected = words_of_pattern(text) or expectation(flag)
    given = "not usable" if flag.secret else repr(values.get(name))
    return f"{flag.flag} is {given}; expected {expected}"


def expectation(flag: Flag) -> str:
    """What a value of a setting must be: "an integer from 0 to 65535"."""
    if flag.choices:
        return f"one of {', '.join(flag.choices)}"
    limits = _RANGE.sub(r"from \1 to \2", flag.limits)
    limits = _CHARACTERS.sub(r"of \1 or more characters", limits)
    words = f"{_KIND_WORDS[flag.kind]} {limits}".rstrip()
    return f"{words}, or auto" if flag.auto else words


def nearest(name: str, known: Iterable[str]) -> str:
    """What to add to an error about a name that is unknown: the one that is most like it. Nothing
    for a long one: comparing takes time with the square of its length."""
    import difflib

    if len(name) > _MOST_COMPARED_CHARACTERS:
        return ""
    short = [one for one in known if len(one) <= _MOST_COMPARED_CHARACTERS]
    close = difflib.get_close_matches(name, short, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
