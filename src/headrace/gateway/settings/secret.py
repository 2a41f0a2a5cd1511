"""Secrets of the file: where they are, rather than what they are.

`env:NAME` (or LiteLLM's `os.environ/NAME`) is a variable of the environment, `file:PATH` a file's
first line. Anything else is the secret itself, which `check` warns of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

MIN_KEY_CHARS = 16
"""Of keys that other machines may try: 64 bits where they are written in hexadecimal, out of reach
of guesses over a network."""

_ENVIRONMENT = ("env:", "os.environ/")
_FILE = "file:"
_MOST_BYTES = 16 * 1024
# A process keeps the environment that it was started with.
_SET_IT = "set it (a running gateway has to be restarted for that)"
_SECRET_REMEDY = f"{_SET_IT}, write file:PATH"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# As shells and Compose files have it.
_OTHERS_WORD = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Secret:
    """A value that appears in no repr, log or error. Only the code that sends it calls `reveal`."""

    __slots__ = ("_value", "source")

    def __init__(self, value: str, source: str) -> None:
        self._value = value
        self.source = source

    def reveal(self) -> str:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret from {self.source}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret must not be copied out of the process")


class Sources(NamedTuple):
    """The places in which references to secrets are resolved."""

    environ: Mapping[str, str]
    """Environment variables."""
    folder: Path
    """The folder that relative paths of files begin at."""


def is_plain(text: str) -> bool:
    """Whether the secret is written into the file itself."""
    return not text.startswith((*_ENVIRONMENT, _FILE))


def read_secret(text: str, sources: Sources, setting: str = "") -> Secret:
    """setting: what names it in errors, where no caller adds that. Raises ConfigError, without the
    secret, where there is none or it cannot be sent."""
    try:
        return _read(text, sources)
    except ConfigError as error:
        if not setting:
            raise
        raise ConfigError(f"{setting}: {error}") from error


def from_variable(text: str, sources: Sources, setting: str) -> str:
    """A value that is not secret: that of the variable it names, or the text itself. Raises
    ConfigError."""
    for prefix in _ENVIRONMENT:
        if text.startswith(prefix):
            try:
                return _variable(text, prefix, sources.environ, _SET_IT)[1]
            except ConfigError as error:
                raise ConfigError(f"{setting}: {error}") from error
    return text


def _read(text: str, sources: Sources) -> Secret:
    for prefix in _ENVIRONMENT:
        if text.startswith(prefix):
            name, value = _variable(text, prefix, sources.environ, _SECRET_REMEDY)
            return _checked(value, f"the variable {name}")
    if text.startswith(_FILE):
        path = sources.folder / text.removeprefix(_FILE)
        lines = read_text_file(path, _FILE, _MOST_BYTES).splitlines()
        if not lines or not lines[0].strip():
            raise ConfigError(f"{_FILE}{path}: its first line is empty")
        return _checked(lines[0].strip(), f"the file {path}")
    if other := _OTHERS_WORD.fullmatch(text):
        raise ConfigError(f"{text} is not read from the environment: write env:{other[1]}")
    return _checked(text, "the configuration")


def missing_variables(settings: object, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that settings name and the environment lacks, each with the first setting that
    names it, even if that setting is switched off."""
    missing: dict[str, str] = {}
    for path, text in _texts(settings, ""):
        prefix = next((one for one in _ENVIRONMENT if text.startswith(one)), None)
        name = "" if prefix is None else text.removeprefix(prefix)
        if _NAME.fullmatch(name) and not environ.get(name, "").strip():
            missing.setdefault(name, path)
    return missing


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
        return
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, msgspec.Struct):
        inner = ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, tuple):
        inner = enumerate(value)
    for name, one in inner:
        yield from _texts(one, f"{path}.{name}" if path else str(name))


def read_document(text: str, sources: Sources) -> tuple[str, str]:
    """A secret of several lines, and where it is from. Raises ConfigError like `read_secret`."""
    for prefix in _ENVIRONMENT:
        if text.startswith(prefix):
            name, value = _variable(text, prefix, sources.environ, _SECRET_REMEDY)
            return value, f"the variable {name}"
    if text.startswith(_FILE):
        path = sources.folder / text.removeprefix(_FILE)
        return read_text_file(path, _FILE, _MOST_BYTES), f"the file {path}"
    raise ConfigError("expected file:PATH or env:NAME")


def _variable(text: str, prefix: str, environ: Mapping[str, str], remedy: str) -> tuple[str, str]:
    """The variable's name and value. An invalid name may be the secret itself, so no error shows
    it."""
    name = text.removeprefix(prefix)
    value = environ.get(name, "").strip()
    if value:
        return name, value
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"what follows {prefix} is not the name of a variable; write {prefix}NAME and put "
            "the secret into that variable"
        )
    raise ConfigError(f"the environment has no {name}: {remedy}, or remove what needs it")


def _checked(value: str, source: str) -> Secret:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError(
            f"the secret from {source} has characters that a header cannot carry; it must be "
            "visible ASCII without spaces"
        )
    return Secret(value, source)
