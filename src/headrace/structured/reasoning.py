"""Grammars of answers that a model may reason before: reasoning is free, what follows it is not.

Reasoning ends with its mark and with nothing else; the ids of the mark, forced at the end of a
budget, are a text of the grammar wherever they come.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.answer_formats.call_syntax import HarmonyCalls, ReasoningFormat, ThinkTags
from headrace.structured.composition import Composition
from headrace.structured.free_text import SPACE, free_text
from headrace.structured.grammar import Grammar


def after_reasoning(
    grammar: Grammar,
    format: ReasoningFormat | None,
    *,
    opened: bool,
    special: Mapping[str, int],
) -> Grammar:
    """A grammar held to once the model has reasoned; the grammar itself for one that does not.

    opened: the prompt ends with the mark that begins reasoning. If not, the answer begins with
    that mark or with what the grammar says.
    special: the texts of the model's control tokens and their ids.
    """
    if format is None:
        return grammar
    rules = Composition(special)
    body = rules.part(grammar)
    if isinstance(format.tags, HarmonyCalls):
        final = (
            f"({rules.text('<|channel|>final<|message|>')} | "
            f"{rules.text('<|channel|>final <|constrain|>json<|message|>')}) {body}"
        )
        return rules.grammar(f"{harmony_messages(rules)} {final}")
    if format.wraps:
        body = _wrapped(rules, format.wraps, body)
    return rules.grammar(_reasoned(rules, format.tags, opened, body))


def reasoned(rules: Composition, format: ReasoningFormat | None, opened: bool, body: str) -> str:
    """A rule's body: reasoning, if there is or may be some, and what follows it. Not harmony's."""
    tags = None if format is None else format.tags
    return _reasoned(rules, tags, opened, body) if isinstance(tags, ThinkTags) else body


def harmony_messages(rules: Composition) -> str:
    """A rule for messages before the one that counts: reasoning, and what is said before calls."""
    free = free_text(rules, ("<|end|>",))
    begin = " | ".join(
        rules.text(f"<|channel|>{channel}<|message|>") for channel in ("analysis", "commentary")
    )
    return rules.rule(f"(({begin}) {free} {rules.text('<|end|><|start|>assistant')})*")


def _reasoned(rules: Composition, tags: ThinkTags, opened: bool, body: str) -> str:
    free = free_text(rules, (tags.end,), tags.also_ended_by)
    thought = f"{free} {rules.text(tags.end)} {SPACE} {body}"
    return thought if opened else f"{rules.text(tags.begin)} {thought} | {body}"


def _wrapped(rules: Composition, wraps: tuple[tuple[str, str], ...], body: str) -> str:
    """What may stand between marks that are not part of it."""
    wrapped = [f"{rules.text(begin)} {body} {rules.text(end)}" for begin, end in wraps]
    return f"({' | '.join((body, *wrapped))})"
