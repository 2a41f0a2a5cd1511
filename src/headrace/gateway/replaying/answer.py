"""Answers side by side: the logged one, and those of other models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import msgspec

from headrace.gateway.replaying.replay import SESSION, Post, ReplayError, Sent, replay_body
from headrace.gateway.request_log.assembling import Sides
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.request_log.vectors import vectors_told
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage

# Reads the body of a 200: its text and usage; None if it is not of the dialect.
_Read = Callable[[bytes], tuple[str, TokenUsage | None] | None]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to a replayed request."""

    model: str
    """The requested model."""
    target: str
    """The target that answered; "" if none is named."""
    status: int
    text: str
    """The text, with a line for each tool call; for a failure the body."""
    input_tokens: int | None
    """None if unknown."""
    output_tokens: int | None
    """None if unknown."""
    cost_nusd: int | None
    """None if unknown."""
    total_ms: float | None
    """None if it was not measured."""

    @property
    def answered(self) -> bool:
        """Whether it is an answer and not a failure."""
        return self.status == 200


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """A logged request with its logged answer and the new ones."""

    id: str
    redacted: bool
    """Whether the body sent now differs from the original."""
    then: Answer
    now: tuple[Answer, ...]


def replayed(
    record: LogRecord,
    models: Sequence[str],
    post: Post,
    sides: Sides,
    *,
    even_if_redacted: bool = False,
) -> ReplayResult:
    """Send a logged request to each of the models in turn. Raises ReplayError, before anything is
    sent if the request cannot be replayed."""
    bodies = [replay_body(record, model, even_if_redacted=even_if_redacted) for model in models]
    read = _reader_of(record, sides)
    if read is None:
        raise ReplayError(f"{record.id}: answers in the dialect {record.dialect} are not readable")
    now = tuple(
        _answer_now(post(record.path, body, SESSION + record.line), model, read)
        for model, body in zip(models, bodies, strict=True)
    )
    redacted = record.request is not None and record.request.redacted > 0
    return ReplayResult(id=record.id, redacted=redacted, then=_answer_then(record, read), now=now)


def _answer_then(record: LogRecord, read: _Read) -> Answer:
    """The logged answer, complete or not."""
    body = "" if record.reply is None else record.reply.text
    text, _ = _said(read, record.status, body.encode())
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


def _answer_now(sent: Sent, model: str, read: _Read) -> Answer:
    """The gateway's answer."""
    text, usage = _said(read, sent.status, sent.body)
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
    """Lines of a unified diff; none if both texts are equal."""
    return list(
        difflib.unified_diff(
            then.text.splitlines(), now.text.splitlines(), then.model, now.model, lineterm="", n=1
        )
    )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of all answers of a model."""

    model: str
    requests: int
    answered: int
    same: int
    """Answers that equal the logged one word for word."""
    input_tokens: int
    output_tokens: int
    cost_nusd: int
    unknown_cost: int
    """Answers whose cost is unknown and in no sum."""
    mean_ms: float | None
    """None if nothing was measured."""


def summaries(replayed: Sequence[ReplayResult]) -> list[Summary]:
    """A summary of the logged answers, then one for each model."""
    if not replayed:
        return []
    then = [(replay.then, replay.then) for replay in replayed]
    columns = [("then", then)]
    for at, first in enumerate(replayed[0].now):
        columns.append((first.model, [(replay.now[at], replay.then) for replay in replayed]))
    return [_summary(name, answers) for name, answers in columns]


def _summary(name: str, answers: Sequence[tuple[Answer, Answer]]) -> Summary:
    ours = [answer for answer, _ in answers]
    times = [answer.total_ms for answer in ours if answer.total_ms is not None]
    return Summary(
        model=name,
        requests=len(ours),
        answered=sum(answer.answered for answer in ours),
        same=sum(answer.answered and answer.text == then.text for answer, then in answers),
        input_tokens=sum(answer.input_tokens or 0 for answer in ours),
        output_tokens=sum(answer.output_tokens or 0 for answer in ours),
        cost_nusd=sum(answer.cost_nusd or 0 for answer in ours),
        unknown_cost=sum(answer.answered and answer.cost_nusd is None for answer in ours),
        mean_ms=sum(times) / len(times) if times else None,
    )


def _said(read: _Read, status: int, body: bytes) -> tuple[str, TokenUsage | None]:
    if status == 200 and (parts := read(body)) is not None:
        return parts
    return body.decode("utf-8", "replace"), None


def _reader_of(record: LogRecord, sides: Sides) -> _Read | None:
    """The reader of a record's answers; None if there is none for the dialect."""
    if record.wants_vectors:
        return _read_vectors
    if record.wants_count:
        return lambda body: (body.decode("utf-8", "replace"), None)
    dialect_sides = sides(record.dialect)
    if dialect_sides is None:
        return None
    side = dialect_sides[1]

    def read(body: bytes) -> tuple[str, TokenUsage | None] | None:
        try:
            reply = side.read_reply(body)
        except DamagedReplyError:
            return None
        return _text(reply), reply.usage

    return read


class _Counted(msgspec.Struct):
    """Usage in OpenAI's format."""

    prompt_tokens: int = 0


class _Embedded(msgspec.Struct):
    """A reply with vectors; `prompt_eval_count` is Ollama's field."""

    usage: _Counted | None = None
    prompt_eval_count: int | None = None


def _read_vectors(body: bytes) -> tuple[str, TokenUsage | None] | None:
    """The number of vectors: vectors of two models are not comparable."""
    text = vectors_told(body)
    if not text:
        return None
    try:
        embedded = msgspec.json.decode(body, type=_Embedded)
    except msgspec.MsgspecError:
        return text, None
    tokens = embedded.prompt_eval_count if embedded.usage is None else embedded.usage.prompt_tokens
    return text, None if tokens is None else TokenUsage(input_tokens=tokens)


def _text(reply: ChatReply) -> str:
    lines = []
    for choice in reply.choices:
        for part in choice.parts:
            if isinstance(part, Text):
                lines.append(part.text)
            elif isinstance(part, ToolCall):
                lines.append(f"{part.name}({part.arguments})")
    return "\n".join(lines)
