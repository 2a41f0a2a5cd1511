"""What is known around an engine: its model's shape and files, tokenizers, the hardware."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.catalog import Catalog
from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError, FetchError, HeadraceError
from headrace.plan.header import bytes_by_codec
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.subject import ModelFiles
from headrace.plan.machine.hardware_memory import THIS
from headrace.plan.model.find_model import shape_named
from headrace.plan.model.model_shape import ModelShape
from headrace.text.tokenizer import Tokenizer, load_tokenizer
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import locate_model

_MAX_TEMPLATE_BYTES = 2**20
_MAX_EVALUATION_BYTES = 2**20
_SUFFIXES = ("-instruct", "-it", "-chat", "-gguf", "-awq", "-gptq", "-fp8")


@dataclass(frozen=True, kw_only=True)
class LintOptions:
    """Options of the command. environ: where models are looked for."""

    catalog: Catalog
    environ: Mapping[str, str]
    hardware: str | None = None
    count: int = 1
    model: str | None = None
    tokenizer: str | None = None
    quantization: str | None = None
    evaluation: Path | None = None


@dataclass
class _Known:
    fields: dict[str, Any] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)


def known_of(given: LintOptions, engine: EngineSetup | None) -> dict[str, Any]:
    """Fields of a Subject. What an option names and is not there raises; what a config names and is
    not on this disk is told in `lacks`."""
    known = _Known()
    catalog = given.catalog
    if given.hardware == THIS:
        known.fields["hardware_name"] = THIS
        known.lacks["hardware"] = (
            "hardware of the catalog: only the memory of this machine is known"
        )
    elif given.hardware is not None:
        row = catalog.hardware[given.hardware]
        count = given.count
        if row.made_of is not None:
            count, row = count * (row.count or 1), catalog.hardware[row.made_of]
        known.fields |= {"hardware": row, "hardware_name": row.id, "devices": count}
    if given.quantization is not None:
        known.fields["quantization"] = catalog.quantizations[given.quantization].id
    if given.evaluation is not None:
        known.fields["evaluation"] = _evaluation(given.evaluation)
    name = given.model or (engine.model.value if engine and engine.model else None)
    if name is not None:
        _model(known, given, name, strict=given.model is not None)
    if engine is not None and engine.draft_model is not None:
        try:
            known.fields["draft_shape"] = _shape(catalog, engine.draft_model.value, given.environ)
        except HeadraceError as error:
            known.lacks["draft_shape"] = f"the draft model's shape: {error}"
    if engine is not None and engine.tokenizer is not None:
        try:
            files = model_files(engine.tokenizer.value, given.environ)
            known.fields["other_tokenizer"] = files.tokenizer
        except HeadraceError as error:
            known.lacks["other_tokenizer"] = f"the configured tokenizer: {error}"
    if engine is not None and engine.chat_template is not None:
        _template(known, engine)
    if given.tokenizer is not None:
        tokenizer = tokenizer_named(given.tokenizer, given.environ)
        known.fields |= {"tokenizer": tokenizer, "tokenizer_name": given.tokenizer}
    elif known.fields.get("files") is not None and known.fields["files"].tokenizer is not None:
        known.fields["tokenizer"] = known.fields["files"].tokenizer
        known.fields["tokenizer_name"] = known.fields["files"].name
    return {"catalog": catalog, "lacks": known.lacks, **known.fields}


def tokenizer_named(name: str, environ: Mapping[str, str]) -> Tokenizer:
    """Of a checkpoint, or of a tokenizer.json or the folder that holds one. Raises as reading."""
    from headrace.weights.tokenizer.data import TokenizerData

    path = Path(name).expanduser()
    json_path = path / "tokenizer.json" if path.is_dir() else path
    if json_path.suffix == ".json" and json_path.is_file():
        return load_tokenizer(TokenizerData("tokenizer.json", json_path=json_path))
    files = model_files(name, environ)
    if files.tokenizer is None:
        raise ConfigError(f"--tokenizer {name} has no tokenizer; name a model that has one")
    return files.tokenizer


def model_files(name: str, environ: Mapping[str, str]) -> ModelFiles:
    """Of a model on this disk. Raises CheckpointError or FetchError where there is none."""
    checkpoint = open_checkpoint(locate_model(name, environ).path)
    tokenizer = None
    if checkpoint.tokenizer.kind != "none":
        tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.eos_token_ids)
    config = checkpoint.config.get("quantization_config")
    return ModelFiles(
        name=name,
        format=checkpoint.format,
        templates=dict(checkpoint.chat_templates),
        tokenizer=tokenizer,
        quantization=config if isinstance(config, dict) else {},
        imatrix=str(checkpoint.metadata.get("quantize.imatrix.file", "")),
        kinds=bytes_by_codec(checkpoint.tensors.values()),
    )


def _model(known: _Known, given: LintOptions, name: str, *, strict: bool) -> None:
    try:
        known.fields["shape"] = _shape(given.catalog, name, given.environ)
    except HeadraceError as error:
        if strict:
            raise
        known.lacks["shape"] = f"the model's shape: {error}"
    try:
        known.fields["files"] = model_files(name, given.environ)
    except FetchError:
        known.lacks["files"] = f"the model's files on this disk, where {name} is not: add --model"
        known.lacks["tokenizer"] = f"a tokenizer: add --tokenizer; {name} is not on this disk"
    except (HeadraceError, OSError) as error:
        known.lacks["files"] = f"the model's files on this disk: {error}"
        known.lacks["tokenizer"] = f"a tokenizer: add --tokenizer ({error})"


def _shape(catalog: Catalog, name: str, environ: Mapping[str, str]) -> ModelShape:
    """Also of a hub name that the catalog has under another: fine-tunes have its shape."""
    plain = name.rpartition("/")[2].partition(":")[0].lower()
    tried = [name, plain]
    for suffix in _SUFFIXES:
        if plain.endswith(suffix):
            plain = plain.removesuffix(suffix)
            tried.append(plain)
    for one in tried[1:]:
        if catalog.models.find(one) is not None and not Path(name).exists():
            return shape_named(catalog, one, environ)
    return shape_named(catalog, name, environ)


def _template(known: _Known, engine: EngineSetup) -> None:
    assert engine.chat_template is not None
    path = Path(engine.chat_template.value).expanduser()
    try:
        known.fields["template"] = read_text_file(path, "--chat-template", _MAX_TEMPLATE_BYTES)
    except ConfigError as error:
        known.lacks["template"] = f"the configured chat template: {error}"


def _evaluation(path: Path) -> str:
    """Raises ConfigError for what `headrace eval --json` did not print."""
    text = read_text_file(path, "--evaluation", _MAX_EVALUATION_BYTES)
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--evaluation {path} is not JSON: {error}") from error
    if not isinstance(loaded, dict) or not {"perplexity", "kl_mean"} & loaded.keys():
        raise ConfigError(
            f"--evaluation {path} has neither perplexity nor kl_mean; name a file with what "
            "`headrace eval perplexity` or `eval kl` printed with --json"
        )
    return str(path)
