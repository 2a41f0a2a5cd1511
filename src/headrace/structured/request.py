"""From the fields by which clients constrain an answer to the one grammar that the engine takes.

The fields are those of OpenAI, vLLM and llama-server. Whatever is given is turned into a grammar
that holds the answer to all of it, or is refused by name; two at once are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.structured.gbnf import lark_of
from headrace.structured.grammar import Grammar
from headrace.structured.lark import checked_lark
from headrace.structured.schema_walk import check_schema

UNSUPPORTED = "unsupported"
INVALID_VALUE = "invalid_value"
CONFLICT = "several_grammars"

MAX_CHOICES = 10_000

COMPACT: Mapping[str, object] = {
    # Answers are compact: where white space is free nothing is ever forced, and a model may go on
    # writing it for ever.
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    # Without \uXXXX every text has one spelling, and no property can be named twice in two.
    "json_allowed_escapes": 'nrbtf\\"',
}
SPACED: Mapping[str, object] = {**COMPACT, "item_separator": ", ", "key_separator": ": "}
"""Options of a schema whose JSON is as templates render it: the arguments of calls."""
_LARK = re.compile(r"(?m)^\s*(%llguidance\b|start\s*:)")
_NAMES = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


def grammar_of(fields: Mapping[str, Any]) -> Grammar | None:
    """The grammar of a request; None for free text. Null and absent are the same.

    fields: those of the request; others than those that constrain answers are not looked at.
    Raises RequestError naming the field.
    """
    found = constraint_of(fields)
    return None if found is None else found[0]


def constraint_of(fields: Mapping[str, Any]) -> tuple[Grammar, str] | None:
    """The same with the name of the field that the grammar comes from."""
    found: list[tuple[str, Grammar]] = []
    for name, read in _FIELDS.items():
        value = fields.get(name)
        if value is None:
            continue
        grammar = read(value, name)
        if grammar is not None:
            found.append((name, grammar))
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise RequestError(
            f"{names}: an answer can be held to one grammar; give one of them",
            param=found[1][0],
            code=CONFLICT,
        )
    return (found[0][1], found[0][0]) if found else None


def of_schema(schema: object, param: str, options: Mapping[str, object] = COMPACT) -> Grammar:
    """The grammar of a schema's JSON, compact if the options do not say otherwise; the schema may
    be JSON in a text."""
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _invalid(param, f"is not JSON: {error}") from None
    checked = check_schema(schema, param)
    checked.pop("x-guidance", None)  # the client's own could switch refusals off
    return Grammar("json_schema", _text({**checked, "x-guidance": options}, param))


def walked(grammar: Grammar, param: str) -> Grammar:
    """A grammar that somebody made by hand; a schema is checked as `of_schema` does, and has the
    options of every schema. What is walked already stays as it is."""
    return of_schema(grammar.text, param) if grammar.kind == "json_schema" else grammar


def _response_format(value: Any, param: str) -> Grammar | None:
    if not isinstance(value, dict):
        raise _invalid(param, f"is {shown(value)}; it must be an object with `type`")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        # llama-server and others take a schema with it.
        if value.get("schema") is not None:
            return of_schema(value["schema"], f"{param}.schema")
        return _object(True, param)
    if kind == "json_schema":
        form = value.get("json_schema")
        if not isinstance(form, dict):
            raise _invalid(f"{param}.json_schema", f"is {shown(form)}; it must be an object")
        if form.get("schema") is None:
            raise _invalid(f"{param}.json_schema.schema", "is missing")
        return of_schema(form["schema"], f"{param}.json_schema.schema")
    raise RequestError(
        f"{param}.type: {shown(kind)} is not supported; supported are text, json_object and "
        "json_schema",
        param=f"{param}.type",
        code=UNSUPPORTED,
    )


def _structured_outputs(value: Any, param: str) -> Grammar | None:
    if not isinstance(value, dict):
        raise _invalid(param, f"is {shown(value)}; it must be an object")
    given = {name: part for name, part in value.items() if part is not None and part is not False}
    for name in given:
        if name not in _NAMES or name == "structural_tag":
            raise RequestError(
                f"{param}.{name} is not supported; supported are json, regex, choice, grammar "
                "and json_object",
                param=f"{param}.{name}",
                code=UNSUPPORTED,
            )
    if len(given) != 1:
        raise RequestError(
            f"{param} has {', '.join(given) or 'nothing'}; give exactly one",
            param=param,
            code=CONFLICT if given else INVALID_VALUE,
        )
    ((name, part),) = given.items()
    return _READERS[name](part, f"{param}.{name}")


def _object(value: Any, param: str) -> Grammar:
    if value is not True:
        raise _invalid(param, f"is {shown(value)}; it must be true or false")
    return of_schema({"type": "object"}, param)


def _regex(value: Any, param: str) -> Grammar:
    return Grammar("regex", _string(value, param))


def _choice(value: Any, param: str) -> Grammar:
    if not isinstance(value, list) or not value:
        raise _invalid(param, f"is {shown(value)}; it must be a list of at least one text")
    if len(value) > MAX_CHOICES:
        raise _invalid(param, f"has {len(value)} texts; at most {MAX_CHOICES} are accepted")
    for index, text in enumerate(value):
        _string(text, f"{param}[{index}]")
    return Grammar("choice", _text(value, param))


def _grammar(value: Any, param: str) -> Grammar:
    """vLLM's: Lark, or the notation of llama.cpp, which vLLM calls EBNF."""
    text = _string(value, param)
    if _LARK.search(text) and "::=" not in text:
        return Grammar("lark", checked_lark(text, param))
    return Grammar("lark", lark_of(text, param))


def _llama_grammar(value: Any, param: str) -> Grammar | None:
    """llama-server's, of which the empty text is none."""
    return None if value == "" else Grammar("lark", lark_of(_string(value, param), param))


def _string(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid(param, f"is {shown(value)}; it must be a text that is not empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _invalid(param, f"cannot be written as UTF-8: {error}") from None
    return value


def _text(value: object, param: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as error:
        raise _invalid(param, f"cannot be written as JSON: {error}") from None


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_VALUE)


_READERS: dict[str, Callable[[Any, str], Grammar | None]] = {
    "json": of_schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _object,
}
_FIELDS: dict[str, Callable[[Any, str], Grammar | None]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": of_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "grammar": _llama_grammar,
    "json_schema": of_schema,
}
