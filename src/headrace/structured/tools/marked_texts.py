"""Strings that are written without quotes of JSON, from their first character up to and including
the mark that ends each.

Where a reader tells by a value's types whether a text is JSON or a string, no string may begin as
a value of a type that is not allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from headrace.answer_formats.readers.tagged_calls import types_of
from headrace.errors import RequestError
from headrace.structured.composition import Composition, expression, quoted, slashed
from headrace.structured.free_text import free_text, in_class
from headrace.structured.json_schema.patterns import PatternError
from headrace.structured.tools.text_patterns import FORMAT_PATTERNS, anchored

_FIRST_CHARACTERS = {"array": r"\[", "integer": r"0-9\-", "number": r"0-9\-", "object": "{"}
"""As they stand within a class of an expression."""
_OF_FORM = frozenset({"format", "pattern"})
"""Keywords beside which it is not plain that a text is left."""
_WORDS = {"boolean": ("true", "false", "True", "False"), "null": ("null", "None")}


class MarkedTexts:
    """The strings of one tool's parameters."""

    def __init__(
        self,
        rules: Composition,
        end: str,
        refusal: Callable[[str, str], RequestError],
        *,
        padding: str = "",
        not_first: str = "",
        own_lines: bool = False,
    ) -> None:
        """end: the mark, which no text has. refusal: the error for a keyword, and why. padding:
        between a text and the mark. not_first: characters that no text begins with. own_lines:
        whether a newline at either side of a text is read as padding, not as part of it."""
        self._rules = rules
        self._end = end
        self._refusal = refusal
        self._padding = padding
        self._not_first = not_first
        self._bare_lines = not own_lines or bool(padding)

    def body(self, schema: Mapping[str, Any], mistaken: Collection[str]) -> str:
        """A rule's body for the strings of a schema, without those that read as JSON of some types;
        "" where none is left.

        schema: of keywords of strings, or of an enumeration. Raises RequestError for a keyword that
        cannot be held.
        """
        end = self._rules.text(self._padding + self._end)
        if "enum" in schema:
            texts = [text for text in schema["enum"] if self.is_plain(text, mistaken)]
            return " | ".join(f"{quoted(text)} {end}".strip() for text in texts)
        first = in_class(self._not_first) + "".join(
            dict.fromkeys(_FIRST_CHARACTERS.get(name, "") for name in sorted(mistaken))
        )
        words = [word for name in sorted(mistaken) for word in _WORDS.get(name, ())]
        if not schema and not words:
            return self._free(first)
        return self._matched(schema, first, words)

    def is_plain(self, text: str, mistaken: Collection[str]) -> bool:
        """Whether a text is read as itself."""
        if self._end in text or (not self._bare_lines and text.strip("\n") != text):
            return False
        if self._not_first and text.startswith(tuple(self._not_first)):
            return False
        if not mistaken:
            return True
        try:
            value = json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
        except (ValueError, RecursionError):
            # Lists and objects as Python writes them are read as such.
            return not (text.lstrip()[:1] in ("[", "{") and {"array", "object"} & {*mistaken})
        return isinstance(value, str) or not types_of(value) & {*mistaken}

    def _free(self, first: str) -> str:
        """Any text, or one that does not begin with white space and certain characters."""
        try:
            text = free_text(self._rules, (self._end,))
        except ValueError:  # the mark is found in no text that is cut at its first character
            return self._matched({}, first, ())
        end = self._rules.text(self._end)
        if not first:
            return f"{text} {end}"
        begin = self._rules.rule(slashed(rf"[^\s{in_class(self._end[0])}{first}]"), terminal=True)
        return f"{begin} {text} {end} | {self._rules.text(self._padding + self._end)}"

    def _matched(self, schema: Mapping[str, Any], first: str, words: Sequence[str]) -> str:
        """A text of some length or form; one expression with its end, "" where no text is left."""
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if not all(isinstance(each, int) and 0 <= each < 1 << 31 for each in (low, high or 0)):
            raise self._refusal("minLength", "is not a number of characters")
        length = "*" if not low and high is None else f"{{{low},{'' if high is None else high}}}"
        parts = [slashed(f"(?s:.{length})")]
        if "pattern" in schema:
            try:
                parts.append(slashed(anchored(schema["pattern"])))
            except PatternError as error:
                raise self._refusal("pattern", f"cannot be written between tags: {error}") from None
        if "format" in schema:
            parts.append(slashed(FORMAT_PATTERNS[schema["format"]]))
        if first:
            parts.append(slashed(rf"([^\s{first}](?s:.*))?"))
        parts.append(f"~{slashed(f'(?s:.*){expression(self._end)}(?s:.*)')}")
        if words:
            parts.append("~" + slashed(rf"\s*({'|'.join(words)})\s*"))
        if not self._bare_lines:
            parts.append("~" + slashed(r"\n(?s:.*)|(?s:.*)\n"))
        form = f"({' & '.join(parts)})"
        # A form may have no text but such as would be read as something else, or as the mark.
        if not (schema.keys().isdisjoint(_OF_FORM) or self._rules.is_matched(form)):
            return ""
        special = self._rules.before_special(self._end) == ""
        rest = quoted(self._padding + ("" if special else self._end))
        name = self._rules.rule(f"{form} {rest}", terminal=True)
        return f"{name} {self._rules.text(self._end)}" if special else name
