"""What an endpoint's format says, gathered event by event. Each format fills it in its own way.

Servers are strangers: a field may be absent, null or of any type, and then it says nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.bench.record import Chunk, ChunkKind, Usage

STAMP_FIELD = "mock_sent_ns"
_NS_PER_S = 1_000_000_000
# Thirty years, in which no request waits: such a number is no time in seconds.
_MOST_S = 1e9
# A larger number counts no tokens of one request: sums stay in 64 bits, and the gaps by token, of
# which each takes memory, in the machine. Twice the longest context; several times the longest
# answer that any model gives.
_MOST_PROMPT_TOKENS = 2**24
_MOST_OUTPUT_TOKENS = 2**20
# What a whole reply is: its answer, or what there is in place of one.
_WHOLE_KINDS: tuple[ChunkKind, ...] = ("text", "tool", "reasoning")


@dataclass
class Answer:
    """The content of one reply, built up chunk by chunk."""

    origin_ns: int
    chunks: list[Chunk] = field(default_factory=list)
    """Chunks so far, with times relative to `origin_ns`."""
    usage: Usage = field(default_factory=Usage)
    counted_tokens: int | None = 0
    """Tokens of all chunks so far; None once a chunk came that the server did not count."""
    finish_reason: str | None = None
    queue_ns: int | None = None
    ended: bool = False
    """Whether the format's own end has arrived."""
    ended_ns: int | None = None
    error: str | None = None
    """The server's words for what went wrong."""

    def add(
        self,
        at_ns: int,
        kind: ChunkKind,
        text: str,
        event: dict[str, Any],
        tokens: int | None = None,
    ) -> None:
        """A chunk of `event`, which completed at `at_ns` of the clock."""
        stamp = count(event.get(STAMP_FIELD))
        stamped = None if stamp is None else stamp - self.origin_ns
        self.chunks.append(Chunk(at_ns - self.origin_ns, kind, text, stamped, tokens))

    def add_all(
        self,
        at_ns: int,
        found: list[tuple[ChunkKind, str]],
        event: dict[str, Any],
        otherwise: ChunkKind = "other",
        tokens: int | None = None,
    ) -> None:
        """The chunks of one event, or one of the kind `otherwise` where it carried nothing.

        found: empty texts are left out. tokens: of the event, told where one chunk carries all.
        """
        full = [piece for piece in found if piece[1]]
        for kind, text in full or [(otherwise, "")]:
            self.add(at_ns, kind, text, event, tokens if len(full) == 1 else None)

    def add_whole(
        self, at_ns: int, found: list[tuple[ChunkKind, str]], reply: dict[str, Any]
    ) -> None:
        """A reply without a stream: one chunk, of the answer where there is one; and its end."""
        full = {of for of, piece in found if piece}
        kind: ChunkKind = next((one for one in _WHOLE_KINDS if one in full), "other")
        self.add(at_ns, kind, "".join(piece for of, piece in found if of == kind), reply)
        self.end(at_ns)

    def end(self, at_ns: int) -> None:
        """The format's own end."""
        self.ended = True
        self.ended_ns = at_ns

    def told(self, usage: Usage) -> None:
        """Counts that the server gives, over those that it gave before; none that cannot be."""
        given = {
            name: value
            for name, value in msgspec.structs.asdict(usage).items()
            if value is not None and value <= _most(name)
        }
        if given:
            self.usage = msgspec.structs.replace(self.usage, **given)

    def waited(self, seconds: Any) -> None:
        """The time in the server's queue, where `seconds` is one."""
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if is_number and 0 <= seconds < _MOST_S:
            self.queue_ns = round(seconds * _NS_PER_S)

    def failed(self, error: Any) -> None:
        """The server reports `error`, in whatever form; the first report counts."""
        if self.error is None:
            self.error = error_text(error)


def output_count(value: Any) -> int | None:
    """`value` where it can be the number of an answer's tokens."""
    counted = count(value)
    return None if counted is None or counted > _MOST_OUTPUT_TOKENS else counted


def _most(name: str) -> int:
    """Of a field of Usage."""
    is_output = name in ("completion_tokens", "reasoning_tokens")
    return _MOST_OUTPUT_TOKENS if is_output else _MOST_PROMPT_TOKENS


def error_text(error: Any) -> str:
    """What an error object says, whichever of the usual forms it has."""
    for name in ("error", "message", "detail"):
        if isinstance(error, dict) and error.get(name):
            return error_text(error[name])
    if isinstance(error, str):
        return error
    return written(error) if error else "no message"


def written(value: Any) -> str:
    """`value` as JSON. Numbers too large for others are written too."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_value(data: str | bytes) -> Any:
    """What JSON says; raises ValueError, and RecursionError for what is nested too deeply.

    Bytes that are not UTF-8 become the replacement character, and so does half of a surrogate pair,
    escaped, which is JSON and no Unicode: servers that cut tokens into events send both.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raw = data.decode(errors="replace") if isinstance(data, bytes) else data
        return _mended(json.loads(raw))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(one) for name, one in value.items()}
    return value


def mapping(value: Any) -> dict[str, Any]:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The JSON objects in `value` where it is a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """`value` where it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """`value` where it is a whole number that counts something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        return None
    return value
