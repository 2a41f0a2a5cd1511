"""Grammars of answers that a model may reason before: reasoning is free, what follows it is not.

Reasoning ends with its mark, or where calls begin with a mark that ends it as well; the ids of its
mark, forced at the end of a budget, are a text of the grammar wherever they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.answer_formats.call_syntax import HarmonyCalls, ReasoningFormat, ThinkTags
from headrace.answer_formats.harmony_marks import (
    ANALYSIS,
    COMMENTARY,
    END,
    FINAL,
    JSON,
    NEXT_MESSAGE,
    message_on,
)
from headrace.structured.composition import Composition
from headrace.structured.free_text import SPACE, free_text
from headrace.structured.grammar import Grammar


def after_reasoning(
    grammar: Grammar,
    format: ReasoningFormat | None,
    *,
    opened: bool,
    special: Mapping[str, int],
    calls: Sequence[str] = (),
) -> Grammar:
    """A grammar held to once the model has reasoned; the grammar itself for one that does not.

    opened: the prompt ends with the mark that begins reasoning. If not, the answer begins with
    that mark or with what the grammar says.
    special: the texts of the model's control tokens and their ids. calls: marks of calls, which
    would end reasoning where the answer is read for calls.
    """
    if format is None:
        return grammar
    rules = Composition(special)
    body = rules.part(grammar)
    if isinstance(format.tags, HarmonyCalls):
        heads = (message_on(FINAL), message_on(FINAL, form=JSON))
        final = " | ".join(map(rules.text, heads))
        return rules.grammar(f"{harmony_messages(rules)} ({final}) {body}")
    answer = around(rules, format, body)
    return rules.grammar(_reasoned(rules, format.tags, opened, answer, None, calls))


@dataclass(frozen=True, slots=True)
class Straight:
    """Calls that may follow reasoning without the mark that ends it."""

    body: str
    """A rule's body."""
    marks: tuple[str, ...]
    """What it begins with; all of them end reasoning as well."""


def reasoned(
    rules: Composition,
    format: ReasoningFormat | None,
    opened: bool,
    body: str,
    straight: Straight | None = None,
) -> str:
    """A rule's body: reasoning, if there is or may be some, and what follows it. Not harmony's."""
    tags = None if format is None else format.tags
    return _reasoned(rules, tags, opened, body, straight) if isinstance(tags, ThinkTags) else body


def around(rules: Composition, format: ReasoningFormat, body: str) -> str:
    """A body alone or between the marks that the format's models write around an answer."""
    wrapped = [f"{rules.text(begin)} {body} {rules.text(end)}" for begin, end in format.wraps]
    return f"({' | '.join((body, *wrapped))})"


def harmony_messages(rules: Composition) -> str:
    """A rule for messages before the one that counts: reasoning, and what is said before calls."""
    free = free_text(rules, (END,))
    begin = " | ".join(rules.text(message_on(channel)) for channel in (ANALYSIS, COMMENTARY))
    return rules.rule(f"(({begin}) {free} {rules.text(NEXT_MESSAGE)})*")


def _reasoned(
    rules: Composition,
    tags: ThinkTags,
    opened: bool,
    body: str,
    straight: Straight | None,
    calls: Sequence[str] = (),
) -> str:
    ends = (tags.end, *tags.other_ends)
    rest = f"({' | '.join(map(rules.text, ends))}) {SPACE} {body}"
    if straight is not None:
        rest = f"({rest} | {straight.body})"
    marks = ends if straight is None else (*ends, *straight.marks)
    thought = f"{free_text(rules, marks, (*tags.also_ended_by, *calls))} {rest}"
    begins = " | ".join(map(rules.text, (tags.begin, *tags.other_begins)))
    return thought if opened else f"({begins}) {thought} | {body}"
