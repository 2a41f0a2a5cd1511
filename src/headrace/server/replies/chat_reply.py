"""Pieces of text as a chat completion, whole or as events. Pure: no engine, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import UNSET, UnsetType

from headrace.answer_formats.deltas import (
    CallDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    joined,
)
from headrace.answer_formats.deltas import Delta as AnswerDelta
from headrace.conversation.reading import AnswerReading, ReadChoice
from headrace.engine.messages import TokenLogprob
from headrace.http.request_id import random_id
from headrace.protocol import sse
from headrace.protocol.openai.chat import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    ReplyMessage,
)
from headrace.protocol.openai.choice import PromptLogprobs
from headrace.protocol.openai.tools import FunctionCall, ReplyToolCall
from headrace.server.generation.logprobs import TokenTable, chat_logprobs, prompt_logprobs
from headrace.server.generation.pieces import LogprobOfPrompt, Piece
from headrace.server.replies.reply import (
    OPENAI_FORM,
    EventTemplate,
    Head,
    Tally,
    UsageEvents,
    WholeChoice,
    encode,
    progress_of,
)

_ROLE = b'"role":"assistant",'
"""In the first event of a choice; without it, it is an event of text."""


class ChatReply:
    """A reply from pieces of all choices, each choice's in order.

    Use `events` and `last_events`, or `add` and `whole`.
    """

    form = OPENAI_FORM

    def __init__(
        self,
        head: Head,
        request: ChatCompletionRequest,
        prompt_ids: Sequence[int],
        tokenizer: TokenTable,
        usage: UsageEvents,
        reading: AnswerReading | None = None,
        *,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """reading: of answers that have reasoning or calls; None where all of them is content."""
        self._head = head
        self._request = request
        self._prompt_ids = list(prompt_ids)
        self._tokenizer = tokenizer
        self._usage = usage
        self._tally = Tally([len(prompt_ids)], request.n, counts_drafts=request.return_metrics)
        self._begun: set[int] = set()
        # An event in the middle of a choice then says nothing but text.
        self._text_only = not (request.logprobs or request.return_token_ids or usage.every)
        self._templates: dict[int, EventTemplate] = {}
        self._choices = [WholeChoice() for _ in range(request.n)]
        self._read: list[ReadChoice] | None = None
        if reading is not None:
            self._read = [ReadChoice(reading, new_id) for _ in range(request.n)]
            if reading.format.reasoning is not None:
                self._tally.reasoning_tokens = 0

    @property
    def num_broken_calls(self) -> int:
        """Calls so far whose arguments are not a JSON object."""
        return sum(choice.num_broken_calls for choice in self._read or ())

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The events of a piece: role first, then content, then the reason it ended for.

        Before all of them: how much of the prompt is computed.
        """
        if piece.prefill is not None:
            chunk = ChatCompletionChunk(
                id=self._head.id,
                created=self._head.created_s,
                model=self._head.model,
                system_fingerprint=self._head.fingerprint,
                choices=[],
                usage=self._tally.usage_of_event(self._usage),
                prompt_progress=progress_of(0, len(self._prompt_ids), piece.prefill),
            )
            yield sse.data_event(encode(chunk))
            return
        self._tally.add(index, piece)
        if index not in self._begun:
            first = piece if not self._begun else None
            self._begun.add(index)
            role = ChunkChoice(index=index, delta=Delta(role="assistant", content=""))
            event = self._event([role], first)
            if self._text_only and piece.prompt_logprobs is None:
                # Quotes within strings of JSON have a backslash, so that no value looks like this.
                text_event = event.replace(_ROLE, b"", 1)
                self._templates[index] = EventTemplate(text_event, "content")
            yield event
        if self._read is None:
            if self._text_only and piece.text:
                yield self._template(index).event(piece.text)
            elif piece.text or (self._wants_tokens and piece.token_ids):
                yield self._event([self._chunk(index, piece, Delta(content=piece.text))])
        elif self._passes(self._read[index], piece):
            yield self._template(index).event(piece.text)
        else:
            yield from self._read_events(index, piece, self._read[index])
        if piece.finish_reason is not None:
            end = ChunkChoice(
                index=index,
                delta=Delta(),
                finish_reason=self._finish_reason(index, piece.finish_reason),
                stop_reason=piece.stop_reason,
                metrics=(piece.metrics or UNSET) if self._request.return_metrics else UNSET,
            )
            yield self._event([end])

    def _passes(self, choice: ReadChoice, piece: Piece) -> bool:
        """Whether the event of a piece is one of content as it stands; if so, the piece is read."""
        return self._text_only and piece.finish_reason is None and choice.passes(piece.text)

    def _read_events(self, index: int, piece: Piece, choice: ReadChoice) -> Iterator[bytes]:
        """The events of what a piece makes certain; its tokens go with the first of them."""
        deltas = self._shown(_taken(choice, piece))
        self._count_reasoning()
        if self._wants_tokens and piece.token_ids and not deltas:
            yield self._event([self._chunk(index, piece, Delta(content=""))])
        for number, delta in enumerate(deltas):
            if self._text_only and isinstance(delta, ContentDelta):
                yield self._template(index).event(delta.text)
                continue
            wire = _wire_delta(delta, choice)
            first = number == 0
            yield self._event([self._chunk(index, piece if first else None, wire)])

    def _shown(self, deltas: list[AnswerDelta]) -> list[AnswerDelta]:
        """Those that a stream has an event for."""
        hidden = (CallEnd,) if self._request.shows_reasoning else (CallEnd, ReasoningDelta)
        return [delta for delta in deltas if not isinstance(delta, hidden)]

    def _count_reasoning(self) -> None:
        if self._read is not None and self._tally.reasoning_tokens is not None:
            self._tally.reasoning_tokens = sum(choice.reasoning_tokens for choice in self._read)

    def _finish_reason(self, index: int, reason: str | None) -> str | None:
        if self._read is None or reason is None:
            return reason
        return self._read[index].finish_reason(reason)

    @property
    def _wants_tokens(self) -> bool:
        return self._request.logprobs or self._request.return_token_ids

    def _chunk(self, index: int, piece: Piece | None, delta: Delta) -> ChunkChoice:
        """A choice's part of an event. piece: whose tokens the event reports."""
        with_ids = piece is not None and self._request.return_token_ids
        return ChunkChoice(
            index=index,
            delta=delta,
            logprobs=None if piece is None else self._logprobs_of(piece.logprobs),
            token_ids=list(piece.token_ids) if piece is not None and with_ids else UNSET,
        )

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece: usage, if asked for, and the end mark."""
        if self._usage.last:
            chunk = ChatCompletionChunk(
                id=self._head.id,
                created=self._head.created_s,
                model=self._head.model,
                system_fingerprint=self._head.fingerprint,
                choices=[],
                usage=self._tally.usage(),
            )
            yield sse.data_event(encode(chunk))
        yield sse.DONE

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        self._tally.add(index, piece)
        self._choices[index].add(piece)
        if self._read is not None:
            read, choice = self._read[index], self._choices[index]
            deltas = _taken(read, piece)
            choice.deltas += deltas
            choice.call_ids += [read.call_id(d) for d in deltas if isinstance(d, CallStart)]
            self._count_reasoning()

    def whole(self) -> ChatCompletion:
        """The reply made of all pieces added."""
        return ChatCompletion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=[self._whole(index, one) for index, one in enumerate(self._choices)],
            usage=self._tally.usage(),
            system_fingerprint=self._head.fingerprint,
            prompt_token_ids=self._prompt_ids if self._request.return_token_ids else UNSET,
            prompt_logprobs=self._of_prompt(self._choices[0].prompt_logprobs),
        )

    def _whole(self, index: int, choice: WholeChoice) -> ChatChoice:
        request, last = self._request, choice.last
        return ChatChoice(
            index=index,
            message=self._message(index, choice),
            logprobs=self._logprobs_of(choice.logprobs),
            finish_reason=self._finish_reason(index, last.finish_reason),
            stop_reason=last.stop_reason,
            token_ids=choice.token_ids if request.return_token_ids else UNSET,
            metrics=(last.metrics or UNSET) if request.return_metrics else UNSET,
        )

    def _message(self, index: int, choice: WholeChoice) -> ReplyMessage:
        if self._read is None:
            return ReplyMessage(content="".join(choice.text))
        answer = joined(choice.deltas)
        calls = [
            ReplyToolCall(
                id=call_id,
                type="function",
                function=FunctionCall(name=call.name, arguments=call.arguments),
            )
            for call_id, call in zip(choice.call_ids, answer.calls, strict=True)
        ]
        reasoning: str | UnsetType = UNSET
        if answer.reasoning and self._request.shows_reasoning:
            reasoning = answer.reasoning
        return ReplyMessage(
            content=answer.content if answer.content or not calls else None,
            reasoning=reasoning,
            reasoning_content=reasoning,
            tool_calls=calls or UNSET,
        )

    def _logprobs_of(self, tokens: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        if not self._request.logprobs:
            return None
        as_ids = self._request.return_tokens_as_token_ids
        return chat_logprobs(tokens, self._tokenizer, as_ids=as_ids)

    def _of_prompt(self, tokens: LogprobOfPrompt | None) -> PromptLogprobs | UnsetType | None:
        return prompt_logprobs(tokens, self._tokenizer, most=self._request.prompt_logprobs)

    def _template(self, index: int) -> EventTemplate:
        template = self._templates.get(index)
        if template is None:
            event = self._event([ChunkChoice(index=index, delta=Delta(content=""))])
            template = self._templates[index] = EventTemplate(event, "content")
        return template

    def _event(self, choices: list[ChunkChoice], first: Piece | None = None) -> bytes:
        """One event. first: the reply's first piece, which brings what is told of the prompt."""
        with_prompt = first is not None and self._request.return_token_ids
        chunk = ChatCompletionChunk(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            system_fingerprint=self._head.fingerprint,
            choices=choices,
            usage=self._tally.usage_of_event(self._usage),
            prompt_token_ids=self._prompt_ids if with_prompt else UNSET,
            prompt_logprobs=UNSET if first is None else self._of_prompt(first.prompt_logprobs),
        )
        return sse.data_event(encode(chunk))


def _taken(choice: ReadChoice, piece: Piece) -> list[AnswerDelta]:
    """What a piece makes certain of a choice."""
    is_last = piece.finish_reason is not None
    offsets, stop = piece.text_offsets, piece.stop_reason
    return choice.take(piece.text, offsets, is_last=is_last, stop=stop)


def _wire_delta(delta: AnswerDelta, choice: ReadChoice) -> Delta:
    """A delta as a stream writes it."""
    match delta:
        case ContentDelta(text):
            return Delta(content=text)
        case ReasoningDelta(text):
            return Delta(reasoning=text, reasoning_content=text)
        case CallStart(index, name, _):
            function = FunctionCall(name=name, arguments="")
            call_id = choice.call_id(delta)
            call = ReplyToolCall(index=index, id=call_id, type="function", function=function)
            return Delta(tool_calls=[call])
        case CallDelta(index, arguments):
            function = FunctionCall(arguments=arguments)
            return Delta(tool_calls=[ReplyToolCall(index=index, function=function)])
        case CallEnd():
            raise AssertionError("the end of a call has no event")
