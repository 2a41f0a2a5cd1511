"""Split GGUF files: the pieces of one model, opened as one file.

Pieces are called NAME-00001-of-00003.gguf and so on and lie in one folder. Opening any of them
opens all. The first holds the model's metadata; each says which piece it is (split.no, from 0), of
how many (split.count), and how many tensors all hold together (split.tensors.count).

Source: llama.cpp, tools/gguf-split and llama_split_path.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from headrace.errors import CheckpointError, shown
from headrace.weights.gguf.file import GGUFFile, read_gguf
from headrace.weights.tensors.tensor import Tensor

PIECE_NAME = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
_PREFIX = "split."
_NUMBER, _COUNT, _TENSORS = (_PREFIX + name for name in ("no", "count", "tensors.count"))
# Five digits in the name.
_LIMIT = 100_000
# Names enough to see what happened; the count says the rest.
_SHOWN = 5


def read_gguf_model(path: Path) -> GGUFFile:
    """The GGUF file at `path`, with the tensors of all its pieces when it is one of several.

    `path` of the result is the first piece; its metadata has no split.* keys, which say nothing of
    the model. Raises CheckpointError naming the piece that is missing, damaged, out of its place,
    or holds a tensor another piece has too.
    """
    file = read_gguf(path)
    count = file.metadata.scalar(_COUNT, 1)
    if count in (0, 1):
        return replace(file, metadata=file.metadata.without(_PREFIX))
    if not isinstance(count, int) or not 1 < count < _LIMIT:
        raise CheckpointError(
            f"{path}: {_COUNT} is {shown(count)}; an integer below {_LIMIT} is required"
        )
    name = PIECE_NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise CheckpointError(
            f"{path}: is one of {count} pieces ({_COUNT}), but its name does not say which: "
            f"NAME-00001-of-{count:05}.gguf is required; give the pieces their names back, or "
            "merge them with llama-gguf-split --merge"
        )
    paths = [
        path.with_name(f"{name['stem']}-{number:05}-of-{name['count']}.gguf")
        for number in range(1, count + 1)
    ]
    if missing := [other.name for other in paths if not other.is_file()]:
        raise CheckpointError(
            f"{path}: {len(missing)} of {count} pieces are missing beside it "
            f"({', '.join(missing[:_SHOWN])}); fetch them into {path.parent}"
        )
    at = int(name["number"]) - 1
    pieces = [file if index == at else read_gguf(other) for index, other in enumerate(paths)]
    tensors: dict[str, Tensor] = {}
    for index, piece in enumerate(pieces):
        _check_place(piece, index, count)
        if twice := tensors.keys() & piece.tensors.keys():
            raise CheckpointError(
                f"{piece.path}: tensor {min(twice)!r} is in an earlier piece as well; the pieces "
                "are not of one model, fetch them again"
            )
        tensors.update(piece.tensors)
    first = pieces[0]
    total = first.metadata.scalar(_TENSORS, len(tensors))
    if total != len(tensors):
        raise CheckpointError(
            f"{first.path}: {_TENSORS} is {shown(total)}, but the {count} pieces hold "
            f"{len(tensors)} tensors; the pieces are not of one model, fetch them again"
        )
    return replace(first, tensors=tensors, metadata=first.metadata.without(_PREFIX))


def _check_place(piece: GGUFFile, index: int, count: int) -> None:
    for key, required in ((_NUMBER, index), (_COUNT, count)):
        value = piece.metadata.scalar(key)
        if value != required or isinstance(value, bool):
            raise CheckpointError(
                f"{piece.path}: {key} is {shown(value)}; its name requires {required}; "
                "the pieces are mixed up, fetch them again"
            )
