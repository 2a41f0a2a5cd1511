"""The form of answers as `generate` and `chat` take it: schemas, expressions, choices, grammars."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from headrace.cli.sections import SectionOption
from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.offline.structured import StructuredOutputsParams

F = TypeVar("F", bound=Callable[..., Any])

MAX_FILE_BYTES = 1 << 20
"""Of a schema or a grammar: twice what is compiled."""

_FIELD = re.compile(r"^structured_outputs(?:\.(?:json|regex|choice|grammar))?:? ")
"""What an error about a form begins with; here the option or the file says which it is."""

_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--schema",
        {
            "metavar": "FILE",
            "help": "Hold the answer to the JSON schema in a file, or to the one that is written "
            "here: '{\"type\": ...}'.",
        },
    ),
    ("--regex", {"metavar": "TEXT", "help": "Hold the answer to a regular expression."}),
    (
        "--choice",
        {
            "metavar": "TEXT",
            "multiple": True,
            "help": "Hold the answer to one of these texts. [may be repeated]",
        },
    ),
    (
        "--grammar",
        {
            "metavar": "FILE",
            "help": "Hold the answer to the grammar in a file, in llama.cpp's notation or in Lark.",
        },
    ),
)


def structured_options(function: F) -> F:
    """Decorator: the options that say what an answer is held to."""
    for flag, about in reversed(_OPTIONS):
        option = click.option(flag, cls=SectionOption, section="Form of the answer", **about)
        function = option(function)
    return function


def structured_outputs(values: dict[str, Any]) -> StructuredOutputsParams | None:
    """What was typed, taken out of `values`; None for free text.

    Raises click.UsageError for several forms, and ConfigError for one that is wrong, naming the
    flag.
    """
    given = {flag: values.pop(flag.removeprefix("--"), None) for flag, _ in _OPTIONS}
    typed = {flag: value for flag, value in given.items() if value not in (None, ())}
    if not typed:
        return None
    if len(typed) > 1:
        raise click.UsageError(f"{' and '.join(typed)}: an answer has one form; give one of them")
    from headrace.offline.structured import StructuredOutputsParams

    ((flag, value),) = typed.items()
    if flag == "--schema":
        return schema_form(value, flag)
    if flag == "--grammar":
        text = read_text_file(Path(value).expanduser(), flag, MAX_FILE_BYTES)
        return _compiled(StructuredOutputsParams(grammar=text), f"{flag} {value}")
    if flag == "--choice":
        form = StructuredOutputsParams(choice=value)
    else:
        form = StructuredOutputsParams(regex=value)
    return _compiled(form, flag)


def schema_form(source: str, flag: str) -> StructuredOutputsParams:
    """The form of a JSON schema. source: a file, or JSON itself, as `json_source` has it.

    Raises ConfigError, naming `flag` and the file, where it cannot be read or no answer can be held
    to it.
    """
    schema = json_source(source, flag)
    return form_of_schema(schema, flag if _is_json(source) else f"{flag} {source}")


def form_of_schema(schema: Any, place: str) -> StructuredOutputsParams:
    """The form of a JSON schema. Raises ConfigError, naming the place, where there is none."""
    from headrace.offline.structured import StructuredOutputsParams

    return _compiled(StructuredOutputsParams(json=schema), place)


def json_source(source: str, flag: str) -> Any:
    """What a JSON file holds. source: its name, or the JSON itself where it begins with a brace or
    a bracket.

    Raises ConfigError, naming `flag` and the file, where it cannot be read.
    """
    is_json = _is_json(source)
    text = source if is_json else read_text_file(Path(source).expanduser(), flag, MAX_FILE_BYTES)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        place = "" if is_json else f" {source}"
        raise ConfigError(f"{flag}{place}: is not JSON: {error}") from None


def _is_json(source: str) -> bool:
    return source.lstrip().startswith(("{", "["))


def _compiled(form: StructuredOutputsParams, place: str) -> StructuredOutputsParams:
    """The form, once its grammar compiles: before a model is loaded for it. place: what errors
    begin with."""
    from headrace.errors import RequestError
    from headrace.offline.structured import grammar_of
    from headrace.structured.compile import validate

    try:
        grammar = grammar_of(form, None)
        if grammar is not None:
            validate(grammar, param="structured_outputs")
    except RequestError as error:
        raise ConfigError(f"{place}: {_FIELD.sub('', str(error), count=1)}") from None
    return form
