"""Tiny models with random heads behind them, and streams of such a pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.models import Model, load_model, read_config
from headrace.models.heads import (
    DraftHead,
    load_dflash,
    load_eagle3,
    load_medusa,
    load_mtp,
    open_mtp_folder,
)
from headrace.models.heads.mtp import mtp_checkpoint
from headrace.ops.interface import Ops
from headrace.weights.hugging_face.head_folder import open_head_folder
from tests.engine.mock import real_ops
from tests.engine.streams import TINY, Case, check_streams
from tests.tiny import tiny_checkpoint
from tests.tiny_heads import (
    dflash_config,
    eagle3_config,
    medusa_weights,
    write_dflash,
    write_eagle3,
    write_medusa,
    write_mtp_folder,
)
from tests.tiny_heads import mtp_checkpoint as tiny_mtp


def check_head(
    backend: str,
    family: str,
    codec: str,
    kv: str,
    folder: Path,
    requests: list[Case],
    *,
    short: Sequence[bool],
) -> None:
    """Streams of a model with a head give what each alone gives without one. short: as of
    `check_streams`."""
    ops = real_ops(backend)
    model, head = model_with_head(ops, family, codec, folder)
    check_streams(model, ops, requests, {"kv_cache_dtype": kv}, head, short=short)


def model_with_head(
    ops: Ops, family: str, codec: str, place: Path, **shape: int
) -> tuple[Model, DraftHead]:
    """A tiny model and a random head for it. family: with layers for further tokens, or the kind of
    head of a Qwen3."""
    if family == "eagle3":
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        folder = write_eagle3(place, eagle3_config(dict(checkpoint.config)))
        head: DraftHead = load_eagle3(open_head_folder(folder), model, ops)
    elif family.startswith("dflash"):
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 20}
        stated = dflash_config(dict(checkpoint.config), **(kinds if "window" in family else {}))
        head = load_dflash(open_head_folder(write_dflash(place, stated)), model, ops)
    elif family == "mtp-apart":
        both = tiny_mtp("qwen3", codec, logit_scale=2.0, **shape)
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        path = write_mtp_folder(place, both, offsets=np.arange(144, dtype=np.int64))
        opened = open_mtp_folder(path, checkpoint, model.config)
        layers_of = opened.folder.checkpoint
        head = load_mtp(layers_of, model, ops, opened.config, opened.ids)
    elif family == "medusa":
        model = load_model(tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape), ops)
        weights = medusa_weights(model.config.hidden_size, model.vocab_size, 4, 1)
        folder = write_medusa(place, {"medusa_num_heads": 4}, weights)
        head = load_medusa(open_head_folder(folder), model, ops)
    else:
        layers = 3 if family in ("mimo_v2_flash", "step3p7") else 1
        shape = TINY.get(family, {}) | shape
        checkpoint = tiny_mtp(family, codec, count=layers, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        head = load_mtp(mtp_checkpoint(checkpoint, read_config(checkpoint)), model, ops)
    return model, head
