"""Errors people are meant to read: each names the field, the value, the limit and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

# Real names stay below; a hostile one must not fill a log.
_SHOWN_CHARACTERS = 120


def shown(value: object) -> str:
    """`value` as an error shows it: as Python writes it, cut when it is absurdly long."""
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"


BOUNDED = {
    "integer": "value", "decimal": "value", "string": "length", "array": "length",
    "object": "length",
}  # fmt: skip
"""What is bounded of a field, by its kind."""


def bound_code(kind: str, *, is_below: bool) -> str:
    """OpenAI's code of a field of one of the kinds of BOUNDED beyond a bound."""
    return f"{kind}_{'below_min' if is_below else 'above_max'}_{BOUNDED[kind]}"


class HeadraceError(Exception):
    """Base of every error raised on purpose; its text is shown without a traceback."""


class CheckpointError(HeadraceError):
    """A weights file or folder is missing, damaged, or holds what is not supported."""


class FetchError(HeadraceError):
    """A model that was named is not on this disk, or cannot be had from where it is."""


class UnsupportedModelError(HeadraceError):
    """The architecture, or one value of its config, is not implemented."""


class ConfigError(HeadraceError):
    """A setting is unknown, of the wrong type or out of range."""


class ConfigErrors(ConfigError):
    """A list of ConfigErrors of one file; `each` has the text of every one."""

    def __init__(self, each: Sequence[str]) -> None:
        super().__init__("\n".join(each))
        self.each = tuple(each)


def config_error(each: Sequence[str]) -> ConfigError:
    """Of at least one text."""
    return ConfigError(each[0]) if len(each) == 1 else ConfigErrors(each)


class TemplateError(HeadraceError):
    """A chat template is missing, does not parse, or refuses the messages."""


class RequestError(HeadraceError):
    """A request cannot be served as asked; `param` names the field, `code` is the API's code."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    """Prompt and output do not fit into the context; the numbers are there for programs, too."""

    CODE = "context_length_exceeded"

    def __init__(
        self, message: str, *, param: str, context_tokens: int, prompt_tokens: int | None = None
    ) -> None:
        """prompt_tokens: None where the prompt is known not to fit without counting them."""
        super().__init__(message, param=param, code=self.CODE)
        self.context_tokens = context_tokens
        self.prompt_tokens = prompt_tokens


class EngineDeadError(HeadraceError):
    """The engine process ended; nothing more will be produced."""


class DeviceLostError(HeadraceError):
    """The device that computes answers nothing any more; another process may find it again."""


class EngineRestartingError(EngineDeadError):
    """An engine that is not there now and will be; `retry_after_s`: when that may be."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CatalogError(HeadraceError):
    """A file of the catalog is not as it must be, or a row that is asked for is not there."""
