"""The signature of thoughts made here, for clients that want one on each and send it back.

Nothing is proved by it: clients keep signed thoughts and drop others. Where a client asked not to
be shown them, it holds the thoughts themselves, so that the next turn's prompt has them all the
same.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from headrace.protocol.neutral.part import Signature, Thinking

ORIGIN = "headrace"

_SHOWN = "1"
_SEALED = "1."

SHOWN_THOUGHT = Signature(ORIGIN, _SHOWN)
"""Of thoughts that the client reads."""


def sealed_thought(text: str) -> Signature:
    """Of thoughts that the client does not read."""
    return Signature(ORIGIN, _SEALED + urlsafe_b64encode(text.encode()).rstrip(b"=").decode())


def thought_of(part: Thinking) -> str:
    """The thoughts that a client gives back; "" where only another vendor can read them."""
    signature = part.signature
    if part.text or signature is None or signature.origin != ORIGIN:
        return part.text
    if not signature.value.startswith(_SEALED):
        return ""
    packed = signature.value.removeprefix(_SEALED)
    try:
        return urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
