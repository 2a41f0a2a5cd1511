"""One choice of an answer as events: a machine over the pieces that the engine's tokens become.

The events do not depend on how the answer was cut, but for where deltas are cut. Parts follow one
another; each ends before the next begins. The choice's end is held by the caller, as it comes after
the parts of all choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from headrace.answer_formats.deltas import (
    CallDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    Delta,
    ReasoningDelta,
)
from headrace.conversation.reading import AnswerReading, ReadChoice
from headrace.engine.messages import TokenLogprob
from headrace.protocol.neutral.event import ChoiceEnd, Event, Kind, PartDelta, PartEnd, PartStart
from headrace.protocol.neutral.part import Signature
from headrace.protocol.neutral.reply import Finish
from headrace.server.dialects.thought_signature import SHOWN_THOUGHT, sealed_thought
from headrace.server.generation.logprobs import TokenTable, chat_logprobs
from headrace.server.generation.pieces import Piece

_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


class ChoiceEvents:
    """A machine that makes events of the pieces of one choice.

    reading: of an answer that has reasoning or calls; None where all of it is content. tokenizer:
    for log probabilities; None where none were asked for. shows_thoughts: whether the client reads
    them; it gets their part without a text otherwise. signs_thoughts: whether it wants a signature.
    """

    def __init__(
        self,
        choice: int,
        reading: AnswerReading | None,
        new_id: Callable[[], str],
        *,
        tokenizer: TokenTable | None = None,
        shows_thoughts: bool = True,
        signs_thoughts: bool = False,
    ) -> None:
        self._choice = choice
        self._read = None if reading is None else ReadChoice(reading, new_id)
        self._tokenizer = tokenizer
        self._shows = shows_thoughts
        self._signs = signs_thoughts
        self._open: Kind | None = None
        self._part = -1
        self._hidden: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._end: ChoiceEnd | None = None

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that are the model's reasoning."""
        return 0 if self._read is None else self._read.reasoning_tokens

    @property
    def num_broken_calls(self) -> int:
        """Calls so far whose arguments are not a JSON object."""
        return 0 if self._read is None else self._read.num_broken_calls

    @property
    def end(self) -> ChoiceEnd | None:
        """The end, once the last piece was taken."""
        return self._end

    def take(self, piece: Piece) -> Iterator[Event]:
        """The events that a piece makes certain; its log probabilities go with the next text."""
        if piece.logprobs and self._tokenizer is not None:
            self._logprobs += _plain_logprobs(piece.logprobs, self._tokenizer)
        if self._read is not None:
            is_last = piece.finish_reason is not None
            for delta in self._read.take(piece.text, piece.text_offsets, is_last=is_last):
                yield from self._delta(delta)
        elif piece.text:
            yield from self._grow("text", piece.text)
        if self._logprobs and self._open is not None:
            yield PartDelta(
                choice=self._choice, part=self._part, text="", logprobs=self._taken_logprobs()
            )
        if piece.finish_reason is not None:
            yield from self._close()
            self._end = self._ended(piece)

    def _delta(self, delta: Delta) -> Iterator[Event]:
        match delta:
            case ContentDelta(text):
                yield from self._grow("text", text)
            case ReasoningDelta(text):
                yield from self._think(text)
            case CallStart():
                assert self._read is not None
                yield from self._begin("tool_call", self._read.call_id(delta), delta.name)
            case CallDelta(_, arguments):
                yield self._grown(arguments)
            case CallEnd():
                yield from self._close()

    def _think(self, text: str) -> Iterator[Event]:
        if self._shows:
            yield from self._grow("thinking", text)
            return
        if self._open != "thinking":
            yield from self._begin("thinking")
        self._hidden.append(text)

    def _grow(self, kind: Kind, text: str) -> Iterator[Event]:
        if self._open != kind:
            yield from self._begin(kind)
        yield self._grown(text)

    def _grown(self, text: str) -> PartDelta:
        if self._logprobs:
            logprobs = self._taken_logprobs()
            return PartDelta(choice=self._choice, part=self._part, text=text, logprobs=logprobs)
        return PartDelta(choice=self._choice, part=self._part, text=text)

    def _begin(self, kind: Kind, call_id: str = "", name: str = "") -> Iterator[Event]:
        yield from self._close()
        self._open = kind
        self._part += 1
        yield PartStart(choice=self._choice, part=self._part, kind=kind, id=call_id, name=name)

    def _close(self) -> Iterator[Event]:
        if self._open is None:
            return
        signature = self._signature() if self._open == "thinking" else None
        self._open = None
        yield PartEnd(choice=self._choice, part=self._part, signature=signature)

    def _signature(self) -> Signature | None:
        if not self._shows:
            hidden, self._hidden = "".join(self._hidden), []
            return sealed_thought(hidden)
        return SHOWN_THOUGHT if self._signs else None

    def _taken_logprobs(self) -> list[dict[str, Any]]:
        taken, self._logprobs = self._logprobs, []
        return taken

    def _ended(self, piece: Piece) -> ChoiceEnd:
        reason = piece.finish_reason or "stop"
        if self._read is not None:
            reason = self._read.finish_reason(reason)
        stop = piece.stop_reason
        return ChoiceEnd(
            choice=self._choice,
            # One that ran out of time was cut as one that ran out of tokens.
            reason=_FINISHES.get(reason, "length"),
            stop_sequence=stop if isinstance(stop, str) else None,
        )


def _plain_logprobs(tokens: Sequence[TokenLogprob], tokenizer: TokenTable) -> list[dict[str, Any]]:
    """Log probabilities in OpenAI's form."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(chat_logprobs(tokens, tokenizer).content)
    return plain
