"""A model written where the user names it: a GGUF file, or a folder, by the ending of the name.

It is made beside its place and moved there when it is whole, so a run that fails leaves nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, ConfigError
from headrace.text.tokenizer_file import tokenizer_json_of
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.conversion.convert import ConversionResult, write_gguf, write_hf_folder


def check_place(out: Path, checkpoint: Checkpoint, force: bool) -> None:
    """Raise ConfigError where `out` is not a place for another form of `checkpoint`."""
    source = checkpoint.path
    if out.exists() and source.exists() and out.samefile(source):
        raise ConfigError(f"{out} is the source itself; name another place")
    if out.is_dir() and source.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"{out} holds the source; name another place")
    if out.exists() and out.is_dir() == (out.suffix == ".gguf"):
        raise ConfigError(
            f"{out}: a {'folder' if out.is_dir() else 'file'} is in the place of the other; a name "
            "that ends in .gguf is a file, any other a folder"
        )
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already; --force replaces it")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: a place in a folder that exists is required")


def write_model(
    checkpoint: Checkpoint,
    out: Path,
    *,
    codec: str | None = None,
    pre: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    folder_metadata: Mapping[str, str] | None = None,
    check: Callable[[Path], None] = lambda path: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ConversionResult:
    """Write `checkpoint` to `out`, over what is there.

    codec, pre, progress: as in `write_gguf`. metadata: of a file; folder_metadata: of a folder's
    safetensors. check: called with what was written before it gets its name; what it raises leaves
    `out` as it was. Raises CheckpointError where the disk refuses.
    """
    with made_beside(out) as new:
        if out.suffix == ".gguf":
            made = write_gguf(checkpoint, new, codec, metadata=metadata, pre=pre, progress=progress)
        else:
            made = write_hf_folder(
                checkpoint,
                new,
                codec,
                tokenizer_json=_tokenizer_json(checkpoint, pre),
                metadata=folder_metadata,
                progress=progress,
            )
        check(new)
    return replace(made, path=out)


@contextmanager
def made_beside(out: Path) -> Iterator[Path]:
    """A place for a file or folder that is moved to `out`, over what is there, when the block ends
    without an error; what lies beside it there is removed, and so is what earlier processes that
    were killed left of the same.

    Raises CheckpointError where the disk refuses.
    """
    parent = out.absolute().parent
    prefix = f".{out.name}.part."
    try:
        _remove_left(parent, prefix)
        with (
            tempfile.TemporaryDirectory(dir=parent, prefix=prefix) as beside,
            _locked(Path(beside)),
        ):
            new = Path(beside) / out.name
            yield new
            old = new.with_name(f"{new.name}.old")
            if out.is_dir():
                out.rename(old)
            new.replace(out)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(f"{out}: cannot be written: {error.strerror}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder, which says that its process lives; whether this process has it.
    Where another does, or the file system locks no folders (NFS), it has not.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        held = False
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(descriptor)


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove folders that TemporaryDirectory made with this prefix and no process holds."""
    made = re.compile(re.escape(prefix) + "[a-z0-9_]{8}")
    # What cannot be listed or removed is only litter.
    with suppress(OSError):
        for folder in [each for each in parent.iterdir() if made.fullmatch(each.name)]:
            with _locked(folder) as held:
                if held:
                    shutil.rmtree(folder, ignore_errors=True)


def _tokenizer_json(checkpoint: Checkpoint, pre: str | None) -> str | None:
    """The text of that file where the checkpoint has only a GGUF file's arrays."""
    if checkpoint.tokenizer.json_path is not None or "tokens" not in checkpoint.tokenizer.gguf:
        return None
    return tokenizer_json_of(checkpoint.tokenizer, checkpoint.eos_token_ids, pre)
