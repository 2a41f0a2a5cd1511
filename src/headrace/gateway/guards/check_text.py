"""Checks of a request or a whole answer by guardrails, in the order of the file.

Guardrails that only check run in parallel; one that redacts waits for those before it, and those
after it see its result.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.findings import findings
from headrace.gateway.guards.guard import NOTHING, Guard, GuardFailedError, Subject, Verdict
from headrace.gateway.guards.looking import LeftError, Step, go_on
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.replace import summary
from headrace.gateway.guards.text_span import TextSpan

logger = logging.getLogger(__name__)

# Some milliseconds of looking.
_MOST_CHARS_AT_ONCE = 20_000

Found = TypeVar("Found")


class Passed(NamedTuple):
    """Texts that passed their guardrails."""

    subject: Subject
    """With the texts as they are now."""
    acted: tuple[Acted, ...]
    """In the order in which it was done."""


async def check_text(
    guards: Sequence[Guard], subject: Subject, originals: Originals | None = None
) -> Passed:
    """originals: where texts that are to come back are kept; None where none are.

    Raises GuardBlockedError of the first that refuses.
    """
    acted: list[Acted] = []
    looking: list[Guard] = []
    for guard in guards:
        if guard.action != "redact":
            looking.append(guard)
            continue
        await _look(looking, subject, acted)
        looking = []
        subject = await _redact(guard, subject, acted, originals)
    await _look(looking, subject, acted)
    return Passed(subject, tuple(acted))


async def _look(guards: Sequence[Guard], subject: Subject, acted: list[Acted]) -> None:
    if not guards:
        return
    # What needs no waiting is asked first: nobody else hears of what it refuses.
    asked = [one for one in guards if one.look is not None]
    for guard in guards:
        if guard.look is None:
            seen = seen_by(guard, subject)
            _judge(guard, await _beside(seen.passages, verdict_at_once, guard, seen), acted)
    if not asked:
        return
    tasks = [asyncio.ensure_future(_asked(one, seen_by(one, subject))) for one in asked]
    try:
        for guard, task in zip(asked, tasks, strict=True):
            _judge(guard, await task, acted)
    finally:
        for task in tasks:
            task.cancel()


async def _beside(
    passages: tuple[TextSpan, ...], work: Callable[..., Found], *given: object
) -> Found:
    """Long texts are looked at in a thread, so that others are served meanwhile. It ends soon after
    this is cancelled. work: is given a step after what is given."""
    if sum(len(passage.text) for passage in passages) <= _MOST_CHARS_AT_ONCE:
        return work(*given, go_on)
    left = threading.Event()

    def step() -> None:
        if left.is_set():
            raise LeftError

    try:
        return await asyncio.to_thread(work, *given, step)
    finally:
        left.set()


async def _asked(guard: Guard, subject: Subject) -> Verdict | GuardFailedError:
    assert guard.look is not None
    if not subject.passages and not subject.tools:
        return NOTHING
    try:
        return await guard.look(subject)
    except GuardFailedError as error:
        return error


def verdict_at_once(guard: Guard, subject: Subject, step: Step) -> Verdict:
    """The verdict of a guardrail that needs no waiting."""
    if guard.finder is not None:
        found = findings(guard.finder, subject.passages, None, step).matches
        return Verdict(f"found {summary(found)}") if found else NOTHING
    if guard.tools is not None:
        return Verdict(guard.tools(subject.tools))
    return _tokens(guard, subject)


def _tokens(guard: Guard, subject: Subject) -> Verdict:
    most, wanted = guard.most_tokens, subject.max_tokens
    if most is None:
        return NOTHING
    if "input" in guard.on and subject.input_tokens > most:
        return Verdict(
            f"the prompt has about {subject.input_tokens:,} tokens; at most {most:,} are allowed"
        )
    if "output" in guard.on and guard.action != "cap" and wanted is not None and wanted > most:
        return Verdict(f"the answer may have {wanted:,} tokens; at most {most:,} are allowed")
    return NOTHING


def _judge(guard: Guard, verdict: Verdict | GuardFailedError, acted: list[Acted]) -> None:
    if isinstance(verdict, GuardFailedError):
        failed(guard, acted, verdict)
    elif verdict.reason:
        if guard.action == "block":
            raise GuardBlockedError(guard, verdict.reason)
        acted.append(Acted(guard.name, guard.action, verdict.reason))


def failed(guard: Guard, acted: list[Acted], error: GuardFailedError) -> None:
    """It came to no verdict, for a cause that is for the log. Raises GuardBlockedError where that
    refuses."""
    logger.warning("the guardrail %s failed: %s", guard.name, str(error)[:300])
    if guard.blocks_on_error:
        raise GuardBlockedError(guard, "the check failed; try again", failed=True)
    acted.append(Acted(guard.name, "failed", "the check failed"))


async def _redact(
    guard: Guard, subject: Subject, acted: list[Acted], originals: Originals | None
) -> Subject:
    seen = seen_by(guard, subject)
    if guard.finder is not None:
        kept = originals if guard.restore else None
        texts, reason = await _beside(seen.passages, _without_matches, guard, seen.passages, kept)
    else:
        verdict = await _asked(guard, seen)
        if isinstance(verdict, GuardFailedError):
            failed(guard, acted, verdict)
            return subject
        if verdict.reason and verdict.texts is None:
            raise GuardBlockedError(guard, verdict.reason)
        texts, reason = verdict.texts, verdict.reason or "texts were replaced"
    if texts is None or texts == tuple(passage.text for passage in seen.passages):
        return subject
    acted.append(Acted(guard.name, "redact", reason))
    return _with_texts(subject, seen.passages, texts)


def _without_matches(
    guard: Guard, passages: tuple[TextSpan, ...], originals: Originals | None, step: Step
) -> tuple[tuple[str, ...] | None, str]:
    assert guard.finder is not None
    marker = None if originals is None else originals.mark
    every, texts = findings(guard.finder, passages, marker, step)
    return (texts, f"found {summary(every)}") if every else (None, "")


def _with_texts(subject: Subject, seen: tuple[TextSpan, ...], texts: tuple[str, ...]) -> Subject:
    changed = {one.path: text for one, text in zip(seen, texts, strict=True)}
    return subject._replace(
        passages=tuple(
            passage._replace(text=changed.get(passage.path, passage.text))
            for passage in subject.passages
        )
    )


def seen_by(guard: Guard, subject: Subject) -> Subject:
    """Without the texts of roles it does not look at; answers are all of the assistant."""
    if not guard.roles or subject.on == "output":
        return subject
    return subject._replace(
        passages=tuple(passage for passage in subject.passages if passage.role in guard.roles)
    )
