"""Answers beside each other: what was said then, and what another model says."""

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

# Of a 200: what it says and what it took; None where it is none of the dialect.
_Read = Callable[[bytes], tuple[str, TokenUsage | None] | None]


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
    read = _reader_of(record, sides)
    if read is None:
        raise ReplayError(f"{record.id}: answers of the dialect {record.dialect} cannot be read")
    now = tuple(
        _answer_now(post(record.path, body, SESSION + record.line), model, read)
        for model, body in zip(models, bodies, strict=True)
    )
    redacted = record.request is not None and record.request.redacted > 0
    return Replayed(id=record.id, redacted=redacted, then=_answer_then(record, read), now=now)


def _answer_then(record: LogRecord, read: _Read) -> Answer:
    """As it was logged, half answers too."""
    told = "" if record.reply is None else record.reply.text
    text, _ = _said(read, record.status, told.encode())
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
    """As the gateway told it."""
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


def _said(read: _Read, status: int, body: bytes) -> tuple[str, TokenUsage | None]:
    if status == 200 and (found := read(body)) is not None:
        return found
    return body.decode("utf-8", "replace"), None


def _reader_of(record: LogRecord, sides: Sides) -> _Read | None:
    """None where nobody reads such answers."""
    if record.wants_vectors:
        return _read_vectors
    if record.wants_count:
        return lambda body: (body.decode("utf-8", "replace"), None)
    found = sides(record.dialect)
    if found is None:
        return None
    side = found[1]

    def read(body: bytes) -> tuple[str, TokenUsage | None] | None:
        try:
            reply = side.read_reply(body)
        except DamagedReplyError:
            return None
        return _text(reply), reply.usage

    return read


class _Counted(msgspec.Struct):
    """prompt_tokens: as OpenAI's API tells them."""

    prompt_tokens: int = 0


class _Embedded(msgspec.Struct):
    """prompt_eval_count: as Ollama's API tells it."""

    usage: _Counted | None = None
    prompt_eval_count: int | None = None


def _read_vectors(body: bytes) -> tuple[str, TokenUsage | None] | None:
    """How many there are: of two models' vectors no number can be compared."""
    told = vectors_told(body)
    if not told:
        return None
    try:
        found = msgspec.json.decode(body, type=_Embedded)
    except msgspec.MsgspecError:
        return told, None
    tokens = found.prompt_eval_count if found.usage is None else found.usage.prompt_tokens
    return told, None if tokens is None else TokenUsage(input_tokens=tokens)


def _text(reply: ChatReply) -> str:
    lines = []
    for choice in reply.choices:
        for part in choice.parts:
            if isinstance(part, Text):
                lines.append(part.text)
            elif isinstance(part, ToolCall):
                lines.append(f"{part.name}({part.arguments})")
    return "\n".join(lines)
