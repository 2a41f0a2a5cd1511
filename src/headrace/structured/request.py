"""From the fields by which clients constrain an answer to the one grammar that the engine takes.

The fields are those of OpenAI, vLLM, SGLang and llama-server. Whatever is given is turned into a
grammar that holds the answer to all of it, or is refused by name; two at once are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import RequestError, shown
from headrace.structured.gbnf import lark_of
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import (
    COMPACT,
    INVALID_VALUE,
    UNSUPPORTED,
    closed_schema,
    json_text,
    of_schema,
    spaced_by,
)
from headrace.structured.lark import checked_lark
from headrace.structured.limits import DEFAULT as LIMITS
from headrace.structured.rules import check_rules
from headrace.structured.structural_tag import of_structural_tag

CONFLICT = "several_grammars"

MAX_CHOICES = 10_000

_LARK = re.compile(r"(?m)^\s*(%llguidance\b|start\s*:)")
_BESIDE_JSON = ("whitespace_pattern", "disable_additional_properties")
_FULFILLED = ("disable_any_whitespace", "disable_fallback")
"""What holds of every answer here, so that asking for it changes nothing."""
_FORM_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def grammar_of(fields: Mapping[str, Any], special: Mapping[str, int] = {}) -> Grammar | None:
    """The grammar of a request; None for free text. Null and absent are the same.

    fields: those of the request; others than those that constrain answers are not looked at.
    special: the texts of the model's control tokens and their ids, which marks of structural tags
    may be.
    Raises RequestError naming the field.
    """
    found = constraint_of(fields, special)
    return None if found is None else found[0]


def constraint_of(
    fields: Mapping[str, Any], special: Mapping[str, int] = {}
) -> tuple[Grammar, str] | None:
    """The same with the name of the field that the grammar comes from."""
    found: list[tuple[str, Grammar]] = []
    fields = _with_white_space(fields)
    for name, read in _readers(special).items():
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


def _response_format(value: Any, param: str, special: Mapping[str, int]) -> Grammar | None:
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
        if form is None:
            raise _invalid(
                f"{param}.json_schema", "is missing; it must be an object with `name` and `schema`"
            )
        if not isinstance(form, dict):
            raise _invalid(f"{param}.json_schema", f"is {shown(form)}; it must be an object")
        _check_form(form, f"{param}.json_schema")
        if form.get("schema") is None:  # OpenAI's API description has it optional
            return _object(True, param)
        return of_schema(form["schema"], f"{param}.json_schema.schema")
    if kind == "structural_tag":
        return of_structural_tag(value, param, special)
    raise RequestError(
        f"{param}.type: {shown(kind)} is not supported; supported are text, json_object, "
        "json_schema and structural_tag",
        param=f"{param}.type",
        code=UNSUPPORTED,
    )


def _check_form(form: dict[str, Any], param: str) -> None:
    """What stands beside a schema. Every answer is held to it, whatever `strict` is."""
    name = form.get("name")
    if name is not None and not (isinstance(name, str) and _FORM_NAME.fullmatch(name)):
        raise _invalid(
            f"{param}.name", f"is {shown(name)}; it must have 1 to 64 letters, digits, _ or -"
        )
    if form.get("strict") is not None and not isinstance(form["strict"], bool):
        raise _invalid(f"{param}.strict", f"is {shown(form['strict'])}; it must be true or false")
    description = form.get("description")
    if description is not None and not isinstance(description, str):
        raise _invalid(f"{param}.description", f"is {shown(description)}; it must be a text")


def _structured_outputs(value: Any, param: str, special: Mapping[str, int]) -> Grammar | None:
    if not isinstance(value, dict):
        raise _invalid(param, f"is {shown(value)}; it must be an object")
    given = {name: part for name, part in value.items() if part is not None and part is not False}
    for name in _FULFILLED:
        if given.pop(name, True) is not True:
            raise _invalid(f"{param}.{name}", f"is {shown(value[name])}; it must be true or false")
    white_space, closed = (given.pop(name, None) for name in _BESIDE_JSON)
    for name in given:
        if name not in _FORMS:
            names = ", ".join((*_FORMS, *_BESIDE_JSON, *_FULFILLED))
            raise RequestError(
                f"{param}.{name} is not supported; supported are {names}",
                param=f"{param}.{name}",
                code=UNSUPPORTED,
            )
    if len(given) != 1:
        raise RequestError(
            f"{param} has {', '.join(given) or 'nothing'}; give exactly one of {', '.join(_FORMS)}",
            param=param,
            code=CONFLICT if given else INVALID_VALUE,
        )
    ((name, part),) = given.items()
    if name == "json" and (white_space is not None or closed is not None):
        options = COMPACT
        if white_space is not None:
            options = spaced_by(white_space, f"{param}.whitespace_pattern")
        if closed is not None:
            _object(closed, f"{param}.disable_additional_properties")
            part = closed_schema(part)
        return of_schema(part, f"{param}.{name}", options)
    for knob, knob_value in zip(_BESIDE_JSON, (white_space, closed), strict=True):
        if knob_value is not None and name != "json":
            raise RequestError(
                f"{param}.{knob} has no effect beside {name}; it is about JSON by a schema. Omit "
                "it, or give json.",
                param=f"{param}.{knob}",
                code=UNSUPPORTED,
            )
    if name == "structural_tag":
        return of_structural_tag(part, f"{param}.{name}", special)
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
    return Grammar("choice", json_text(value, param))


def _grammar(value: Any, param: str) -> Grammar:
    """vLLM's: Lark, or the notation of llama.cpp, which vLLM calls EBNF."""
    text = _string(value, param)
    if _LARK.search(text) and "::=" not in text:
        return _lark(checked_lark(text, param), param)
    return _gbnf(text, param)


def _gbnf(value: Any, param: str) -> Grammar:
    return _lark(lark_of(_string(value, param), param), param, start="root")


def _lark(text: str, param: str, *, start: str = "start") -> Grammar:
    """start: what the client calls the first rule."""
    grammar = Grammar("lark", text)
    LIMITS.check_size(grammar, param)
    check_rules(text, param, start=start)
    return grammar


def _llama_grammar(value: Any, param: str) -> Grammar | None:
    """llama-server's, of which the empty text is none."""
    return None if value == "" else _gbnf(value, param)


def _string(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid(param, f"is {shown(value)}; it must be a text that is not empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _invalid(param, f"cannot be written as UTF-8: {error}") from None
    return value


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_VALUE)


_READERS: dict[str, Callable[[Any, str], Grammar | None]] = {
    "json": of_schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _object,
}
_FORMS = (*_READERS, "structural_tag")
"""Of which `structured_outputs` has one."""


def _with_white_space(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields with `guided_json` as `structured_outputs`, if white space is asked for beside."""
    pattern = fields.get("guided_whitespace_pattern")
    if pattern is None:
        return fields
    schema = fields.get("guided_json")
    if schema is None or fields.get("structured_outputs") is not None:
        raise _invalid("guided_whitespace_pattern", "is given without guided_json beside it")
    outputs = {"json": schema, "whitespace_pattern": pattern}
    return {**fields, "guided_json": None, "structured_outputs": outputs}


def _readers(special: Mapping[str, int]) -> dict[str, Callable[[Any, str], Grammar | None]]:
    """The reader of each field."""
    return {
        "response_format": lambda value, param: _response_format(value, param, special),
        "structured_outputs": lambda value, param: _structured_outputs(value, param, special),
        **_FIELDS,
    }


_FIELDS: dict[str, Callable[[Any, str], Grammar | None]] = {
    "guided_json": of_schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "regex": _regex,
    "ebnf": _gbnf,
    "grammar": _llama_grammar,
    "json_schema": of_schema,
}
