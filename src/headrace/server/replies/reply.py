"""What replies have in common: head, usage, how JSON is sent, and what a stream has beside its
events: headers, what keeps it alive, and its end after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from headrace.answer_formats.deltas import Delta
from headrace.engine.messages import Prefill, TokenLogprob
from headrace.protocol import sse
from headrace.protocol.openai.choice import PromptProgress
from headrace.protocol.openai.sampling import SamplingFields
from headrace.protocol.openai.usage import DraftTokens, Usage, usage_of
from headrace.server.api_error import ApiError
from headrace.server.generation.pieces import LogprobOfPrompt, Piece

# One encoder for all: it holds no state between calls. It writes UTF-8, without ASCII escapes.
_ENCODER = msgspec.json.Encoder()


def encode(body: msgspec.Struct | str | Sequence[object]) -> bytes:
    """A reply, or a text or a list of one, as JSON."""
    return _ENCODER.encode(body)


class EventTemplate:
    """An event of which one text changes from time to time: all the rest is encoded once."""

    def __init__(self, event: bytes, field: str) -> None:
        """event: with the text empty. field: the name of the first one of that kind in it."""
        # A quote within a string of JSON has a backslash before it, so no value looks like this.
        before, found, self._after = event.partition(f'"{field}":""'.encode())
        assert found
        self._before = before + found[:-2]

    def event(self, text: str) -> bytes:
        """The event with this text."""
        return self._before + sse.one_line(encode(text)) + self._after


def json_reply(
    body: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A whole JSON reply."""
    return Response(encode(body), status, headers, media_type="application/json")


def error_reply(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """An error reply in OpenAI's shape, with the error's own headers and `headers`."""
    return json_reply(error.body, error.status, {**error.headers, **(headers or {})})


@dataclass(frozen=True)
class Head:
    """The fields that each chunk of a reply repeats."""

    id: str
    created_s: int
    """Unix time in whole seconds."""
    model: str
    fingerprint: str


class UsageEvents(NamedTuple):
    """The events in which a stream reports its usage: the usage so far with every event, and the
    total at the end in an event without choices."""

    every: bool = False
    last: bool = False

    @classmethod
    def of(cls, fields: SamplingFields, *, forced: bool) -> UsageEvents:
        """What a request asks for; forced: whether all streams end with usage."""
        return cls(fields.continuous_usage, fields.include_usage or forced)


def progress_of(index: int, prompt_tokens: int, prefill: Prefill) -> PromptProgress:
    """What an event reports of prompt `index`."""
    return PromptProgress(
        index=index,
        total=prompt_tokens,
        cache=prefill.cached_tokens,
        processed=prefill.computed_tokens,
        time_ms=round(1000 * prefill.spent_s),
    )


class Tally:
    """Counts tokens over all choices of a reply; a prompt is counted once, whatever its choices."""

    def __init__(
        self, prompt_tokens: Sequence[int], choices: int = 1, *, counts_drafts: bool = False
    ) -> None:
        """prompt_tokens: of each prompt. choices: per prompt, numbered through. counts_drafts:
        whether the usage has what speculation guessed."""
        self.prompt_tokens = sum(prompt_tokens)
        self.completion_tokens = 0
        self.reasoning_tokens: int | None = None
        """Of the completion's; None where answers are not read for reasoning."""
        self._choices = choices
        self._cached: dict[int, int] = {}
        self._drafts = DraftTokens() if counts_drafts else None
        """Of the choices that have ended."""

    def add(self, index: int, piece: Piece) -> None:
        """Count a piece of choice `index`."""
        self.completion_tokens += len(piece.token_ids)
        cached = piece.cached_tokens
        if (piece.token_ids or cached) and cached > self._cached.get(index, -1):
            self._cached[index] = cached
        if self._drafts is not None and piece.metrics is not None:
            made, accepted = self._drafts
            self._drafts = DraftTokens(
                made + piece.metrics.draft_tokens, accepted + piece.metrics.accepted_draft_tokens
            )

    def usage(self) -> Usage:
        """The usage object so far."""
        return usage_of(
            self.prompt_tokens,
            self.completion_tokens,
            self._cached_tokens(),
            self.reasoning_tokens,
            self._drafts,
        )

    def usage_of_event(self, events: UsageEvents) -> Usage | UnsetType | None:
        """What an event in the middle of a stream says of usage."""
        if events.every:
            return self.usage()
        return None if events.last else UNSET

    def _cached_tokens(self) -> int:
        """Of each prompt what was cached before it came: one choice finds what another computes."""
        least: dict[int, int] = {}
        for index, cached in self._cached.items():
            prompt = index // self._choices
            least[prompt] = min(least.get(prompt, cached), cached)
        return sum(least.values())


_NOTHING = Piece("", ())


@dataclass
class WholeChoice:
    """The output so far of one choice of a reply that is not streamed."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text_offsets: list[int] = field(default_factory=list)
    prompt_logprobs: LogprobOfPrompt | None = None
    last: Piece = _NOTHING
    deltas: list[Delta] = field(default_factory=list)
    """What the text was read as, where it is read."""
    call_ids: list[str] = field(default_factory=list)
    """Of the calls among them."""

    def add(self, piece: Piece) -> None:
        """Take the next piece."""
        self.text.append(piece.text)
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.text_offsets += piece.text_offsets
        if piece.prompt_logprobs is not None:
            self.prompt_logprobs = piece.prompt_logprobs
        self.last = piece


def _keep_alive() -> bytes:
    return sse.KEEP_ALIVE


def _error_event(error: ApiError) -> bytes:
    return sse.data_event(msgspec.json.encode(error.body))


@dataclass(frozen=True)
class StreamForm:
    """The form of one stream; by default OpenAI's."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """In place of those of server-sent events."""
    keep_alive: Callable[[], bytes] = _keep_alive
    """Bytes between two events; b"" for nothing."""
    error: Callable[[ApiError], bytes] = _error_event
    """The last event of a stream that failed."""


OPENAI_FORM = StreamForm()
