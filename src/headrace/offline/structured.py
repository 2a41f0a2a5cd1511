"""Structured output as a caller in Python asks for it, under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.offline.values import NO_ITEMS, unexpected
from headrace.structured.grammar import Grammar

_FIELD = "structured_outputs"


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True):
    """The form that an answer is held to; exactly one field is given."""

    json: str | Mapping[str, Any] | None = None
    """A JSON schema, or the text of one."""
    regex: str | None = None
    """An expression that the whole answer matches."""
    choice: Sequence[str] | None = None
    """Texts, of which the answer is one."""
    grammar: str | None = None
    """A grammar in the notation of llama.cpp (GBNF) or in Lark."""
    json_object: bool | None = None
    """True: any JSON object."""
    structural_tag: str | Mapping[str, Any] | None = None
    """Parts of the answer that have a schema, between tags."""


def _check_no_class(schema: Any, param: str) -> None:
    """Raise RequestError for a model of pydantic's, of which its schema is meant."""
    if hasattr(schema, "model_json_schema"):
        name = getattr(schema, "__name__", type(schema).__name__)
        raise RequestError(
            f"{param}.json is the class {name}; give its schema: {name}.model_json_schema()",
            param=f"{param}.json",
            code="invalid_type",
        )


def grammar_of(structured: Any, grammar: Grammar | None, prefix: str = "") -> Grammar | None:
    """The grammar of the fields `structured_outputs` and `grammar`, of which one may be given.

    prefix: put before the names of fields in errors. Raises RequestError naming the field.
    """
    if structured is None:
        return grammar
    param = prefix + _FIELD
    if grammar is not None:
        raise RequestError(
            f"{param}, {prefix}grammar: an answer can be held to one grammar; give one of them",
            param=f"{prefix}grammar",
            code="several_grammars",
        )
    if isinstance(structured, StructuredOutputsParams):
        fields = msgspec.structs.asdict(structured)
    elif isinstance(structured, Mapping):
        fields = dict(structured)
    else:
        raise unexpected(param, structured, "StructuredOutputsParams, a mapping or None")
    _check_no_class(fields.get("json"), param)
    choice = fields.get("choice")
    if isinstance(choice, Sequence) and not isinstance(choice, NO_ITEMS):
        fields["choice"] = list(choice)
    # Read only here: a caller who wants free text does not wait for it.
    from headrace.structured.request import constraint_of

    try:
        found = constraint_of({_FIELD: fields})
    except RequestError as error:
        if not prefix:
            raise
        raise RequestError(
            f"{prefix}{error}", param=f"{prefix}{error.param}", code=error.code
        ) from None
    return None if found is None else found[0]
