"""Calls into the `tokenizers` library: whatever goes wrong in them is one of our errors.

What the library finds wrong it raises as a plain Exception. A panic of its Rust code arrives as
`pyo3_runtime.PanicException`, which is not an Exception, cannot be imported, and passes by every
`except Exception`: a long run of white space is enough, where a splitting expression gives up. So
every call into the library stands inside one of the two blocks here. Errors of others, such as an
interrupt, pass through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from headrace.errors import CheckpointError, HeadraceError, RequestError

UNSPLITTABLE = "text_cannot_be_tokenized"
"""The code of the RequestError for a text that the tokenizer fails on."""

# What the library itself raises, not their subclasses: those come from elsewhere.
_RAISED = (Exception, TypeError, ValueError, OverflowError)
_MAX_REASON_CHARS = 300
_RUN = re.compile(r"\s+|\S+")


def building(source: str) -> AbstractContextManager[None]:
    """Where tokenizers are made: a failure of the library is a CheckpointError.

    source: what the message calls the data the tokenizer is made of.
    """
    return _failures(
        lambda reason: CheckpointError(f"{source} is not a usable tokenizer: {reason}")
    )


def encoding(
    text: str, start: int = 0, whole_chars: int | None = None
) -> AbstractContextManager[None]:
    """Where `text` is tokenized: a failure of the library is a RequestError that describes it.

    start, whole_chars: where it begins in the text of a caller, and the length of that; None for a
    text that is the whole.
    """
    return _failures(lambda reason: unsplittable(text, reason, start, whole_chars))


@contextmanager
def naming(param: str) -> Iterator[None]:
    """Name the field a text came from in errors of the tokenizer, which does not know it."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{param}: {error}", param=param, code=error.code) from error


def unsplittable(
    text: str, reason: str, start: int = 0, whole_chars: int | None = None
) -> RequestError:
    """The error for a text that cannot be tokenized; names the part most likely to be at fault.

    start, whole_chars: as of `encoding`.
    """
    longest = max(_RUN.finditer(text), key=lambda run: run.end() - run.start(), default=None)
    where = ""
    if longest is not None:
        kind = "white space" if longest.group()[0].isspace() else "characters without white space"
        where = (
            f" Its longest run of {kind} has {longest.end() - longest.start()} characters, from "
            f"character {start + longest.start()}: shorten it or break it up."
        )
    return RequestError(
        f"this text of {whole_chars or len(text)} characters cannot be cut into tokens: the "
        f"model's tokenizer fails on it ({reason}).{where}",
        code=UNSPLITTABLE,
    )


def whole_text(text: str) -> str:
    """The text with U+FFFD for every lone surrogate, which the library does not take."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextmanager
def _failures(become: Callable[[str], HeadraceError]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error) not in _RAISED and not _is_panic(error):
            raise
        # Repeats what stands in the file, or in the text.
        reason = str(error)
        if len(reason) > _MAX_REASON_CHARS:
            reason = f"{reason[:_MAX_REASON_CHARS]}..."
        raise become(reason) from error


def _is_panic(error: BaseException) -> bool:
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")
