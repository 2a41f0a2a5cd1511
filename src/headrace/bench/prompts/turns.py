"""Conversations whose turns are sent one after the other, as a user would.

Turn n's prompt holds the questions so far and a place for each answer, which the run fills with
what the endpoint said. An item's `think_ns` is the wait before it is sent, from the end of the turn
before; a session's first turn has none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.lengths import Lengths, Sizes
from headrace.bench.prompts.made import MadeWorkload, Missed
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.synthetic import check_count
from headrace.bench.prompts.think import ThinkTime
from headrace.bench.workload import AWAITED_ANSWER, WorkItem

NO_THINKING = ThinkTime()


def session_items(
    session: int,
    questions: Sequence[str],
    output_tokens: Sequence[int],
    *,
    think: ThinkTime,
    source: random.Random,
    system: str = "",
    options: RequestOptions = NO_OPTIONS,
) -> list[WorkItem]:
    """The turns of one conversation. Its prompts' lengths are not aimed at: answers decide them."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    items = []
    for turn, (question, tokens) in enumerate(zip(questions, output_tokens, strict=True)):
        messages.append({"role": "user", "content": question})
        items.append(
            WorkItem(
                prompt=options.prompt(tokens, messages=tuple(messages)),
                session=session,
                turn=turn,
                think_ns=think.draw_ns(source) if turn else 0,
                output_tokens_asked=tokens,
            )
        )
        messages.append({"role": "assistant", "content": AWAITED_ANSWER})
    return items


def synthetic_sessions(
    writer: PromptWriter,
    sessions: int,
    turns: Lengths,
    sizes: Sizes,
    source: random.Random,
    *,
    think: ThinkTime = NO_THINKING,
    system_tokens: int = 0,
    options: RequestOptions = NO_OPTIONS,
    name: str = "synthetic-sessions",
) -> MadeWorkload:
    """Conversations of drawn numbers of turns; `sizes` are of each question and answer.

    system_tokens: of a system message that all sessions share; 0 for none. A question that has
    another length than was drawn is listed with its item's index.
    """
    check_count(sessions, "sessions")
    system = writer.text(system_tokens, source).text if system_tokens else ""
    items: list[WorkItem] = []
    missed: list[Missed] = []
    for session, count in enumerate(turns.draw(sessions, source)):
        drawn = sizes.draw(count, source)
        questions = [writer.text(size.prompt_tokens, source) for size in drawn]
        missed += [
            Missed(len(items) + at, size.prompt_tokens, question.tokens)
            for at, (size, question) in enumerate(zip(drawn, questions, strict=True))
            if size.prompt_tokens != question.tokens
        ]
        items += session_items(
            session,
            [question.text for question in questions],
            [size.output_tokens for size in drawn],
            think=think,
            source=source,
            system=system,
            options=options,
        )
    return MadeWorkload(name, items, missed=missed)
