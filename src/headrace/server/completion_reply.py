"""Pieces of text as a completion, whole or as events, one choice per prompt. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from headrace.engine.messages import TokenLogprob
from headrace.protocol import sse
from headrace.protocol.openai.completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
)
from headrace.protocol.openai.usage import Usage
from headrace.server.generation import Piece
from headrace.server.logprobs import TokenTable, completion_logprobs
from headrace.server.reply import Head, Tally, encode


@dataclass
class _Choice:
    """What has come of one choice."""

    prompt_ids: list[int]
    started: bool = False
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text_offsets: list[int] = field(default_factory=list)
    last: Piece | None = None


class CompletionReply:
    """Takes pieces of all choices, each choice's in order. `events` or `add`, then the rest."""

    def __init__(
        self,
        head: Head,
        request: CompletionRequest,
        prompts: Sequence[Sequence[int]],
        tokenizer: TokenTable,
    ) -> None:
        self._head = head
        self._request = request
        self._tokenizer = tokenizer
        self._choices = [_Choice(list(ids)) for ids in prompts]
        self._tally = Tally(sum(len(ids) for ids in prompts))

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The event of a piece of choice `index`; none when there is nothing new to say."""
        choice = self._choices[index]
        self._tally.add(index, piece)
        with_ids = self._request.return_token_ids
        wants_tokens = with_ids or self._request.logprobs is not None
        ended = piece.finish_reason is not None
        if not (piece.text or ended or (wants_tokens and piece.token_ids)):
            return
        body = CompletionChoice(
            index=index,
            text=piece.text,
            logprobs=self._logprobs_of(piece.logprobs, piece.text_offsets),
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason if ended else UNSET,
            token_ids=list(piece.token_ids) if with_ids else UNSET,
            prompt_token_ids=choice.prompt_ids if with_ids and not choice.started else UNSET,
        )
        choice.started = True
        yield self._event([body], None)

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece: usage, if asked for, and the end mark."""
        if self._request.include_usage:
            yield self._event([], self._tally.usage())
        yield sse.DONE

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        choice = self._choices[index]
        self._tally.add(index, piece)
        choice.text.append(piece.text)
        choice.token_ids += piece.token_ids
        choice.logprobs += piece.logprobs
        choice.text_offsets += piece.text_offsets
        choice.last = piece

    def whole(self) -> Completion:
        """The reply made of all pieces added."""
        return Completion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=[self._whole_choice(index) for index in range(len(self._choices))],
            usage=self._tally.usage(),
            system_fingerprint=self._head.fingerprint,
        )

    def _whole_choice(self, index: int) -> CompletionChoice:
        choice = self._choices[index]
        assert choice.last is not None
        with_ids = self._request.return_token_ids
        return CompletionChoice(
            index=index,
            text="".join(choice.text),
            logprobs=self._logprobs_of(choice.logprobs, choice.text_offsets),
            finish_reason=choice.last.finish_reason,
            stop_reason=choice.last.stop_reason,
            token_ids=choice.token_ids if with_ids else UNSET,
            prompt_token_ids=choice.prompt_ids if with_ids else UNSET,
        )

    def _logprobs_of(
        self, tokens: Sequence[TokenLogprob], text_offsets: Sequence[int]
    ) -> CompletionLogprobs | None:
        if self._request.logprobs is None:
            return None
        return completion_logprobs(tokens, text_offsets, self._tokenizer)

    def _event(self, choices: list[CompletionChoice], usage: Usage | None) -> bytes:
        completion = Completion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=choices,
            usage=usage if self._request.include_usage else UNSET,
            system_fingerprint=self._head.fingerprint,
        )
        return sse.data_event(encode(completion))
