"""The grammar of an answer, under the name that the server's files know."""

from __future__ import annotations

from headrace.conversation.answer_grammar import answer_grammar, has_grammar

__all__ = ["answer_grammar", "has_grammar"]
