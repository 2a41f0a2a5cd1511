"""Pieces of text as a chat completion, whole or as events. Pure: no engine, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from headrace.engine.messages import TokenLogprob
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
from headrace.server.generation import LogprobOfPrompt, Piece
from headrace.server.logprobs import TokenTable, chat_logprobs, prompt_logprobs
from headrace.server.reply import (
    EventTemplate,
    Head,
    Tally,
    UsageEvents,
    WholeChoice,
    encode,
    progress_of,
)


class ChatReply:
    """A reply from pieces of all choices, each choice's in order.

    Use `events` and `last_events`, or `add` and `whole`.
    """

    def __init__(
        self,
        head: Head,
        request: ChatCompletionRequest,
        prompt_ids: Sequence[int],
        tokenizer: TokenTable,
        usage: UsageEvents,
    ) -> None:
        self._head = head
        self._request = request
        self._prompt_ids = list(prompt_ids)
        self._tokenizer = tokenizer
        self._usage = usage
        self._tally = Tally([len(prompt_ids)], request.n)
        self._begun: set[int] = set()
        # An event in the middle of a choice then says nothing but text.
        self._text_only = not (request.logprobs or request.return_token_ids or usage.every)
        self._templates: dict[int, EventTemplate] = {}
        self._choices = [WholeChoice() for _ in range(request.n)]

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
            yield self._event([role], first)
        with_ids = self._request.return_token_ids
        wants_tokens = self._request.logprobs or with_ids
        if self._text_only and piece.text:
            yield self._template(index).event(piece.text)
        elif piece.text or (wants_tokens and piece.token_ids):
            content = ChunkChoice(
                index=index,
                delta=Delta(content=piece.text),
                logprobs=self._logprobs_of(piece.logprobs),
                token_ids=list(piece.token_ids) if with_ids else UNSET,
            )
            yield self._event([content])
        if piece.finish_reason is not None:
            end = ChunkChoice(
                index=index,
                delta=Delta(),
                finish_reason=piece.finish_reason,
                stop_reason=piece.stop_reason,
                metrics=(piece.metrics or UNSET) if self._request.return_metrics else UNSET,
            )
            yield self._event([end])

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
            message=ReplyMessage(content="".join(choice.text)),
            logprobs=self._logprobs_of(choice.logprobs),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            token_ids=choice.token_ids if request.return_token_ids else UNSET,
            metrics=(last.metrics or UNSET) if request.return_metrics else UNSET,
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
