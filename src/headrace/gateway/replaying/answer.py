"""Answers beside each other: what was said then, and what another model says."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from headrace.gateway.replaying.replay import SESSION, Post, ReplayError, Sent, replay_body
from headrace.gateway.request_log.assembling import Sides
from headrace.gateway.request_log.record import LogRecord
from headrace.protocol.neutral.dialect import DamagedReplyError, ReplySide
from headrace.protocol.neutral.part import Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """model: what was asked for. target: who answered, "" where nobody is named. text: what was
    said, a line for each call of a tool; of a failure its body. Tokens and cost are None where
    nobody knows them, total_ms where it was not measured."""

    model: str
    target: str
    status: int
    text: str
    input_tokens: int | None
    output_tokens: int | None
    cost_nusd: int | None
    total_ms: float | None

    @property
    def answered(self) -> bool:
        """Whether it is an answer and no failure."""
        return self.status == 200


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A logged request, its answer then and the answers now. redacted: whether what was sent now
    was not what was sent then."""

    id: str
    redacted: bool
    then: Answer
    now: tuple[Answer, ...]


def replayed(
    record: LogRecord,
    models: Sequence[str],
    post: Post,
    sides: Sides,
    *,
    even_if_redacted: bool = False,
) -> Replayed:
    """Send it to each of the models, one after the other. Raises ReplayError, before anything is
    sent where the request cannot be."""
    bodies = [replay_body(record, one, even_if_redacted=even_if_redacted) for one in models]
    found = sides(record.dialect)
    if found is None:
        raise ReplayError(f"{record.id}: answers of the dialect {record.dialect} cannot be read")
    _, side = found
    now = tuple(
        answer_now(post(record.path, body, SESSION + record.line), model, side)
        for model, body in zip(models, bodies, strict=True)
    )
    redacted = record.request is not None and record.request.redacted > 0
    return Replayed(id=record.id, redacted=redacted, then=answer_then(record, side), now=now)


def answer_then(record: LogRecord, side: ReplySide) -> Answer:
    """As it was logged, half answers too."""
    told = "" if record.reply is None else record.reply.text
    text, _ = _read(side, record.status, told.encode())
    return Answer(
        model=record.model,
        target=record.target or "",
        status=record.status,
        text=text,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cost_nusd=record.cost_nusd,
        total_ms=record.total_ms,
    )


def answer_now(sent: Sent, model: str, side: ReplySide) -> Answer:
    """As the gateway told it."""
    text, reply = _read(side, sent.status, sent.body)
    usage = None if reply is None else reply.usage
    return Answer(
        model=model,
        target=sent.target,
        status=sent.status,
        text=text,
        input_tokens=None if usage is None else usage.prompt_tokens,
        output_tokens=None if usage is None else usage.completion_tokens,
        cost_nusd=sent.cost_nusd,
        total_ms=sent.total_ms,
    )


def difference(then: Answer, now: Answer) -> list[str]:
    """Lines of a unified diff; none where both say the same."""
    return list(
        difflib.unified_diff(
            then.text.splitlines(), now.text.splitlines(), then.model, now.model, lineterm="", n=1
        )
    )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Of all answers of a model. same: how many say word for word what was said then. mean_ms:
    None where nothing was measured. unknown_cost: whose cost is in no sum."""

    model: str
    requests: int
    answered: int
    same: int
    input_tokens: int
    output_tokens: int
    cost_nusd: int
    unknown_cost: int
    mean_ms: float | None


def summaries(replayed: Sequence[Replayed]) -> list[Summary]:
    """The answers of then first, and a summary for each model."""
    if not replayed:
        return []
    then = [(one.then, one.then) for one in replayed]
    columns = [("then", then)]
    for at, first in enumerate(replayed[0].now):
        columns.append((first.model, [(one.now[at], one.then) for one in replayed]))
    return [_summary(name, answers) for name, answers in columns]


def _summary(name: str, answers: Sequence[tuple[Answer, Answer]]) -> Summary:
    ours = [one for one, _ in answers]
    times = [one.total_ms for one in ours if one.total_ms is not None]
    return Summary(
        model=name,
        requests=len(ours),
        answered=sum(one.answered for one in ours),
        same=sum(one.answered and one.text == then.text for one, then in answers),
        input_tokens=sum(one.input_tokens or 0 for one in ours),
        output_tokens=sum(one.output_tokens or 0 for one in ours),
        cost_nusd=sum(one.cost_nusd or 0 for one in ours),
        unknown_cost=sum(one.answered and one.cost_nusd is None for one in ours),
        mean_ms=sum(times) / len(times) if times else None,
    )


def _read(side: ReplySide, status: int, body: bytes) -> tuple[str, ChatReply | None]:
    if status == 200:
        try:
            reply = side.read_reply(body)
        except DamagedReplyError:
            return body.decode("utf-8", "replace"), None
        return _text(reply), reply
    return body.decode("utf-8", "replace"), None


def _text(reply: ChatReply) -> str:
    lines = []
    for choice in reply.choices:
        for part in choice.parts:
            if isinstance(part, Text):
                lines.append(part.text)
            elif isinstance(part, ToolCall):
                lines.append(f"{part.name}({part.arguments})")
    return "\n".join(lines)
