"""What llguidance accepts of a grammar, byte by byte: the judge of what the walk lets pass."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from headrace.structured.grammar import Grammar


@cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


class Language:
    """The texts of a grammar."""

    def __init__(self, grammar: Grammar) -> None:
        if grammar.kind == "json_schema":
            source = LLMatcher.grammar_from_json_schema(grammar.text)
        elif grammar.kind == "regex":
            source = LLMatcher.grammar_from_regex(grammar.text)
        elif grammar.kind == "composed":
            source = grammar.text
        else:
            source = LLMatcher.grammar_from_lark(grammar.text)
        self._matcher = LLMatcher(_tokenizer(), source, log_level=0)
        self.error = self._matcher.get_error()

    def has(self, text: str) -> bool:
        """Whether the text is one of them, as a whole."""
        matcher = self._matcher.deep_copy()
        ids = _tokenizer().tokenize_bytes(text.encode("utf-8", "surrogatepass"))
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def has_value(self, value: Any) -> bool:
        """Whether the value's compact JSON is one of them."""
        return self.has(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
