"""The text of a long answer, read a little at a time: the next turn of a conversation waits for it,
and other streams must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.bench.client import anthropic_format, ollama_format, openai_format
from headrace.bench.client.answer import Answer, json_value
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.raw import RawReply
from headrace.protocol.sse import SSEReader, StreamTooLargeError

# Between two rounds of the loop: some tens of events.
STEP_BYTES = 8 * 1024
STEP_PIECES = 32
# A longer event is not read here.
_MAX_EVENT_BYTES = 16 * 2**20

_TakeEvent = Callable[[Answer, int, dict[str, Any], str], None]
_FORMATS: dict[EndpointKind, _TakeEvent] = {
    "openai-chat": openai_format.take_event,
    "openai-completions": openai_format.take_event,
    "anthropic-messages": anthropic_format.take_event,
    "ollama": ollama_format.take_event,
}


class AnswerText:
    """The text of a streamed reply. `steps` reads it, and has to end before `text` is read."""

    def __init__(self, raw: RawReply, kind: EndpointKind) -> None:
        self._raw = raw
        self._take: _TakeEvent | None = _FORMATS.get(kind)
        self._events = _lines() if kind == "ollama" else _server_sent()
        self._answer = Answer(0)
        self._understood = True

    def steps(self) -> Iterator[None]:
        """Between two of them are at most STEP_BYTES of the reply and STEP_PIECES of its pieces."""
        try:
            for number, part in enumerate(_parts(self._raw)):
                if number:
                    yield
                for data, name in self._events(part):
                    self._event(data, name)
        except (StreamTooLargeError, ValueError, RecursionError):
            self._understood = False

    @property
    def is_cut_off(self) -> bool:
        """Whether the connection failed before the stream's own end."""
        return self._raw.failure is not None and not self._answer.ended

    @property
    def text(self) -> str | None:
        """Of the answer, without reasoning and calls; None for a reply that is not whole or not
        plain: `decode` says what it is."""
        raw, answer = self._raw, self._answer
        is_good = raw.status is not None and 200 <= raw.status < 300 and answer.error is None
        is_whole = answer.ended or (raw.failure is None and answer.finish_reason is not None)
        if not (self._understood and is_good and is_whole):
            return None
        return "".join(chunk.text for chunk in answer.chunks if chunk.kind == "text")

    def _event(self, data: str | bytes, name: str) -> None:
        if data.strip() == openai_format.DONE_DATA:
            self._answer.end(self._raw.end_ns)
            return
        event = json_value(data)
        if not isinstance(event, dict) or self._take is None:
            self._understood = False
            return
        self._take(self._answer, self._raw.end_ns, event, name)


def _server_sent() -> Callable[[bytes], list[tuple[str | bytes, str]]]:
    reader = SSEReader(max_event_bytes=_MAX_EVENT_BYTES)
    return lambda part: [(event.data, event.event) for event in reader.feed(part)]


def _lines() -> Callable[[bytes], list[tuple[str | bytes, str]]]:
    reader = ollama_format.LineReader(_MAX_EVENT_BYTES)
    return lambda part: [(line, "") for line in reader.feed(part)]


def _parts(raw: RawReply) -> Iterator[bytes]:
    """The body, in as many bytes and pieces as one step has."""
    held: list[bytes] = []
    size = 0
    for _, piece in raw.pieces:
        for start in range(0, len(piece), STEP_BYTES):
            part = piece[start : start + STEP_BYTES]
            if held and (size + len(part) > STEP_BYTES or len(held) == STEP_PIECES):
                yield b"".join(held)
                held, size = [], 0
            held.append(part)
            size += len(part)
    if held:
        yield b"".join(held)
