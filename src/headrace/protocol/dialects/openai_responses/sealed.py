"""Signatures of other vendors in `encrypted_content`, the one field of this API for such things.

OpenAI's own value stands as it is. Another vendor's is "headrace:<origin>:<value>" in the reasoning
item of its thought. What is signed but no thought has its signature in a reasoning item that holds
nothing else: a text's follows its message as "headrace:text:<origin>:<value>", and a tool call's,
if it came too late for the call's id to carry it, is "headrace:call:" and the id that would have.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.protocol.neutral.carried_id import pack, unpack
from headrace.protocol.neutral.part import Signature

OPENAI = "openai"

_SEAL = "headrace:"
_TEXT_SEAL = "headrace:text:"
_CALL_SEAL = "headrace:call:"


class Sealed(NamedTuple):
    """A signature with what it signs."""

    signature: Signature
    of: Literal["thought", "text", "call"] = "thought"
    """What was signed."""
    call_id: str = ""
    """For a call."""


def seal(signature: Signature) -> str:
    """`encrypted_content` for the signature of a thought."""
    if signature.origin == OPENAI and not signature.value.startswith(_SEAL):
        return signature.value
    return f"{_SEAL}{signature.origin}:{signature.value}"


def seal_text(signature: Signature) -> str:
    """`encrypted_content` for the signature of a text."""
    return f"{_TEXT_SEAL}{signature.origin}:{signature.value}"


def seal_call(call_id: str, signature: Signature) -> str:
    """`encrypted_content` for the signature of a tool call."""
    return _CALL_SEAL + pack(call_id, signature)


def unseal(value: str) -> Sealed:
    """The signature that a client returns, and what it signs."""
    if value.startswith(_CALL_SEAL):
        call_id, signature = unpack(value.removeprefix(_CALL_SEAL))
        if signature is not None:
            return Sealed(signature, "call", call_id)
    if value.startswith(_TEXT_SEAL):
        origin, colon, inner = value.removeprefix(_TEXT_SEAL).partition(":")
        if colon and origin:
            return Sealed(Signature(origin, inner), "text")
    elif value.startswith(_SEAL):
        origin, colon, inner = value.removeprefix(_SEAL).partition(":")
        if colon and origin:
            return Sealed(Signature(origin, inner))
    return Sealed(Signature(OPENAI, value))
