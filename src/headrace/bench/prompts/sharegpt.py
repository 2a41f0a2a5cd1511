"""Conversations in the format of ShareGPT: a JSON list of `conversations` of `from` and `value`.

Two uses. `first_turns`: each conversation's first question, with the recorded answer's length.
`sessions`: all turns, one after the other, with time to think; later turns carry the answers that
the endpoint gave, not the recorded ones, so that its prefix cache sees what it would see. Only
pairs of a question and an answer count; conversations without one are left out, and the notes say
so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.bench.prompts.made import MadeWorkload
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.read_json import parsed, read_text
from headrace.bench.prompts.think import ThinkTime
from headrace.bench.prompts.turns import NO_THINKING, session_items
from headrace.bench.workload import Tokenization, WorkItem
from headrace.errors import ConfigError, shown

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
}


class Turn(NamedTuple):
    """A question, and the answer that the data set has for it."""

    question: str
    answer: str


class Conversation(NamedTuple):
    """Turns in order; `system` is "" where nobody set the scene."""

    system: str
    turns: tuple[Turn, ...]


class ShareGPT(NamedTuple):
    """The conversations of a file."""

    name: str
    conversations: tuple[Conversation, ...]
    notes: tuple[str, ...]


def read_sharegpt(path: Path) -> ShareGPT:
    """Raises ConfigError with the file and the number of the conversation (from 0) for damage."""
    found = parsed(read_text(path), str(path))
    if not isinstance(found, list):
        raise ConfigError(
            f"{path}: is not a list of conversations; give a file in ShareGPT's format"
        )
    read = [_conversation(one, f"{path}: conversation {at}") for at, one in enumerate(found)]
    kept = tuple(one for one in read if one.turns)
    if not kept:
        raise ConfigError(f"{path}: no conversation has a question and an answer; use another file")
    left_out = len(read) - len(kept)
    notes = [f"{path.name}: {left_out} of {len(read)} conversations have no question and answer"]
    return ShareGPT(path.name, kept, tuple(notes if left_out else ()))


def first_turns(
    data: ShareGPT,
    tokenization: Tokenization,
    source: random.Random,
    *,
    limit: int | None = None,
    max_prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    options: RequestOptions = NO_OPTIONS,
) -> MadeWorkload:
    """The first questions, in random order, `limit` of them or as many as there are.

    max_prompt_tokens: longer ones are left out, which the notes say. output_tokens: the same for
    all in place of the recorded answers' lengths.
    """
    items: list[WorkItem] = []
    too_long = 0
    for one in _shuffled(data.conversations, source):
        if limit is not None and len(items) >= limit:
            break
        turn = one.turns[0]
        length = len(tokenization.encode(turn.question)) + len(tokenization.encode(one.system))
        if max_prompt_tokens is not None and length > max_prompt_tokens:
            too_long += 1
            continue
        answer = output_tokens or max(1, len(tokenization.encode(turn.answer)))
        what: dict[str, Any] = {"text": turn.question}
        if one.system:
            what = {"messages": (_message("system", one.system), _message("user", turn.question))}
        items.append(WorkItem(prompt=options.prompt(answer, **what), output_tokens_asked=answer))
    notes = list(data.notes)
    if too_long:
        notes.append(f"{data.name}: {too_long} prompts of over {max_prompt_tokens} tokens skipped")
    if not items:
        raise ConfigError(
            f"{data.name}: no prompt has at most {max_prompt_tokens} tokens; allow longer ones"
        )
    return MadeWorkload(f"{data.name}, first turns", items, notes=notes)


def sessions(
    data: ShareGPT,
    tokenization: Tokenization,
    source: random.Random,
    *,
    limit: int | None = None,
    think: ThinkTime = NO_THINKING,
    max_turns: int | None = None,
    output_tokens: int | None = None,
    options: RequestOptions = NO_OPTIONS,
) -> MadeWorkload:
    """`limit` conversations, in random order, with all their turns or the first `max_turns`."""
    items: list[WorkItem] = []
    for number, one in enumerate(_shuffled(data.conversations, source)[:limit]):
        turns = one.turns[:max_turns]
        lengths = [output_tokens or max(1, len(tokenization.encode(turn.answer))) for turn in turns]
        items += session_items(
            number,
            [turn.question for turn in turns],
            lengths,
            think=think,
            source=source,
            system=one.system,
            options=options,
        )
    return MadeWorkload(f"{data.name}, sessions", items, notes=data.notes)


def _shuffled(found: Iterable[Conversation], source: random.Random) -> Sequence[Conversation]:
    order = list(found)
    source.shuffle(order)
    return order


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _conversation(found: Any, where: str) -> Conversation:
    said = found.get("conversations") if isinstance(found, dict) else None
    if not isinstance(said, list):
        raise ConfigError(f"{where}: has no list `conversations`; add it or remove the entry")
    system, turns, question = "", [], ""
    for at, one in enumerate(said):
        role, value = _said(one, f"{where}, message {at}")
        if role == "system":
            system = system or value
        elif role == "user":
            question = value
        elif question and value:
            turns.append(Turn(question, value))
            question = ""
    return Conversation(system, tuple(turns))


def _said(found: Any, where: str) -> tuple[str, str]:
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: {shown(found)} is not an object; write from and value")
    who, value = found.get("from"), found.get("value")
    role = _ROLES.get(who) if isinstance(who, str) else None
    if role is None:
        raise ConfigError(f"{where}: from {shown(who)}: must be one of {', '.join(_ROLES)}")
    if not isinstance(value, str):
        raise ConfigError(f"{where}: value {shown(value)}: must be a text")
    return role, value.strip()
