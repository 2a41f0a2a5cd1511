"""Pieces of text as llama-server writes them, whole or as events. Pure: no engine, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from headrace.engine.messages import TokenLogprob
from headrace.protocol import sse
from headrace.protocol.llamacpp.reply import (
    NativeEvent,
    NativeReply,
    StopType,
    Timings,
    TokenProbability,
)
from headrace.protocol.llamacpp.request import NativeFields
from headrace.protocol.openai.choice import ChoiceMetrics
from headrace.server.generation.logprobs import TokenTable, floored
from headrace.server.generation.pieces import Piece
from headrace.server.prompts.prompt import Prompt
from headrace.server.replies.reply import OPENAI_FORM, WholeChoice, progress_of

_MS_PER_S = 1000.0


class NativeReplies:
    """A `headrace.server.answer.Reply`: answers are numbered prompt by prompt.

    prompt_texts, settings: of each prompt, what the end of an answer repeats. context_tokens: the
    context's size.
    """

    form = OPENAI_FORM
    num_broken_calls = 0
    """Of texts, in which nothing is a call."""

    def __init__(
        self,
        fields: NativeFields,
        model: str,
        prompts: Sequence[Prompt],
        prompt_texts: Sequence[str],
        settings: Sequence[Mapping[str, Any]],
        tokenizer: TokenTable,
        context_tokens: int,
    ) -> None:
        self._fields = fields
        self._model = model
        self._prompts = prompts
        self._prompt_texts = prompt_texts
        self._settings = settings
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens
        self._answers = [WholeChoice() for _ in range(len(prompts) * fields.n_cmpl)]
        self._cached = [0] * len(self._answers)

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The event of a piece of answer `index`, and the last of the answer with its end."""
        if piece.prefill is not None:
            progress = progress_of(
                self._number(index), len(self._prompt(index).token_ids), piece.prefill
            )
            event = self._event(index, Piece("", ()))
            yield _data(msgspec.structs.replace(event, prompt_progress=progress))
            return
        self._take(index, piece)
        if piece.text or (piece.token_ids and self._wants_tokens):
            yield _data(self._event(index, piece))
        if piece.finish_reason is not None:
            yield _data(self._shown(self._end(index, content="", tokens=[])))

    def last_events(self) -> Iterator[bytes]:
        """Nothing: a stream ends with its last answer."""
        return iter(())

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        self._take(index, piece)

    def whole(self) -> bytes:
        """The answer, or the list of several."""
        answers = [self._whole(index) for index in range(len(self._answers))]
        return msgspec.json.encode(answers[0] if len(answers) == 1 else answers)

    def _take(self, index: int, piece: Piece) -> None:
        self._answers[index].add(piece)
        self._cached[index] = max(self._cached[index], piece.cached_tokens)

    @property
    def _wants_tokens(self) -> bool:
        return self._fields.return_tokens or self._fields.n_probs > 0

    def _number(self, index: int) -> int:
        return index // self._fields.n_cmpl

    def _prompt(self, index: int) -> Prompt:
        return self._prompts[self._number(index)]

    def _event(self, index: int, piece: Piece) -> NativeEvent:
        return NativeEvent(
            index=index,
            content=piece.text,
            tokens=list(piece.token_ids),
            tokens_predicted=len(self._answers[index].token_ids),
            tokens_evaluated=len(self._prompt(index).token_ids),
            completion_probabilities=self._probabilities(piece.logprobs),
            timings=self._timings(index, None) if self._fields.timings_per_token else UNSET,
        )

    def _whole(self, index: int) -> dict[str, Any] | NativeReply:
        said = self._answers[index]
        end = self._end(
            index,
            content="".join(said.text),
            tokens=said.token_ids if self._fields.return_tokens else [],
        )
        probabilities = self._probabilities(said.logprobs)
        return self._shown(msgspec.structs.replace(end, completion_probabilities=probabilities))

    def _end(self, index: int, *, content: str, tokens: list[int]) -> NativeReply:
        said, prompt = self._answers[index], self._prompt(index)
        last, generated = said.last, len(said.token_ids)
        stop_type, word = _ending(last)
        used = len(prompt.token_ids) + generated
        return NativeReply(
            index=index,
            content=content,
            tokens=tokens,
            model=self._model,
            tokens_predicted=generated,
            tokens_evaluated=len(prompt.token_ids),
            generation_settings=dict(self._settings[self._number(index)]),
            prompt=self._prompt_texts[self._number(index)],
            has_new_line=any("\n" in text for text in said.text),
            truncated=stop_type == "limit" and used >= self._context_tokens,
            stop_type=stop_type,
            stopping_word=word,
            tokens_cached=self._cached[index],
            timings=self._timings(index, last.metrics),
        )

    def _timings(self, index: int, metrics: ChoiceMetrics | None) -> Timings:
        prompt = len(self._prompt(index).token_ids)
        return timings_of(metrics, prompt, self._cached[index], len(self._answers[index].token_ids))

    def _probabilities(
        self, logprobs: Sequence[TokenLogprob]
    ) -> list[TokenProbability] | UnsetType:
        count = self._fields.n_probs
        if not count or not logprobs:
            return UNSET
        return [
            msgspec.structs.replace(
                self._probability(each.token_id, each.logprob),
                top_logprobs=[self._probability(*rival) for rival in each.top[:count]],
            )
            for each in logprobs
        ]

    def _probability(self, token_id: int, logprob: float) -> TokenProbability:
        raw = self._tokenizer.token_bytes(token_id)
        return TokenProbability(
            id=token_id,
            token=raw.decode("utf-8", errors="replace"),
            bytes=list(raw),
            logprob=floored(logprob),
        )

    def _shown(self, reply: NativeReply) -> dict[str, Any] | NativeReply:
        """The fields that were asked for; those that there are not are left out."""
        if not self._fields.response_fields:
            return reply
        plain = msgspec.to_builtins(reply)
        shown = {}
        for path in self._fields.response_fields:
            value: Any = plain
            for name in path.split("/"):
                value = value.get(name, UNSET) if isinstance(value, dict) else UNSET
            if value is not UNSET:
                shown[path] = value
        return shown


def timings_of(
    metrics: ChoiceMetrics | None, prompt_tokens: int, cached_tokens: int, generated: int
) -> Timings:
    """An answer's figures under llama-server's names; metrics: None before its end.

        prompt_n = prompt_tokens - cache_n
        predicted_per_second = (predicted_n - 1) / predicted_ms

    as the first token is a result of the prompt.
    """
    computed = prompt_tokens - cached_tokens
    prompt_ms = _MS_PER_S * ((metrics.prefill_s if metrics else None) or 0.0)
    predicted_ms = _MS_PER_S * ((metrics.decode_s if metrics else None) or 0.0)
    later = max(0, generated - 1)
    drafted = metrics if metrics and metrics.draft_tokens else None
    return Timings(
        cache_n=cached_tokens,
        prompt_n=computed,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / computed if computed else 0.0,
        prompt_per_second=_MS_PER_S * computed / prompt_ms if prompt_ms else 0.0,
        predicted_n=generated,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / later if later else 0.0,
        predicted_per_second=_MS_PER_S * later / predicted_ms if predicted_ms else 0.0,
        draft_n=drafted.draft_tokens if drafted else UNSET,
        draft_n_accepted=drafted.accepted_draft_tokens if drafted else UNSET,
    )


def _ending(last: Piece) -> tuple[StopType, str]:
    if last.finish_reason != "stop":
        return "limit", ""
    if isinstance(last.stop_reason, str):
        return "word", last.stop_reason
    return "eos", ""


def _data(body: msgspec.Struct | dict[str, Any]) -> bytes:
    return sse.data_event(msgspec.json.encode(body))
