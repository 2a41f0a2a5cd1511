"""What a failed request says: one line, of bounded length, without secrets."""

from __future__ import annotations

import re

import msgspec

from headrace.bench.client.answer import error_text
from headrace.bench.client.endpoints import without_secrets
from headrace.bench.client.raw import RawReply
from headrace.bench.client.secrets import BLOT

_MAX_CHARACTERS = 300
_MAX_BODY_BYTES = 4096

# Servers repeat a refused key with its middle left out, or only its beginning.
_BEFORE_A_MASK, _BEGINNING = 4, 8

_REMEDIES = {
    401: "the key is missing or wrong",
    403: "the key may not do this",
    404: "there is no such path or no such model",
    413: "the prompt is too long for this endpoint",
    429: "too many requests for this endpoint",
}


def one_line(message: str, secrets: tuple[str, ...] = ()) -> str:
    """`message` on one line, with `secrets` and what repeats their beginning blotted out."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, BLOT)
        if len(secret) > _BEGINNING:
            mask = re.escape(secret[:_BEFORE_A_MASK]) + r"\S*?(?:\*\*|\.\.\.|…)"
            beginning = re.escape(secret[:_BEGINNING])
            message = re.sub(rf"(?<![\w-])(?:{mask}|{beginning})[\w*.…-]*", BLOT, message)
    shown = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return shown if len(shown) <= _MAX_CHARACTERS else shown[: _MAX_CHARACTERS - 3] + "..."


def status_message(raw: RawReply) -> str:
    """Why a reply with a status that is not 2xx is a failure."""
    assert raw.status is not None
    parts = [f"HTTP {raw.status}"]
    if 300 <= raw.status < 400:
        parts.append(f"redirect to {without_secrets(raw.headers.get('location', 'nowhere'))}")
        parts.append("use that address")
    elif raw.status in _REMEDIES:
        parts.append(_REMEDIES[raw.status])
    if "retry-after" in raw.headers:
        parts.append(f"retry after {raw.headers['retry-after']} s")
    told = _told(raw)
    return ", ".join(parts) + (f": {told}" if told else "")


def _told(raw: RawReply) -> str:
    """The server's words; of HTML nothing."""
    body = raw.body[:_MAX_BODY_BYTES]
    if "html" in raw.headers.get("content-type", "").lower():
        return "an HTML page"
    try:
        return error_text(msgspec.json.decode(raw.body)) if body else ""
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return body.decode("utf-8", errors="replace")
