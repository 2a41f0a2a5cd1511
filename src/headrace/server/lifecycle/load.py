"""The text side of a model: tokenizer, chat template, names and fingerprint, without its weights.

Loaded in the server's process while the engine's process loads the weights.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace import __version__
from headrace.answer_formats.formats import AnswerFormat
from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.config.text_file import read_text_file
from headrace.conversation.reading import answer_format
from headrace.embedded import EMBEDDED_NAME
from headrace.engine.messages import EngineInfo
from headrace.engine.sampling.defaults import SamplingDefaults, sampling_defaults
from headrace.server.model.templates import chosen_template, template_defaults
from headrace.server.prompts.prompt import TAKEN
from headrace.text import ChatTemplate, Tokenizer, tokenizer_or_none
from headrace.text.template_limits import MAX_SOURCE_BYTES
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import resolve_model
from headrace.weights.tensors.tensor import Tensor

# Bytes of each tensor that enter the fingerprint: enough to tell weights apart, and one page read.
_SAMPLE_BYTES = 64


@dataclass(frozen=True)
class TextSide:
    """The server's own knowledge of the model: names, tokenizer and chat template."""

    names: tuple[str, ...]
    root: str
    file_format: str
    file_type: object
    """The number of its mix of codecs, as a GGUF file has it (general.file_type); None without."""
    num_parameters: int
    """Of all tensors."""
    tokenizer: Tokenizer
    template: ChatTemplate | None
    """None for a model without one."""
    template_defaults: dict[str, Any]
    trust_request_template: bool
    excludes_unused_tools: bool
    left_out: str
    """Modules of the files that are not part of the model, in words; "" for a whole one."""
    answer_format: AnswerFormat
    """How the model writes reasoning and tool calls."""
    sampling_defaults: SamplingDefaults
    """The values of sampling fields that a request leaves out."""
    weights_digest: bytes
    """Digest of the config and samples of the weights."""
    phases_s: dict[str, float]
    """Seconds that parts of loading took."""


def load_text(engine_config: EngineConfig, server_config: ServerConfig) -> TextSide:
    """Open the checkpoint and make what text needs; raises HeadraceError where that fails."""
    begun_s = time.perf_counter()
    path = resolve_model(engine_config.model)
    checkpoint = open_checkpoint(path)
    opened_s = time.perf_counter()
    tokenizer = tokenizer_or_none(
        checkpoint.tokenizer, checkpoint.eos_token_ids, pre=engine_config.tokenizer_pre
    )
    template = _template(checkpoint, tokenizer, server_config)
    done_s = time.perf_counter()
    return TextSide(
        names=server_config.served_model_name or default_names(engine_config.model, path),
        root=_last_part(path),
        file_format=checkpoint.format,
        file_type=checkpoint.metadata.get("general.file_type"),
        num_parameters=sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values()),
        tokenizer=tokenizer,
        template=template,
        template_defaults=template_defaults(server_config.default_chat_template_kwargs, TAKEN),
        trust_request_template=server_config.trust_request_chat_template,
        excludes_unused_tools=server_config.exclude_tools_when_tool_choice_none,
        left_out=checkpoint.left_out_words,
        answer_format=answer_format(
            template,
            calls=server_config.tool_call_parser,
            reasoning=server_config.reasoning_parser,
        ),
        sampling_defaults=sampling_defaults(checkpoint, engine_config.generation_config),
        weights_digest=weights_digest(checkpoint, engine_config.tokenizer_pre or ""),
        phases_s={"open": opened_s - begun_s, "tokenizer": done_s - opened_s},
    )


def default_names(model: str, path: Path) -> tuple[str, ...]:
    """What a model is called where nobody said: `model` as configured, `path` where it lies.

    The model of the package also has a name that stays when a newly trained file takes its place.
    """
    name = default_name(path)
    return (name,) if model or name == EMBEDDED_NAME else (EMBEDDED_NAME, name)


def default_name(path: Path) -> str:
    """The file's or folder's name, without ".gguf"."""
    name = _last_part(path)
    return name.removesuffix(".gguf") or name


def _last_part(path: Path) -> str:
    """The name of a file or folder; where it lies is nobody's business but this machine's.

    Links keep their own name: what they lead to may be named by a digest, as in the hub's cache.
    """
    return path.name if path.name not in ("", "..") else path.resolve().name


def _template(
    checkpoint: Checkpoint, tokenizer: Tokenizer, config: ServerConfig
) -> ChatTemplate | None:
    """The model's chat templates, or the one in a file in their place."""
    templates = dict(checkpoint.chat_templates)
    if config.chat_template is not None:
        file = Path(config.chat_template)
        templates = {"default": read_text_file(file, "--chat-template", MAX_SOURCE_BYTES)}
    templates = chosen_template(templates, config.chat_template_name)
    if not templates:
        return None
    return ChatTemplate.for_tokenizer(templates, tokenizer)


def weights_digest(checkpoint: Checkpoint, tokenizer_pre: str = "") -> bytes:
    """A digest of config, of how text is cut, and of tensors: name, shape, codec, some bytes."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(tokenizer_pre.encode() + b"\0")
    digest.update(msgspec.json.encode(_plain(checkpoint.config), order="deterministic"))
    for name in sorted(checkpoint.tensors):
        tensor = checkpoint.tensors[name]
        digest.update(f"{name} {tensor.shape} {tensor.codec.name}".encode())
        digest.update(_sample(tensor))
    return digest.digest()


def _sample(tensor: Tensor) -> bytes:
    flat = tensor.data.reshape(-1)
    middle = max(0, (flat.size - _SAMPLE_BYTES) // 2)
    return flat[middle : middle + _SAMPLE_BYTES].tobytes()


def fingerprint(weights: bytes, info: EngineInfo, defaults: SamplingDefaults) -> str:
    """`fp_` and 12 digits that change with anything that changes results of a seeded request."""
    facts = (
        __version__,
        info.model_type,
        info.backend,
        info.cpu_level,
        info.kv_cache_dtype,
        str(info.max_model_len),
        *(f"{name} {value!r}" for name, value in sorted(defaults.items())),
    )
    return "fp_" + hashlib.blake2b(b"\0".join(_encoded(facts)) + weights, digest_size=6).hexdigest()


def _encoded(facts: Iterable[str]) -> list[bytes]:
    return [fact.encode() for fact in facts]


def _plain(value: object) -> object:
    """Config values as JSON can hold them: arrays of GGUF files become lists."""
    return msgspec.to_builtins(value, enc_hook=lambda other: other.tolist(), str_keys=True)
