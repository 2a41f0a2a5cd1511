"""A GGUF file that grows tensor by tensor, survives its writer and shows its name only when whole.

Until then it is `.NAME.part` beside its place, without a header, so that nothing can take it for a
model; `.NAME.part.json` says of what it is a part and how many of its tensors are on the disk. The
same work begun again goes on behind them; other work starts over. Two writers of one file exclude
each other.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headrace.atomic_file import atomic_file
from headrace.errors import CheckpointError, ConfigError
from headrace.weights.gguf.writer import padded
from headrace.weights.tensors.source import TensorSource

# Written between two notes of how far it is, each of which waits for the disk.
_NOTE_EVERY_BYTES = 64 << 20


def write_resumable(
    path: Path,
    header: bytes,
    tensors: Sequence[TensorSource],
    key: str,
    progress: Callable[[int], None],
    *,
    force: bool = False,
) -> int:
    """Write `path` and return its size in bytes.

    header: as `gguf_header` makes it. key: names the work; a part with another one is discarded.
    progress: called with the number of tensors that are done, those found first. force: replace
    what is at `path`. Raises ConfigError where there is something and where another process is
    writing it, CheckpointError naming the tensor that the disk has no room for.
    """
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already; --force replaces it")
    part = path.with_name(f".{path.name}.part")
    note = path.with_name(f".{path.name}.part.json")
    ends = [len(header)]
    for tensor in tensors:
        ends.append(ends[-1] + padded(tensor.nbytes))
    with _locked(part) as file:
        done = _done(note, key, os.fstat(file.fileno()).st_size, ends)
        try:
            _check_room(path, ends[-1] - ends[done])
        except CheckpointError:
            if not done:
                _discard(part, note)
            raise
        file.truncate(ends[done])
        progress(done)
        with _naming(path, tensors, part) as at:
            noted = ends[done]
            try:
                for index in range(done, len(tensors)):
                    at(index)
                    file.seek(ends[index])
                    tensors[index].write_to(file)
                    file.write(bytes(ends[index + 1] - ends[index] - tensors[index].nbytes))
                    done = index + 1
                    if ends[done] - noted >= _NOTE_EVERY_BYTES:
                        _note(file, note, key, done)
                        noted = ends[done]
                    progress(done)
            except CheckpointError:
                # The source is at fault, and would be again.
                _discard(part, note)
                raise
            except BaseException:
                _note_if_possible(file, note, key, done)
                raise
            file.seek(0)
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        _show(part, path, force)
    note.unlink(missing_ok=True)
    return ends[-1]


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(f"{part.parent}: cannot be written to: {error.strerror}") from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another process is writing {part}; wait for it") from error
        yield file


def _done(note: Path, key: str, size: int, ends: Sequence[int]) -> int:
    """How many tensors of this work are in the part."""
    try:
        said = json.loads(note.read_text(encoding="utf-8"))
        done = said["tensors"] if said["key"] == key else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    fits = isinstance(done, int) and 0 <= done < len(ends) and ends[done] <= size
    return done if fits else 0


def _note(file: BinaryIO, note: Path, key: str, done: int) -> None:
    file.flush()
    os.fsync(file.fileno())
    with atomic_file(note) as written:
        written.write(json.dumps({"key": key, "tensors": done}).encode())


def _discard(part: Path, note: Path) -> None:
    part.unlink(missing_ok=True)
    note.unlink(missing_ok=True)


def _note_if_possible(file: BinaryIO, note: Path, key: str, done: int) -> None:
    try:
        _note(file, note, key, done)
    except OSError:
        # A full disk: what was noted last still holds.
        return


def _check_room(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise CheckpointError(
            f"{path}: {needed:,} bytes more are needed, and {free:,} are free on its disk; make "
            "room, or choose a smaller type"
        )


@contextmanager
def _naming(
    path: Path, tensors: Sequence[TensorSource], part: Path
) -> Iterator[Callable[[int], None]]:
    """Errors of the disk name the tensor at hand."""
    index = 0

    def at(number: int) -> None:
        nonlocal index
        index = number

    try:
        yield at
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise
        raise CheckpointError(
            f"{path}: tensor {tensors[index].name!r} cannot be written: {error.strerror}; "
            f"{index} of {len(tensors)} tensors are kept in {part}: make room and run the same "
            "command again, or remove that file"
        ) from error


def _show(part: Path, path: Path, force: bool) -> None:
    if force:
        part.replace(path)
        return
    try:
        # Unlike a rename, a link never takes the place of a file that came meanwhile.
        path.hardlink_to(part)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} has come into being meanwhile; {part} is whole: rename it"
        ) from error
    except OSError:
        part.rename(path)
        return
    part.unlink()
