"""Vectors in answers with embeddings: their replacements, and their number.

They are far longer than the texts they represent, and can be computed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import msgspec

_TOLD = re.compile(r"\[VECTOR of ([0-9]+) numbers\]")
_FLOAT32_BYTES = 4
_ENCODE = msgspec.json.Encoder().encode
_Fields = dict[str, msgspec.Raw]
_READ_FIELDS = msgspec.json.Decoder(_Fields)
_READ_ITEMS = msgspec.json.Decoder(list[_Fields])
_READ_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_READ_TEXT = msgspec.json.Decoder(str)


def without_vectors(body: bytes) -> bytes:
    """A reply of OpenAI's or Ollama's API with the length of each vector in its place. The same
    bytes where it has none, or is not such a reply."""
    try:
        return _replaced(body, lambda vector: f"[VECTOR of {_numbers_in(vector)} numbers]")
    except (msgspec.MsgspecError, UnicodeError):
        return body


def vectors_told(body: bytes) -> str:
    """The number and length of a reply's vectors, as it was sent or stored: "2 vectors of 1536
    numbers". "" if it has none."""
    lengths: Counter[int] = Counter()

    def count(vector: bytes) -> str:
        lengths[_numbers_in(vector)] += 1
        return ""

    try:
        _replaced(body, count)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return ", ".join(
        f"{count} vector{'s' if count > 1 else ''} of {length} numbers"
        for length, count in sorted(lengths.items())
    )


def _replaced(body: bytes, instead: Callable[[bytes], str]) -> bytes:
    """The body with vectors replaced; the rest is unchanged except for white space."""
    fields = _READ_FIELDS.decode(body)
    if "data" in fields:
        items = _READ_ITEMS.decode(fields["data"])
        for item in items:
            if "embedding" in item:
                item["embedding"] = _written(instead(bytes(item["embedding"])))
        fields["data"] = msgspec.Raw(_ENCODE(items))
    if "embeddings" in fields:
        vectors = [_written(instead(bytes(one))) for one in _READ_LIST.decode(fields["embeddings"])]
        fields["embeddings"] = msgspec.Raw(_ENCODE(vectors))
    elif "data" not in fields:
        return body
    return _ENCODE(fields)


def _written(text: str) -> msgspec.Raw:
    return msgspec.Raw(_ENCODE(text))


def _numbers_in(vector: bytes) -> int:
    """The length of a list of numbers, of float32 in base64, or of their replacement."""
    if vector[:1] == b'"':
        text = _READ_TEXT.decode(vector)
        if (told := _TOLD.fullmatch(text)) is not None:
            return int(told[1])
        return len(text.rstrip("=")) * 3 // 4 // _FLOAT32_BYTES
    return vector.count(b",") + 1 if vector.strip(b"[] \t\r\n") else 0
