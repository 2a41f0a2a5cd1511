"""Structural tags: text in which what stands between certain marks is held to a grammar.

Both forms that clients send are read: `structures` with `triggers`, and `format`, a tree of parts.
What is not supported of the tree is refused by name.

Source: xgrammar's structural tags, which vLLM takes in `response_format` and
`structured_outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition
from headrace.structured.forced_text import MAX_FORCED_BYTES, num_bytes
from headrace.structured.free_text import free_text, repeats_its_start
from headrace.structured.gbnf import lark_of
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import INVALID_VALUE, UNSUPPORTED, of_schema
from headrace.structured.limits import GRAMMAR_TOO_LARGE

MAX_PARTS = 2000
"""Of a whole tag."""
MAX_DEPTH = 16


def of_structural_tag(value: Any, param: str, special: Mapping[str, int]) -> Grammar:
    """The grammar of a structural tag, which may be JSON in a text.

    special: the texts of the model's control tokens and their ids; marks may be such tokens.
    Raises RequestError naming the field at fault.
    """
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _invalid(param, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _invalid(param, f"is {shown(value)}; it must be an object")
    reading = _Reading(special)
    if "structures" in value:
        _check_keys(value, {"type", "structures", "triggers"}, param)
        tags = [
            {
                "begin": structure.get("begin"),
                "content": {"type": "json_schema", "json_schema": structure.get("schema")},
                "end": structure.get("end"),
            }
            for structure in map(_an_object, _listed(value, "structures", param))
        ]
        whole = {"type": "triggered_tags", "triggers": value.get("triggers"), "tags": tags}
        return reading.rules.grammar(reading.read(whole, param, ()))
    _check_keys(value, {"type", "format"}, param)
    return reading.rules.grammar(reading.read(value.get("format"), f"{param}.format", ()))


class _Reading:
    """One structural tag while it becomes rules."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self.rules = Composition(special)
        self._num_parts = 0
        self._depth = 0
        self._readers: dict[str, Callable[[dict[str, Any], str, tuple[str, ...]], str]] = {
            "any_text": self._any_text,
            "const_string": self._const_string,
            "grammar": self._grammar,
            "json_schema": self._json_schema,
            "or": self._or,
            "regex": self._regex,
            "sequence": self._sequence,
            "tag": self._tag,
            "tags_with_separator": self._tags_with_separator,
            "triggered_tags": self._triggered_tags,
        }

    def read(self, part: Any, param: str, ends: tuple[str, ...]) -> str:
        """A rule for a part of the tree; ends: the texts that may follow it, none for the end of
        the answer."""
        if not isinstance(part, dict):
            raise _invalid(param, f"is {shown(part)}; it must be an object with `type`")
        self._num_parts += 1
        if self._num_parts > MAX_PARTS or self._depth >= MAX_DEPTH:
            raise _invalid(
                param, f"is one of more than {MAX_PARTS} parts, or nested deeper than {MAX_DEPTH}"
            )
        kind = part.get("type")
        reader = self._readers.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise RequestError(
                f"{param}.type: {shown(kind)} is not supported; supported are "
                f"{', '.join(sorted(self._readers))}",
                param=f"{param}.type",
                code=UNSUPPORTED,
            )
        self._depth += 1
        body = reader(part, param, ends)
        self._depth -= 1
        return self.rules.rule(body or '""')

    def _any_text(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "excludes"}, param)
        excluded = _texts(part, "excludes", param) if part.get("excludes") else []
        return self._text(ends, excluded, param)

    def _const_string(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "value"}, param)
        return self.rules.text(_text(part, "value", param))

    def _grammar(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "grammar"}, param)
        text = _text(part, "grammar", param)
        return self.rules.part(Grammar("lark", lark_of(text, f"{param}.grammar")))

    def _json_schema(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "json_schema", "style"}, param)
        if part.get("style", "json") != "json":
            raise RequestError(
                f"{param}.style: {shown(part['style'])} is not supported; supported is json",
                param=f"{param}.style",
                code=UNSUPPORTED,
            )
        return self.rules.part(of_schema(part.get("json_schema"), f"{param}.json_schema"))

    def _regex(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "pattern"}, param)
        return self.rules.part(Grammar("regex", _text(part, "pattern", param)))

    def _or(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "elements"}, param)
        elements = _listed(part, "elements", param)
        return " | ".join(
            self.read(element, f"{param}.elements[{index}]", ends)
            for index, element in enumerate(elements)
        )

    def _sequence(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "elements"}, param)
        elements = _listed(part, "elements", param)
        _check_length(elements, param)
        bodies: list[str] = []
        for index in reversed(range(len(elements))):
            bodies.append(self.read(elements[index], f"{param}.elements[{index}]", ends))
            ends = _begins(elements[index])
        return " ".join(reversed(bodies))

    def _tag(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        return self._whole_tag(part, param, "")

    def _whole_tag(self, part: Any, param: str, before: str) -> str:
        """A tag, behind a text that is one with its beginning."""
        part = _an_object(part)
        _check_keys(part, {"type", "begin", "content", "end"}, param)
        end = part.get("end")
        ends = _texts(part, "end", param) if isinstance(end, list) else [_text(part, "end", param)]
        begin = self.rules.text(before + _text(part, "begin", param))
        content = self.read(part.get("content"), f"{param}.content", tuple(ends))
        closing = " | ".join(self.rules.text(each) or '""' for each in ends)
        return self.rules.rule(f"{begin} {content} ({closing})")

    def _tags_with_separator(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        _check_keys(part, {"type", "tags", "separator", "at_least_one", "stop_after_first"}, param)
        tags = _listed(part, "tags", param)
        separator = _text(part, "separator", param)
        first = self._alternatives(tags, param, "")
        more = self._alternatives(tags, param, separator)
        body = first if part.get("stop_after_first") is True else f"{first} {more}*"
        return body if part.get("at_least_one") is True else f"({body})?"

    def _triggered_tags(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> str:
        keys = {"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"}
        _check_keys(part, keys, param)
        triggers = _texts(part, "triggers", param)
        excluded = _texts(part, "excludes", param) if part.get("excludes") else []
        tags = _listed(part, "tags", param)
        for index, tag in enumerate(tags):
            begin = _text(_an_object(tag), "begin", f"{param}.tags[{index}]")
            if not any(begin.startswith(trigger) for trigger in triggers):
                raise _invalid(
                    f"{param}.tags[{index}].begin", f"is {shown(begin)}, which no trigger begins"
                )
        text = self._text((*triggers, *ends), excluded, param)
        tag_rule = self._alternatives(tags, param, "")
        if part.get("stop_after_first") is True:
            once = f"{text} {tag_rule}"
            return once if part.get("at_least_one") is True else f"{once} | {text}"
        first = f"{text} {tag_rule}" if part.get("at_least_one") is True else ""
        return f"{first} {text} ({tag_rule} {text})*"

    def _alternatives(self, tags: Sequence[Any], param: str, before: str) -> str:
        rules = (
            self._whole_tag(tag, f"{param}.tags[{index}]", before) for index, tag in enumerate(tags)
        )
        return f"({' | '.join(rules)})"

    def _text(self, ends: Sequence[str], excluded: Sequence[str], param: str) -> str:
        """A rule for text that has none of its ends in it."""
        written = [mark for mark in (*ends, *excluded) if not self.rules.is_special(mark)]
        if any(not mark for mark in ends) or repeats_its_start(written):
            raise RequestError(
                f"{param}: text that ends at {', '.join(map(shown, written))} is not supported, "
                "since one is empty or has the first character of one again",
                param=param,
                code=UNSUPPORTED,
            )
        return free_text(self.rules, ends, excluded)


def _check_length(elements: Sequence[Any], param: str) -> None:
    """Constants that follow each other are one text, which is written in one go."""
    length = 0
    for element in elements:
        match element:
            case {"type": "const_string", "value": str() as text}:
                length += num_bytes(text)
            case _:
                length = 0
        if length > MAX_FORCED_BYTES:
            raise RequestError(
                f"{param}.elements leaves no choice about {length} bytes of an answer; at most "
                f"{MAX_FORCED_BYTES} are accepted in one go. Shorten the constants.",
                param=f"{param}.elements",
                code=GRAMMAR_TOO_LARGE,
            )


def _begins(part: Any) -> tuple[str, ...]:
    """The texts that a part may begin with; an empty one for a part that may begin otherwise."""
    match part:
        case {"type": "tag", "begin": str() as text}:
            return (text,)
        case {"type": "const_string", "value": str() as text}:
            return (text,)
        case {"type": "or", "elements": list() as elements}:
            return tuple(text for element in elements for text in _begins(element))
    return ("",)


def _an_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_keys(value: dict[str, Any], known: set[str], param: str) -> None:
    for key in value:
        if key not in known and value[key] is not None:
            raise RequestError(
                f"{param}.{key} is not supported; supported are {', '.join(sorted(known))}",
                param=f"{param}.{key}",
                code=UNSUPPORTED,
            )


def _listed(value: dict[str, Any], key: str, param: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list) or not found:
        raise _invalid(f"{param}.{key}", f"is {shown(found)}; it must be a list that is not empty")
    return found


def _texts(value: dict[str, Any], key: str, param: str) -> list[str]:
    found = _listed(value, key, param)
    for index, text in enumerate(found):
        if not isinstance(text, str) or not text:
            raise _invalid(
                f"{param}.{key}[{index}]", f"is {shown(text)}; it must be a text that is not empty"
            )
    return found


def _text(value: dict[str, Any], key: str, param: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise _invalid(f"{param}.{key}", f"is {shown(found)}; it must be a text")
    return found


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_VALUE)
