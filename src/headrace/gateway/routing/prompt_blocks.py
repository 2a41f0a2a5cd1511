"""A prompt's beginning as blocks, each hashed with all before it, so that equal beginnings match.

The content alone counts, whatever its dialect, so that a conversation is recognised in another.
Engines cache blocks of tokens; blocks of bytes say nearly as much without their tokenizers, as in
llm-d's approximate prefix scorer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.protocol.json_object import JsonObject

BLOCK_BYTES = 256
MOST_BLOCKS = 256
# English has three to four bytes in a token.
BYTES_PER_TOKEN = 4


def prompt_blocks(body: JsonObject, salt: str = "") -> tuple[int, ...]:
    """One hash for each whole block of at most the first 64 KiB; valid in this process only.

    Prompts match only under the same salt.

    Raises RequestError for JSON that is not readable.
    """
    data = bytearray()
    for piece in _pieces(body):
        data += piece
        if len(data) >= BLOCK_BYTES * MOST_BLOCKS:
            break
    hashes = []
    before = hash(salt) if salt else 0
    for at in range(0, min(len(data), BLOCK_BYTES * MOST_BLOCKS) - BLOCK_BYTES + 1, BLOCK_BYTES):
        before = hash((before, bytes(data[at : at + BLOCK_BYTES])))
        hashes.append(before)
    return tuple(hashes)


def _pieces(body: JsonObject) -> Iterator[bytes]:
    """The parts in the order in which chat templates write them: tools, instructions, messages."""
    yield body.value("tools") or b""
    for name in ("system", "instructions"):
        if name in body:
            yield from _said("system", body.decoded(name))
    messages = body.decoded("messages") if "messages" in body else body.decoded("input")
    if isinstance(messages, str):
        yield from _said("user", messages)
    for message in messages if isinstance(messages, list) else ():
        yield from _message(message)
    prompt = body.decoded("prompt") if "prompt" in body else None
    if isinstance(prompt, str):
        yield prompt.encode(errors="surrogatepass")


def _message(message: Any) -> Iterator[bytes]:
    if not isinstance(message, dict):
        yield _json(message)
        return
    role = message.get("role")
    yield from _said("system" if role == "developer" else str(role), message.get("content"))
    rest = {
        name: value
        for name, value in message.items()
        if name not in ("role", "content") and value is not None
    }
    if rest and rest != {"type": "message"}:
        yield _json(rest)


def _said(role: str, content: Any) -> Iterator[bytes]:
    """A message's content; text is the same whether it is one part or several."""
    yield b"\0" + role.encode(errors="surrogatepass") + b"\0"
    if isinstance(content, str):
        yield content.encode(errors="surrogatepass")
        return
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield text.encode(errors="surrogatepass")
        else:
            yield _json(part)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
