"""Errors people are meant to read: each names the field, the value, the limit and the remedy."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of every error raised on purpose; its text is shown without a traceback."""


class CheckpointError(HeadraceError):
    """A weights file or folder is missing, damaged, or holds what is not supported."""


class UnsupportedModelError(HeadraceError):
    """The architecture, or one value of its config, is not implemented."""


class ConfigError(HeadraceError):
    """A setting is unknown, of the wrong type or out of range."""


class TemplateError(HeadraceError):
    """A chat template is missing, does not parse, or refuses the messages."""


class RequestError(HeadraceError):
    """A request cannot be served as asked; `param` names the field, `code` is the API's code."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class EngineDeadError(HeadraceError):
    """The engine process ended; nothing more will be produced."""
