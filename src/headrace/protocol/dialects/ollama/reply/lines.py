"""Lines of a stream of JSON, one object in each (application/x-ndjson)."""

from __future__ import annotations

from headrace.protocol.sse import MAX_EVENT_BYTES


class LineReader:
    """A reader of lines: feed it bytes, and it returns the lines they complete, without line ends.

    The result does not depend on how the bytes are cut; empty lines are skipped. too_long: a line
    exceeded `max_line_bytes`; it and the rest are not read.
    """

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self.max_line_bytes = max_line_bytes
        self.too_long = False
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Lines completed by `piece`."""
        lines: list[bytes] = []
        start = 0
        while not self.too_long:
            end = piece.find(b"\n", start)
            self._rest += piece[start:] if end < 0 else piece[start:end]
            self.too_long = len(self._rest) > self.max_line_bytes
            if end < 0 or self.too_long:
                break
            lines += self.end()
            start = end + 1
        return lines

    def end(self) -> list[bytes]:
        """The last line, where no line end follows it."""
        rest = bytes(self._rest)
        self._rest.clear()
        return [rest] if rest.strip() else []
