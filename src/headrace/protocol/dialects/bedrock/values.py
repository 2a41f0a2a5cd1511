"""Words that several files of this dialect share, and JSON at its edges.

Integers beyond 64 bits, which msgspec reads and does not write, are written too.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

DIALECT = "bedrock"

# Whose signatures thoughts carry. On Bedrock only Anthropic's models sign, and their signatures
# hold on Anthropic's own API as well.
SIGNER = "anthropic"

SERVER_TOOL_USE = "server_tool_use"

IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/opus": "opus",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/aac": "aac",
    "audio/x-aac": "x-aac",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/mp4": "mp4",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/ogg": "ogg",
    "audio/x-matroska": "mka",
    "audio/pcm": "pcm",
    "audio/webm": "webm",
}
VIDEO_FORMATS = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/x-markdown": "md",
}
FORMATS = {
    "image": IMAGE_FORMATS,
    "audio": AUDIO_FORMATS,
    "video": VIDEO_FORMATS,
    "document": DOCUMENT_FORMATS,
}


NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a body may raise."""


def encoded(value: Any) -> bytes:
    """JSON of what came from JSON. Raises RecursionError for what is nested too deeply."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
