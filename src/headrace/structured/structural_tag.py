"""Structural tags: text in which what stands between certain marks is held to a grammar.

Both forms that clients send are read: `structures` with `triggers`, and `format`, a tree of parts.
What is not supported of the tree is refused by name.

Source: xgrammar's structural tags, which vLLM takes in `response_format` and
`structured_outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition
from headrace.structured.forced_text import (
    FREE,
    MAX_FORCED_BYTES,
    ForcedText,
    either,
    forced_by,
    joined,
    optional,
    repeated,
    text_of,
)
from headrace.structured.free_text import free_text, repeats_its_start
from headrace.structured.gbnf import lark_of
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import INVALID_VALUE, UNSUPPORTED, of_schema
from headrace.structured.json_schema.runs import forced_by_schema
from headrace.structured.limits import GRAMMAR_TOO_LARGE
from headrace.structured.rules import check_rules

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
        return reading.rules.grammar(reading.read(whole, param, ()).rule)
    _check_keys(value, {"type", "format"}, param)
    return reading.rules.grammar(reading.read(value.get("format"), f"{param}.format", ()).rule)


class _Part(NamedTuple):
    """A part of a tag as a rule, or the body of one, and the text that it forces."""

    rule: str
    forced: ForcedText


class _Reading:
    """One structural tag while it becomes rules."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self.rules = Composition(special)
        self._num_parts = 0
        self._depth = 0
        self._readers: dict[str, Callable[[dict[str, Any], str, tuple[str, ...]], _Part]] = {
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

    def read(self, part: Any, param: str, ends: tuple[str, ...]) -> _Part:
        """A rule for a part of the tree; ends: the texts that may follow it, none for the end of
        the answer. Raises RequestError where it leaves no choice about too long a text."""
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
        body, forced = reader(part, param, ends)
        self._depth -= 1
        if forced.run > MAX_FORCED_BYTES:
            raise RequestError(
                f"{param} leaves no choice about {forced.run} bytes of an answer; at most "
                f"{MAX_FORCED_BYTES} are accepted in one go, by its parts together. Shorten them.",
                param=param,
                code=GRAMMAR_TOO_LARGE,
            )
        return _Part(self.rules.rule(body or '""'), forced)

    def _any_text(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "excludes"}, param)
        excluded = _texts(part, "excludes", param) if part.get("excludes") else []
        return _Part(self._text(ends, excluded, param), FREE)

    def _const_string(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "value"}, param)
        text = _text(part, "value", param)
        return _Part(self.rules.text(text), text_of(text))

    def _grammar(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "grammar"}, param)
        text = _text(part, "grammar", param)
        lark = lark_of(text, f"{param}.grammar")
        check_rules(lark, f"{param}.grammar", start="root")
        # What follows in rules that a client wrote is not written out: composition.UNFORCED.
        return _Part(self.rules.part(Grammar("lark", lark)), FREE)

    def _json_schema(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "json_schema", "style"}, param)
        if part.get("style", "json") != "json":
            raise RequestError(
                f"{param}.style: {shown(part['style'])} is not supported; supported is json",
                param=f"{param}.style",
                code=UNSUPPORTED,
            )
        grammar = of_schema(part.get("json_schema"), f"{param}.json_schema")
        forced = forced_by_schema(msgspec.json.decode(grammar.text))
        return _Part(self.rules.part(grammar), forced)

    def _regex(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "pattern"}, param)
        pattern = _text(part, "pattern", param)
        return _Part(self.rules.part(Grammar("regex", pattern)), forced_by(pattern))

    def _or(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "elements"}, param)
        elements = _listed(part, "elements", param)
        return _one_of(
            [
                self.read(element, f"{param}.elements[{index}]", ends)
                for index, element in enumerate(elements)
            ]
        )

    def _sequence(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        _check_keys(part, {"type", "elements"}, param)
        elements = _listed(part, "elements", param)
        parts: list[_Part] = []
        for index in reversed(range(len(elements))):
            parts.append(self.read(elements[index], f"{param}.elements[{index}]", ends))
            ends = _begins(elements[index])
        rules = " ".join(part.rule for part in reversed(parts))
        return _Part(rules, joined(part.forced for part in reversed(parts)))

    def _tag(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
        return self._whole_tag(part, param, "")

    def _whole_tag(self, part: Any, param: str, before: str) -> _Part:
        """A tag, behind a text that is one with its beginning."""
        part = _an_object(part)
        _check_keys(part, {"type", "begin", "content", "end"}, param)
        end = part.get("end")
        ends = _texts(part, "end", param) if isinstance(end, list) else [_text(part, "end", param)]
        begin_text = before + _text(part, "begin", param)
        begin = self.rules.text(begin_text)
        content = self.read(part.get("content"), f"{param}.content", tuple(ends))
        closing = " | ".join(self.rules.text(each) or '""' for each in ends)
        forced = joined((text_of(begin_text), content.forced, either(map(text_of, ends))))
        return _Part(self.rules.rule(f"{begin} {content.rule} ({closing})"), forced)

    def _tags_with_separator(
        self, part: dict[str, Any], param: str, ends: tuple[str, ...]
    ) -> _Part:
        _check_keys(part, {"type", "tags", "separator", "at_least_one", "stop_after_first"}, param)
        tags = _listed(part, "tags", param)
        separator = _text(part, "separator", param)
        first = self._alternatives(tags, param, "")
        more = self._alternatives(tags, param, separator)
        body, forced = first
        if part.get("stop_after_first") is not True:
            body = f"{first.rule} {more.rule}*"
            forced = joined((first.forced, optional(repeated(more.forced, 0, None))))
        if part.get("at_least_one") is True:
            return _Part(body, forced)
        return _Part(f"({body})?", optional(forced))

    def _triggered_tags(self, part: dict[str, Any], param: str, ends: tuple[str, ...]) -> _Part:
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
        tag_rule, forced = self._alternatives(tags, param, "")
        forced = joined((FREE, forced, FREE))
        if part.get("stop_after_first") is True:
            once = f"{text} {tag_rule}"
            is_needed = part.get("at_least_one") is True
            return _Part(once if is_needed else f"{once} | {text}", forced)
        first = f"{text} {tag_rule}" if part.get("at_least_one") is True else ""
        return _Part(f"{first} {text} ({tag_rule} {text})*", forced)

    def _alternatives(self, tags: Sequence[Any], param: str, before: str) -> _Part:
        parts = [
            self._whole_tag(tag, f"{param}.tags[{index}]", before) for index, tag in enumerate(tags)
        ]
        found = _one_of(parts)
        return found._replace(rule=f"({found.rule})")

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


def _one_of(parts: Sequence[_Part]) -> _Part:
    return _Part(" | ".join(part.rule for part in parts), either(part.forced for part in parts))


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
