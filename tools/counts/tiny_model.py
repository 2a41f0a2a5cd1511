"""A random checkpoint of any config that is read: a folder on disk, opened and run like any other.

Names and shapes are those that the family's model takes from a loader; the parity tests hold these
names against transformers' own. The folder is then written as folders of the architecture are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace import LLM, SamplingParams
from headrace.models import FAMILIES, read_config
from headrace.models.loader import Loader
from headrace.models.loading.reader import HEAD
from headrace.ops import make_ops
from headrace.weights.architectures import known_architecture
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.codecs import F32
from headrace.weights.model_config.text_part import text_config
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.expert_stacks import Stacks
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
from headrace.weights.tokenizer.data import TokenizerData
from tests.tiny import CHAT_TEMPLATE, tokenizer_config, tokenizer_json

NEW_TOKENS = 8
PROMPT = tuple(range(40, 64))
MAX_MODEL_LEN = 64


def checkpoint_of(config: Mapping[str, Any], tensors: dict[str, Tensor]) -> Checkpoint:
    """A checkpoint of a folder's config with these tensors."""
    text = text_config(config)
    stored = known_architecture(text.get("model_type"))
    return Checkpoint(
        path=Path("tiny"),
        format="safetensors",
        config=text,
        conventions=Conventions() if stored is None else stored.hf,
        tensors=tensors,
        tokenizer=TokenizerData("none"),
    )


class DrawingLoader(Loader):
    """A loader whose checkpoint grows by each tensor that it is asked for."""

    def __init__(self, checkpoint: Checkpoint, tensors: dict[str, Tensor], tied: bool) -> None:
        super().__init__(checkpoint, make_ops("reference"))
        self._drawn = tensors
        self._tied = tied

    def has(self, name: str) -> bool:
        """Only what every model has: optional tensors stay away."""
        return name in self._drawn or (name == HEAD and not self._tied)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, drawn where it was not yet."""
        if name not in self._drawn:
            draw = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
            values = 1 + 0.1 * draw if len(shape) == 1 else draw * (3.0 / shape[-1]) ** 0.5
            rows = F32.encode(values.astype(np.float32).reshape(-1, shape[-1]))
            self._drawn[name] = Tensor(name, shape, F32, rows)
        return super().tensor(name, *shape)


def draw_tensors(config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Random tensors, all that a model of this config has."""
    tensors: dict[str, Tensor] = {}
    checkpoint = checkpoint_of(config, tensors)
    family = FAMILIES[str(checkpoint.config["model_type"])]
    read = read_config(checkpoint)
    loader = DrawingLoader(checkpoint, tensors, tied=read.tied is not False)
    family(read, make_ops("reference"), loader, max_positions=MAX_MODEL_LEN)
    loader.finish()
    return tensors


def write_folder(config: Mapping[str, Any], folder: Path) -> Path:
    """A folder with this config.json, random weights and the tokenizer of bytes."""
    tensors = draw_tensors(config)
    stored = known_architecture(text_config(config).get("model_type"))
    stacks = None if stored is None else Stacks.of_folder(stored)
    sources: list[TensorSource] = []
    for tensor in tensors.values():
        source = _source(tensor)
        if stacks is not None and stacks.takes(tensor.name):
            stacks.add(source)
        else:
            sources.append(source)
    sources += [] if stacks is None else stacks.sources()
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "config.json": dict(config),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {**tokenizer_config(), "chat_template": CHAT_TEMPLATE},
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    write_safetensors_file(folder / "model.safetensors", sources)
    return folder


def _source(tensor: Tensor) -> TensorSource:
    return TensorSource(tensor.name, tensor.shape, tensor.codec, lambda: [tensor.data])


def run(folder: Path) -> list[int]:
    """NEW_TOKENS greedy tokens of the model in a folder."""
    llm = LLM(folder, max_model_len=MAX_MODEL_LEN, kv_cache_memory_bytes=16 << 20)
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    return list(llm.generate([list(PROMPT)], params, progress=False)[0].token_ids)
