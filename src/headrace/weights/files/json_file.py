"""Small JSON files of a model folder, read with errors that name the file.

Every JSON file of a folder comes through here, so one promise holds for all: it is a regular file
of bounded size, UTF-8, of bounded depth and number of values, and no name of an object appears
twice (readers differ in which of the two counts, so a file could show each of them another model).
"""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, shown
from headrace.weights.files.small_file import is_named, read_small_file

# The largest tokenizer.json in the wild is about 30 MB; nothing else comes near.
MAX_JSON_BYTES = 128 * 1024 * 1024
# A vocabulary of a million tokens and as many merges has 4 million. An empty list takes 64 bytes of
# memory and two in a file, so the size of a file alone is a weak bound.
MAX_JSON_VALUES = 16_000_000
# Real files have about ten. Whoever walks or prints a value may do so recursively.
MAX_JSON_DEPTH = 64

_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json_object(path: Path, *, required: bool = True) -> dict[str, Any]:
    """The object in `path`; {} when it is absent and not required.

    Raises CheckpointError naming the file when it is missing, not a regular file, too large, not
    UTF-8 JSON, nested too deeply, not an object, or has a name twice in one object.
    """
    if not required and not is_named(path):
        return {}
    return json_object(read_small_file(path, MAX_JSON_BYTES), path)


def json_object(raw: bytes, path: Path) -> dict[str, Any]:
    """The object of the JSON text `raw`, which is the content of `path`; raises as
    `read_json_object` does."""
    num_values = raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    if num_values > MAX_JSON_VALUES:
        raise CheckpointError(f"{path}: about {num_values} values; the limit is {MAX_JSON_VALUES}")
    try:
        value = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {type(value).__name__}; a JSON object is required")
    return value


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text; raises ValueError or RecursionError where it is not JSON, is not
    UTF-8, is nested too deeply, or has a name twice in one object.

    Python's reader lets half of a surrogate pair pass, which nothing can print or write.
    """
    value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique_names)
    if _HALF_PAIR.search(raw):
        json.dumps(value, ensure_ascii=False).encode()
    if not _is_shallow(value):
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} lists and objects")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{shown(name)} appears twice")
            seen.add(name)
    return found


def _is_shallow(value: Any) -> bool:
    containers = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_JSON_DEPTH):
        children = chain.from_iterable(
            each.values() if isinstance(each, dict) else each for each in containers
        )
        containers = [child for child in children if isinstance(child, (dict, list))]
        if not containers:
            return True
    return False


def read_text(path: Path) -> str:
    """The text of `path`; raises CheckpointError when it cannot be read or is not UTF-8."""
    try:
        return read_small_file(path, MAX_JSON_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8: {error.reason}") from error
