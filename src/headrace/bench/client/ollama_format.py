"""Ollama's /api/chat and /api/generate: a line of JSON for each chunk, the last one "done"."""

from __future__ import annotations

from typing import Any

from headrace.bench.client.answer import Answer, count, mapping, objects, text, written
from headrace.bench.record import ChunkKind, Usage


class LineTooLongError(ValueError):
    """A line exceeds the reader's limit."""


class LineReader:
    """A splitter of a byte stream: `feed` returns the lines that are complete, without their ends.

    Any cutting gives the same lines; empty ones are left out. Raises LineTooLongError for
    one of more than `max_line_bytes`.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Lines completed by `piece`."""
        first, *more = piece.split(b"\n")
        self._rest += first
        lines: list[bytes] = []
        for part in more:
            lines.append(bytes(self._rest))
            self._rest = bytearray(part)
        if max(len(self._rest), *(len(line) for line in lines), 0) > self._max_line_bytes:
            raise LineTooLongError(f"a line exceeds {self._max_line_bytes} bytes")
        return [line for line in lines if line.strip()]

    def end(self) -> list[bytes]:
        """The last line, where no line end follows it."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() else []


def take_event(answer: Answer, at_ns: int, event: dict[str, Any], _name: str) -> None:
    """One line."""
    if event.get("error"):
        answer.failed(event)
        return
    ends = event.get("done") is True
    if ends:
        _take_end(answer, event)
        answer.end(at_ns)
    answer.add_all(at_ns, _pieces(event), event, "usage" if ends else "other")


def take_whole(answer: Answer, at_ns: int, reply: dict[str, Any]) -> None:
    """A reply without a stream is one line that is done."""
    if reply.get("error") or reply.get("done") is not True:
        answer.failed(reply if reply.get("error") else "the reply is not complete")
        return
    _take_end(answer, reply)
    answer.add_whole(at_ns, _pieces(reply), reply)


def _pieces(event: dict[str, Any]) -> list[tuple[ChunkKind, str]]:
    message = mapping(event.get("message"))
    found: list[tuple[ChunkKind, str]] = [
        ("reasoning", text(message.get("thinking")) or text(event.get("thinking"))),
        ("text", text(message.get("content")) or text(event.get("response"))),
    ]
    for call in objects(message.get("tool_calls")):
        function = mapping(call.get("function"))
        arguments = function.get("arguments")
        told = written(arguments) if arguments else ""
        found.append(("tool", text(function.get("name")) + told))
    return found


def _take_end(answer: Answer, event: dict[str, Any]) -> None:
    answer.finish_reason = text(event.get("done_reason")) or "stop"
    answer.told(
        Usage(
            prompt_tokens=count(event.get("prompt_eval_count")),
            completion_tokens=count(event.get("eval_count")),
        )
    )
