"""The rules of the answers to a conversation, decided here for server and library alike.

The grammar that holds an answer, the marks it must not have, and the place of its reasoning follow
from the same facts: the form that was given, the tools and which of them may be called, and how
the model writes. Whether there is a grammar is known before it is made, so that free answers wait
for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.conversation.answer_grammar import ToolRules, calls_need_grammar, held_to
from headrace.conversation.format_marks import FormatMarks
from headrace.conversation.reading import AnswerReading
from headrace.conversation.request import allowed_format
from headrace.conversation.thinking import ReasoningStart, start_of_reading
from headrace.protocol.openai.tools import ToolChoice
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks


class AnswerRules(NamedTuple):
    """The rules of the answers to one conversation."""

    tools: ToolRules
    """Its tools, and which of them may or must be called."""
    choice: ToolChoice
    """The choice among them."""
    has_form: bool
    """Whether the answers are held to a form, with tools or without."""
    shows_tools: bool
    """Whether the prompt has the tools."""
    marks: FormatMarks
    """How the model writes reasoning and calls."""
    reading: AnswerReading | None
    """How the answers are read; None where they are content as they stand."""
    variables: Mapping[str, Any]
    """Of the template, a server's own included."""

    @property
    def is_held(self) -> bool:
        """Whether a grammar holds the answers."""
        return self.has_form or calls_need_grammar(self.tools, self.choice)

    def grammar(
        self,
        formed: tuple[Grammar, str] | None,
        special: Mapping[str, int],
        checks: GrammarChecks,
    ) -> tuple[Grammar, str] | None:
        """The grammar of the answers, and the field that is named if it does not compile; None
        where nothing holds them.

        formed: their form and its field; None for none. special, checks, errors: as of `held_to`.
        """
        opened = self.reading is not None and self.reading.reasoning_opened
        format = allowed_format(self.marks.format, self.variables, opened=opened)
        if self.reading is None:  # thoughts would be content, and not of the form
            format = replace(format, reasoning=None)
        return held_to(
            formed,
            self.tools,
            format,
            choice=self.choice,
            opened=opened,
            special=special,
            checks=checks,
        )

    @property
    def banned_ids(self) -> tuple[tuple[int, ...], ...]:
        """The ids of marks that begin calls, where the prompt shows tools and none may be called.

        An answer with a form does not call anyway, and a mask beside the grammar's own would keep
        forced spans from it.
        """
        if not self.shows_tools or self.choice.may_call or self.has_form:
            return ()
        return self.marks.call_ids

    def reasoning_start(self) -> ReasoningStart | None:
        """The place of reasoning in the answers; None where the model does not reason."""
        return start_of_reading(self.reading, self.marks.tokenizer, is_held=self.is_held)
