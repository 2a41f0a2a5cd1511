"""Small JSON files of a model folder, read with errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.weights.small_file import is_named, read_small_file

# The largest tokenizer.json in the wild is about 30 MB; nothing else comes near.
MAX_JSON_BYTES = 256 * 1024 * 1024


def read_json_object(path: Path, *, required: bool = True) -> dict[str, Any]:
    """The object in `path`; {} when it is absent and not required.

    Raises CheckpointError naming the file when it is missing, no regular file, too large, not UTF-8
    JSON, or not an object.
    """
    if not required and not path.exists() and not is_named(path):
        return {}
    try:
        value = parse_json(read_small_file(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {type(value).__name__}; a JSON object is required")
    return value


def parse_json(
    raw: bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """The value of a JSON text; raises ValueError or RecursionError where it is none.

    Python's reader lets half of a surrogate pair pass, which nothing can print or write.
    """
    value = json.loads(raw, object_pairs_hook=object_pairs_hook)
    if b"\\u" in raw:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_text(path: Path) -> str:
    """The text of `path`; raises CheckpointError when it cannot be read or is not UTF-8."""
    try:
        return read_small_file(path, MAX_JSON_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8: {error.reason}") from error
