"""What an answer may be, byte by byte, compiled as for every request: the judge of what the walk
lets pass."""

from __future__ import annotations

import json
from typing import Any

from headrace.errors import RequestError
from headrace.structured.compile import CompiledGrammar, compile_grammar
from headrace.structured.grammar import Grammar
from tools.structured.language import byte_tokenizer


class Language:
    """The texts of a grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.error = ""
        """Why it does not compile."""
        self._compiled: CompiledGrammar | None = None
        try:
            self._compiled = compile_grammar(grammar, byte_tokenizer())
        except RequestError as error:
            self.error = str(error)

    def has(self, text: str) -> bool:
        """Whether the text is one of them, as a whole."""
        assert self._compiled is not None, self.error
        matcher = self._compiled.matcher()
        ids = list(text.encode("utf-8", "surrogatepass"))
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def has_value(self, value: Any) -> bool:
        """Whether the value's compact JSON is one of them."""
        return self.has(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
