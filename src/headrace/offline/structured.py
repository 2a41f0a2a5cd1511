"""Structured output as a caller in Python asks for it, under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.offline.values import NO_ITEMS, unexpected
from headrace.structured.grammar import Grammar

_FIELD = "structured_outputs"
_MEANT = {
    "json_schema": "json",
    "schema": "json",
    "response_format": "json",
    "type": "json (a JSON schema) or json_object (True: any object)",
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "choices": "choice",
    "enum": "choice",
    "pattern": "regex",
}
"""Names from other places: what is written here."""


class _FieldsByName(msgspec.StructMeta):
    """The type of StructuredOutputsParams, which explains a name that it does not have."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Make one; raises TypeError for a name that it does not have and a value without one."""
        if args:
            raise TypeError(f"{cls.__name__} takes fields by name: {cls.__name__}(json={{...}})")
        for name in fields:
            if name not in cls.__struct_fields__:
                raise TypeError(f"{cls.__name__}({name}=...): {_no_field(name)}")
        return super().__call__(**fields)


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True, metaclass=_FieldsByName):
    """The form that an answer is held to: exactly one of json, regex, choice, grammar, json_object
    and structural_tag."""

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
    disable_additional_properties: bool | None = None
    """Beside json. True: an object of the schema that does not name `additionalProperties` has only
    the properties that are declared."""
    whitespace_pattern: str | None = None
    """Beside json: an expression of the white space between its parts; None for JSON without."""
    disable_any_whitespace: bool | None = None
    """No effect: JSON has no white space unless whitespace_pattern says so."""
    disable_fallback: bool | None = None
    """No effect: there is one backend."""


def _no_field(name: str) -> str:
    """What an error says about a name that StructuredOutputsParams does not have."""
    if name in _MEANT:
        return f"unknown field; here it is {_MEANT[name]}"
    # Read only here: a caller who writes the names there are does not wait for it.
    from headrace.config.load import nearest

    names = StructuredOutputsParams.__struct_fields__
    return f"unknown field{nearest(name, names)}; fields are {', '.join(names)}"


def _check_no_class(schema: Any, param: str) -> None:
    """Raise RequestError for a model of pydantic's, of which its schema is meant."""
    if hasattr(schema, "model_json_schema"):
        name = getattr(schema, "__name__", type(schema).__name__)
        raise RequestError(
            f"{param}.json is the class {name}; give its schema: {name}.model_json_schema(), and "
            "disable_additional_properties=True where the answer may have no further properties",
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
    for name in fields:
        if name not in StructuredOutputsParams.__struct_fields__:
            at = f"{param}.{name}"
            raise RequestError(f"{at}: {_no_field(str(name))}", param=at, code="unsupported")
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
