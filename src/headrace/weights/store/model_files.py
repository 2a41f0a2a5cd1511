"""Which files of a repository make a model: safetensors with their texts, or one GGUF group.

Works on names and sizes alone, so the hub's listing and a folder of its cache are judged by the
same rules. Pickles (.bin, .pt, .pth) and other frameworks' weights are never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from headrace.errors import FetchError
from headrace.weights.hugging_face.names import CONFIG, INDEX, SINGLE
from headrace.weights.store.gguf_group import choose_group, gguf_groups
from headrace.weights.store.model_name import HubModel

_TEXTS = frozenset(
    {
        CONFIG,
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        INDEX,
    }
)
_TEMPLATE_FOLDERS = ("chat_templates", "additional_chat_templates")
_FOREIGN = (".bin", ".pt", ".pth", ".ckpt", ".onnx", ".h5", ".msgpack", ".npz", ".pkl", ".pickle")
_SHOWN = 5


@dataclass(frozen=True)
class ModelFiles:
    """The files of a repository that make up a model."""

    format: Literal["gguf", "safetensors"]
    names: tuple[str, ...]
    """Every file to have."""
    entry: str | None
    """The GGUF file to open; None where it is the folder."""


def choose_files(
    model: HubModel,
    names: Collection[str],
    read_index: Callable[[], Mapping[str, Any]],
) -> ModelFiles:
    """The files of `model` among those of its repository.

    read_index: gives model.safetensors.index.json; called only where weights are in parts.
    Raises FetchError saying what there is where nothing fits, something is missing or several do.
    """
    groups = gguf_groups(names)
    wants_gguf = model.quant is not None or model.file is not None
    if wants_gguf or (groups and not any(_is_weights(name) for name in names)):
        group = choose_group(groups, quant=model.quant, file=model.file, where=str(model))
        if not group.complete:
            raise FetchError(
                f"{model}: only {len(group.files)} of {group.num_pieces} pieces of "
                f"{group.files[0]} are there"
            )
        return ModelFiles("gguf", group.files, group.files[0])
    weights = _safetensors(model, names, read_index)
    if CONFIG not in names:
        raise FetchError(
            f"{model}: holds safetensors but no {CONFIG}, so it is not a complete model"
        )
    texts = sorted(name for name in names if _is_text(name))
    if weights == (SINGLE,):
        texts = [name for name in texts if name != INDEX]
    return ModelFiles("safetensors", (*texts, *weights), None)


def _safetensors(
    model: HubModel, names: Collection[str], read_index: Callable[[], Mapping[str, Any]]
) -> tuple[str, ...]:
    if SINGLE in names:
        return (SINGLE,)
    if INDEX in names:
        mapping = read_index().get("weight_map")
        values = mapping.values() if isinstance(mapping, Mapping) else ()
        parts = sorted({part for part in values if isinstance(part, str)})
        missing = [part for part in parts if part not in names]
        if not parts or missing:
            what = f"lists {missing[0]!r}, which is not there" if missing else "lists no files"
            raise FetchError(f"{model}: {INDEX} {what}")
        return tuple(parts)
    found = sorted(name for name in names if _is_weights(name))
    if len(found) == 1:
        return (found[0],)
    if found:
        shown = ", ".join(found[:_SHOWN])
        raise FetchError(f"{model}: several safetensors files ({shown}) but no {INDEX}")
    foreign = sorted(name for name in names if name.endswith(_FOREIGN))
    if foreign:
        raise FetchError(
            f"{model}: holds no safetensors and no GGUF, only {', '.join(foreign[:_SHOWN])}; "
            "pickles and other frameworks' weights are never read, look for a converted repository"
        )
    shown = ", ".join(sorted(names)[:_SHOWN]) or "nothing"
    raise FetchError(f"{model}: holds no safetensors and no GGUF; there is {shown}")


def _is_weights(name: str) -> bool:
    """A safetensors file of the repository's top folder that is no adapter."""
    return "/" not in name and name.endswith(".safetensors") and not name.startswith("adapter_")


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    folder = str(path.parent)
    return name in _TEXTS or (folder in _TEMPLATE_FOLDERS and path.suffix == ".jinja")
