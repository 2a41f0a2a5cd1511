"""Secrets of the file: where they are, rather than what they are.

`env:NAME` (or LiteLLM's `os.environ/NAME`) is a variable of the environment, `file:PATH` a file's
first line. Anything else is the secret itself, which `check` warns of.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

_ENVIRONMENT = ("env:", "os.environ/")
_FILE = "file:"
_MOST_BYTES = 16 * 1024


class Secret:
    """A value that is in no repr, no log and no error. `reveal` is for who sends it."""

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
        raise TypeError("a secret is not to be copied out of the process")


class Sources(NamedTuple):
    """environ: variables. folder: what relative paths of files begin at."""

    environ: Mapping[str, str]
    folder: Path


def is_plain(text: str) -> bool:
    """Whether it stands in the file itself."""
    return not text.startswith((*_ENVIRONMENT, _FILE))


def read_secret(text: str, sources: Sources) -> Secret:
    """Raises ConfigError, without the secret, where there is none or it cannot be sent."""
    for prefix in _ENVIRONMENT:
        if text.startswith(prefix):
            name = text.removeprefix(prefix)
            value = sources.environ.get(name, "").strip()
            if not value:
                raise ConfigError(
                    f"the environment has no {name}: set it, or leave out what needs it"
                )
            return _checked(value, f"the variable {name}")
    if text.startswith(_FILE):
        path = sources.folder / text.removeprefix(_FILE)
        lines = read_text_file(path, _FILE, _MOST_BYTES).splitlines()
        if not lines or not lines[0].strip():
            raise ConfigError(f"{_FILE}{path}: its first line is empty")
        return _checked(lines[0].strip(), f"the file {path}")
    return _checked(text, "the configuration")


def read_document(text: str, sources: Sources) -> tuple[str, str]:
    """A secret of several lines, and where it is from. Raises ConfigError as `read_secret`."""
    for prefix in _ENVIRONMENT:
        if text.startswith(prefix):
            name = text.removeprefix(prefix)
            value = sources.environ.get(name, "").strip()
            if not value:
                raise ConfigError(
                    f"the environment has no {name}: set it, or leave out what needs it"
                )
            return value, f"the variable {name}"
    if text.startswith(_FILE):
        path = sources.folder / text.removeprefix(_FILE)
        return read_text_file(path, _FILE, _MOST_BYTES), f"the file {path}"
    raise ConfigError("file:PATH or env:NAME is expected")


def _checked(value: str, source: str) -> Secret:
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError(
            f"the secret from {source} has characters that a header cannot carry: visible ASCII "
            "without spaces is expected"
        )
    return Secret(value, source)
