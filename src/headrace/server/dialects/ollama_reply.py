"""Replies to Ollama's clients: with times, and with the ids of a conversation so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.conversation.reading import AnswerReading
from headrace.protocol.dialects.ollama import Durations, OllamaClient
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.openai.choice import ChoiceMetrics
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.generation.logprobs import TokenTable
from headrace.server.generation.pieces import Piece
from headrace.server.replies.reply import Head

_NS = 1_000_000_000


class OllamaReply(NeutralReply):
    """A reply to one of Ollama's clients, for `headrace.server.answer`."""

    def __init__(
        self,
        side: OllamaClient,
        call: ChatCall,
        head: Head,
        prompt_ids: Sequence[int],
        reading: AnswerReading | None,
        tokenizer: TokenTable,
        *,
        new_id: Callable[[], str],
        with_context: bool = False,
    ) -> None:
        """side: of this reply alone, whose times are set at its end. with_context: whether the
        reply ends with the ids of prompt and answer, which a client may send back."""
        writer = side.stream_writer(call)
        super().__init__(
            side, call, head, prompt_ids, reading, writer, tokenizer=tokenizer, new_id=new_id
        )
        self._whole, self._lines = side, writer
        """What writes the times at the end: of a whole reply, and of a stream."""
        self._context = [*prompt_ids] if with_context else None

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The bytes of a piece."""
        self._note(piece)
        return super().events(index, piece)

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        self._note(piece)
        super().add(index, piece)

    def at_end(self, metrics: ChoiceMetrics | None) -> dict[str, Any]:
        """Set the times; the ids are part of the end."""
        if metrics is not None:
            self._whole.durations = self._lines.durations = Durations(
                total_ns=_ns(metrics.e2e_s),
                prompt_eval_ns=_ns(metrics.prefill_s),
                eval_ns=_ns(metrics.decode_s),
            )
        return {} if self._context is None else {"ollama": {"context": self._context}}

    def _note(self, piece: Piece) -> None:
        if self._context is not None:
            self._context += piece.token_ids


def _ns(seconds: float | None) -> int:
    return round((seconds or 0.0) * _NS)
