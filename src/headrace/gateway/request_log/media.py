"""Replacements of pictures, sounds and files in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

_URL = re.compile(r"data:([0-9A-Za-z.+/-]{0,127})(?:;[0-9A-Za-z.=_-]{1,64}){0,3};base64,"
                  r"([0-9A-Za-z+/_=-]*+)")  # fmt: skip
_BASE64 = re.compile(r"[0-9A-Za-z+/_\-\r\n]++=*+")
# Fields whose base64 is media. Elsewhere it may be a signature that the next request needs.
_FIELDS = frozenset({"data", "images", "b64_json", "file_data", "audio", "image", "bytes"})
# Shorter ones are not media, and cost nothing to keep.
_LEAST_CHARS = 256


def without_media(name: str, text: str) -> tuple[str, int]:
    """The text of a field with media replaced by their type, size and SHA-256; how many there
    were."""
    if ";base64," in text:
        return _URL.subn(_told_url, text)
    if name in _FIELDS and len(text) >= _LEAST_CHARS and _BASE64.fullmatch(text):
        return _told("", text), 1
    return text, 0


def may_have_media(body: str) -> bool:
    """False only where no string of the JSON text has any."""
    return ";base64," in body or any(
        len(part) >= _LEAST_CHARS and _BASE64.fullmatch(part) is not None
        for part in body.split('"')
    )


def _told_url(found: re.Match[str]) -> str:
    return _told(found[1], found[2])


def _told(kind: str, payload: str) -> str:
    try:
        padded = payload + "=" * (-len(payload.rstrip("\r\n")) % 4)
        raw = base64.b64decode(padded.translate({45: 43, 95: 47}))
    except (binascii.Error, ValueError):
        raw = payload.encode()
    digest = hashlib.sha256(raw).hexdigest()
    return f"[MEDIA {kind + ' ' if kind else ''}{len(raw)} bytes sha256:{digest}]"
