"""Small JSON files of a model folder, read with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError

# The largest tokenizer.json in the wild is about 30 MB; nothing else comes near.
MAX_JSON_BYTES = 256 * 1024 * 1024


def read_json_object(path: Path, *, required: bool = True) -> dict[str, Any]:
    """The object in `path`; {} when it is absent and not required.

    Raises CheckpointError naming the file when it is missing, too large, not UTF-8 JSON, or not an
    object.
    """
    if not required and not path.exists():
        return {}
    try:
        n_bytes = path.stat().st_size
        if n_bytes > MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: {n_bytes} bytes; the limit is {MAX_JSON_BYTES}")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {type(value).__name__}; a JSON object is required")
    return value


def read_text(path: Path) -> str:
    """The text of `path`; raises CheckpointError when it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8: {error.reason}") from error
