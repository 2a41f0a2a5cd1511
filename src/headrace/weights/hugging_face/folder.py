"""A Hugging Face folder as a checkpoint: config.json, safetensors and what lies beside them.

tokenizer.json is named; making a tokenizer of it is the business of `headrace.text`.
Where only SentencePiece's tokenizer.model is there, its pieces are taken as a GGUF file has them.
Pickled weights (pytorch_model.bin) are never opened, because reading them runs code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, shown
from headrace.weights.architectures import Architecture, known_architecture
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs import BYTES
from headrace.weights.files.json_file import read_json_object, read_text
from headrace.weights.files.small_file import is_named
from headrace.weights.hugging_face.forms import canonical_tensors
from headrace.weights.hugging_face.names import INDEX, SINGLE
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.text_part import text_config, text_part
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.storage.cache_scales import is_cache_scale
from headrace.weights.storage.matrices import packed_dtypes, with_joined_matrices
from headrace.weights.storage.quantisation import (
    BESIDE,
    KEY,
    stated_quantisation,
    with_quantisation,
)
from headrace.weights.storage.statement import read_storage
from headrace.weights.storage.storage import Storage
from headrace.weights.tensors.expert_stacks import unstacked_folder
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData, token_text
from headrace.weights.tokenizer.sentencepiece_model import sentencepiece_entries, stated_flags
from headrace.weights.tokenizer.tokenizer_json import read_tokenizer_json

# What file systems hold; beyond it every question about the file fails.
_MAX_FILE_NAME_BYTES = 255
# Names enough to see what happened; the count says the rest.
_SHOWN = 5
# Where transformers has put named templates over time.
_TEMPLATE_FOLDERS = ("chat_templates", "additional_chat_templates")


def open_hf_folder(folder: Path) -> Checkpoint:
    """The model in `folder`; raises CheckpointError naming what is missing or damaged."""
    beside = read_json_object(folder / BESIDE, required=False)
    stated = with_quantisation(read_json_object(folder / "config.json"), beside)
    config = text_config(stated)
    generation = read_json_object(folder / "generation_config.json", required=False)
    architecture = known_architecture(config.get("model_type"))
    storage = _storage(stated)
    raw = packed_dtypes(storage)
    if not raw and architecture is not None and architecture.turned_stacks == "in_turn":
        raw = (BYTES.name,)
    stored, metadata = _read_tensors(folder, raw)
    scales = {name: stored[name] for name in stored if is_cache_scale(name)}
    stored = {name: stored[name] for name in stored if name not in scales}
    joined = with_joined_matrices(folder, stored, storage)
    part = text_part(stated, joined)
    tensors = part.tensors
    if architecture is not None:
        tensors = _prefixed(tensors, architecture)
        tensors = canonical_tensors(folder, tensors, architecture, config)
        tensors = unstacked_folder(folder, tensors, architecture)
    tokenizer_config = _tokenizer_config(folder)
    templates = _chat_templates(folder, tokenizer_config.pop("chat_template", None))
    json_path = folder / "tokenizer.json"
    tokenizer = TokenizerData("none", config=tokenizer_config)
    if is_named(json_path):
        tokenizer = TokenizerData("tokenizer.json", json_path, config=tokenizer_config)
    elif is_named(folder / "tokenizer.model"):
        pieces = sentencepiece_entries(folder / "tokenizer.model", tokenizer_config)
        tokenizer = TokenizerData(
            "gguf", gguf=pieces, config=tokenizer_config, flags=stated_flags(tokenizer_config)
        )
    return Checkpoint(
        path=folder,
        format="safetensors",
        config=config,
        conventions=Conventions() if architecture is None else architecture.hf,
        tensors=tensors,
        tokenizer=tokenizer,
        chat_templates=templates,
        generation_config=generation,
        eos_token_ids=_end_ids(folder, config, generation, tokenizer),
        metadata=metadata,
        cache_scales=text_part(stated, scales).tensors,
        left_out=part.left_out,
    )


def _storage(stated: Mapping[str, Any]) -> Storage | None:
    """How weights are stored; None for plain numbers.

    Keys that are not known stop a load or a conversion, which may be given leave to ignore them.
    """
    return read_storage(ConfigReader({KEY: stated_quantisation(stated)}))


PICKLE_ENDS = (".bin", ".pt", ".pth")
NOT_READ = (
    "is a pickle and is not read; convert it to safetensors: "
    'safetensors.torch.save_file(torch.load(FILE, weights_only=True), "model.safetensors")'
)
"""What an error says of such a file."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of `folder` in name order: one, or the parts an index lists.

    Raises CheckpointError when there are none, several and no index, or one that is listed lacks.
    The index's total_size is not looked at, as nowhere else: writers count tied weights in
    different ways, and a file that is cut short is found by its own header.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        listed = sorted(set(_weight_map(folder / INDEX).values()))
        if missing := [name for name in listed if not (folder / name).is_file()]:
            raise CheckpointError(
                f"{folder}: {len(missing)} of {len(listed)} files that {INDEX} lists are missing "
                f"({', '.join(missing[:_SHOWN])}); fetch them into this folder"
            )
        return [folder / name for name in listed]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        names = ", ".join(path.name for path in found[:5])
        raise CheckpointError(f"{folder}: several safetensors files ({names}) but no {INDEX}")
    pickles = [path.name for end in PICKLE_ENDS for path in sorted(folder.glob(f"*{end}"))]
    remedy = f"{pickles[0]} {NOT_READ}" if pickles else f"{SINGLE} or {INDEX} is required"
    raise CheckpointError(f"{folder}: no safetensors file; {remedy}")


def _weight_map(index: Path) -> dict[str, str]:
    mapping = read_json_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise CheckpointError(f"{index}: weight_map is missing or empty; fetch the file again")
    for name, file in mapping.items():
        # A file name from a stranger must not lead out of the folder.
        if not isinstance(file, str) or not _is_file_name(file):
            raise CheckpointError(
                f"{index}: weight_map[{shown(name)}] is {shown(file)}; "
                "a plain file name is required"
            )
    return mapping


def _is_file_name(name: str) -> bool:
    """Whether a file may be called `name` anywhere: one part of a path, of printable letters."""
    return (
        Path(name).name == name
        and name not in (".", "..")
        and name.isprintable()
        and len(name.encode()) <= _MAX_FILE_NAME_BYTES
    )


def _read_tensors(folder: Path, raw: Collection[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for path in weight_files(folder):
        part = read_safetensors(path, raw=raw)
        if twice := tensors.keys() & part.tensors.keys():
            raise CheckpointError(
                f"{path}: tensor {shown(min(twice))} is in another file as well; the files are "
                "not of one model, fetch them again"
            )
        tensors.update(part.tensors)
        metadata.update(part.metadata)
    if not (folder / SINGLE).is_file() and (folder / INDEX).is_file():
        for name, file in _weight_map(folder / INDEX).items():
            if name not in tensors:
                raise CheckpointError(
                    f"{folder / file}: tensor {shown(name)} is missing, which {INDEX} says is there"
                )
    return tensors, metadata


def _prefixed(tensors: Mapping[str, Tensor], architecture: Architecture) -> Mapping[str, Tensor]:
    """Names with their prefix, which folders saved from a model without its head leave out."""
    prefix, head = architecture.hf_prefix, architecture.to_folder("lm_head.weight")
    if any(name.startswith(prefix) for name in tensors):
        return tensors
    names = {
        name: name if name.startswith(("lm_head.", head)) else prefix + name for name in tensors
    }
    return {names[name]: tensor.renamed(names[name]) for name, tensor in tensors.items()}


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; names of special tokens it lacks from special_tokens_map.json."""
    config = read_json_object(folder / "tokenizer_config.json", required=False)
    return read_json_object(folder / "special_tokens_map.json", required=False) | config


def _chat_templates(folder: Path, stated: object) -> dict[str, str]:
    """Templates by name; files win over tokenizer_config.json, as in transformers."""
    templates: dict[str, str] = {}
    if isinstance(stated, str):
        templates["default"] = stated
    elif isinstance(stated, list):
        for entry in stated:
            name = entry.get("name") if isinstance(entry, dict) else None
            template = entry.get("template") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not isinstance(template, str):
                raise CheckpointError(
                    f"{folder / 'tokenizer_config.json'}: chat_template must be a string or a list "
                    "of {name, template}"
                )
            templates[name] = template
    elif stated is not None:
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'}: chat_template is {type(stated).__name__}; "
            "a string or a list is required"
        )
    for name in _TEMPLATE_FOLDERS:
        for path in sorted((folder / name).glob("*.jinja")):
            templates[path.stem] = read_text(path)
    if is_named(folder / "chat_template.jinja"):
        templates["default"] = read_text(folder / "chat_template.jinja")
    elif "default" not in templates:
        # Where older versions kept the template of a model that reads images as well.
        stated = read_json_object(folder / "chat_template.json", required=False)
        if isinstance(template := stated.get("chat_template"), str):
            templates["default"] = template
    return templates


def _end_ids(
    folder: Path,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer: TokenizerData,
) -> tuple[int, ...]:
    """Every eos id config.json and generation_config.json name, ascending.

    Where neither names one, the eos_token of the tokenizer is looked up.
    """
    ids: set[int] = set()
    for file, source in (("config.json", config), ("generation_config.json", generation)):
        value = source.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if token is None:
                continue
            if not isinstance(token, int) or isinstance(token, bool):
                raise CheckpointError(
                    f"{folder / file}: eos_token_id is {shown(value)}; an id or a list of ids"
                )
            ids.add(token)
    vocab_size = config.get("vocab_size")
    if isinstance(vocab_size, int):
        ids = {token for token in ids if 0 <= token < vocab_size}
    if not ids:
        name = token_text(tokenizer.config.get("eos_token"))
        if name is not None and tokenizer.json_path is not None:
            ids = read_tokenizer_json(tokenizer.json_path).added_ids(name)
    return tuple(sorted(ids))
