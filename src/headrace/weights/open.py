"""Opening a checkpoint from a path, whatever container it is in.

What reads folders, and the ways in which they are quantised, is imported for them alone: some 30
modules, and most starts are of a GGUF file.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import CheckpointError
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.files.small_file import is_named
from headrace.weights.files.user_path import user_path
from headrace.weights.gguf.checkpoint import open_gguf
from headrace.weights.gguf.file import MAGIC
from headrace.weights.store.gguf_group import gguf_groups


def open_checkpoint(path: str | Path) -> Checkpoint:
    """The model at `path`: a GGUF file (any piece of a split one), a Hugging Face folder, or a
    folder with one GGUF model.

    Nothing is converted and no weight is read. Raises CheckpointError when there is no model or it
    is damaged, UnsupportedModelError when it is one that is not supported.
    """
    path = user_path(path)
    try:
        return _open(path)
    except OSError as error:
        # A folder closed to this user, a name too long for the file system, a disk that fails.
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _open(path: Path) -> Checkpoint:
    if path.is_file():
        return _open_file(path)
    if not path.is_dir():
        if path.exists():
            raise CheckpointError(f"{path}: neither a regular file nor a folder")
        raise CheckpointError(
            f"{path}: no such file or folder; "
            "a GGUF file or a folder with config.json and safetensors is required"
        )
    files = sorted(path.glob("*.gguf"))
    # Repositories of GGUF files often keep the original's config.json beside them.
    if is_named(path / "config.json") and (any(path.glob("*.safetensors")) or not files):
        from headrace.weights.hugging_face.folder import open_hf_folder

        return open_hf_folder(path)
    groups = gguf_groups(file.name for file in files)
    if len(groups) == 1:
        return open_gguf(path / groups[0].files[0])
    if groups:
        names = ", ".join(group.files[0] for group in groups[:5])
        raise CheckpointError(
            f"{path}: holds {len(groups)} GGUF models ({names}); name one of them"
        )
    raise CheckpointError(f"{path}: holds neither config.json nor a .gguf file of a model")


def _open_file(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return open_gguf(path)
    from headrace.weights.hugging_face.folder import NOT_READ, PICKLE_ENDS

    if path.suffix == ".safetensors":
        raise CheckpointError(
            f"{path}: weights alone; name the folder, which must hold config.json as well"
        )
    if path.suffix in PICKLE_ENDS:
        raise CheckpointError(f"{path} {NOT_READ}, in a folder with config.json")
    return open_gguf(path)
