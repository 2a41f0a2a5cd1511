"""Pieces of text as a chat completion, whole or as events. Pure: no engine, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from headrace.protocol import sse
from headrace.protocol.openai.chat import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatLogprobs,
    ChatTokenLogprob,
    ChunkChoice,
    Delta,
    ReplyMessage,
)
from headrace.server.generation import Piece
from headrace.server.logprobs import TokenTable, chat_logprobs
from headrace.server.reply import Head, Tally, encode


class ChatReply:
    """Takes one choice's pieces in order. Use `events` and `last_events`, or `add` and `whole`."""

    def __init__(
        self,
        head: Head,
        request: ChatCompletionRequest,
        prompt_ids: Sequence[int],
        tokenizer: TokenTable,
    ) -> None:
        self._head = head
        self._request = request
        self._prompt_ids = list(prompt_ids)
        self._tokenizer = tokenizer
        self._tally = Tally(len(prompt_ids))
        self._started = False
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[ChatTokenLogprob] = []
        self._last: Piece | None = None

    def events(self, piece: Piece) -> Iterator[bytes]:
        """The events of a piece: role first, then content, then the reason it ended for."""
        self._tally.add(0, piece)
        if not self._started:
            self._started = True
            yield self._event(Delta(role="assistant", content=""), first=True)
        wants_tokens = self._request.logprobs or self._request.return_token_ids
        if piece.text or (wants_tokens and piece.token_ids):
            yield self._event(Delta(content=piece.text), piece)
        if piece.finish_reason is not None:
            yield self._event(Delta(), ended=piece)

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece: usage, if asked for, and the end mark."""
        if self._request.include_usage:
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

    def add(self, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        self._tally.add(0, piece)
        self._text.append(piece.text)
        self._token_ids += piece.token_ids
        logprobs = self._logprobs_of(piece)
        if logprobs is not None and logprobs.content:
            self._logprobs += logprobs.content
        self._last = piece

    def whole(self) -> ChatCompletion:
        """The reply made of all pieces added."""
        assert self._last is not None
        choice = ChatChoice(
            message=ReplyMessage(content="".join(self._text)),
            logprobs=ChatLogprobs(content=self._logprobs) if self._request.logprobs else None,
            finish_reason=self._last.finish_reason,
            stop_reason=self._last.stop_reason,
            token_ids=self._token_ids if self._request.return_token_ids else UNSET,
        )
        return ChatCompletion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=[choice],
            usage=self._tally.usage(),
            system_fingerprint=self._head.fingerprint,
            prompt_token_ids=self._prompt_ids if self._request.return_token_ids else UNSET,
        )

    def _logprobs_of(self, piece: Piece) -> ChatLogprobs | None:
        if not self._request.logprobs:
            return None
        return chat_logprobs(piece.logprobs, self._tokenizer)

    def _event(
        self,
        delta: Delta,
        piece: Piece | None = None,
        *,
        first: bool = False,
        ended: Piece | None = None,
    ) -> bytes:
        with_ids = self._request.return_token_ids
        choice = ChunkChoice(
            delta=delta,
            logprobs=None if piece is None else self._logprobs_of(piece),
            finish_reason=None if ended is None else ended.finish_reason,
            stop_reason=UNSET if ended is None else ended.stop_reason,
            token_ids=list(piece.token_ids) if with_ids and piece is not None else UNSET,
        )
        chunk = ChatCompletionChunk(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            system_fingerprint=self._head.fingerprint,
            choices=[choice],
            usage=None if self._request.include_usage else UNSET,
            prompt_token_ids=self._prompt_ids if with_ids and first else UNSET,
        )
        return sse.data_event(encode(chunk))
