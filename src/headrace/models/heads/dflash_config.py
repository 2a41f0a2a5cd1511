"""The config of a DFlash head, in z-lab's words or in those of `speculators`.

Sources: z-lab's dflash/model.py for keys and the numbering of layers (`target_layer_ids`: l is what
layer l gives, the last one's behind the final norm); speculators' models/dflash for its keys
(`aux_hidden_state_layer_ids`: n is what the first n layers give); vLLM's qwen3_dflash.py for which
layers are causal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import UnsupportedModelError
from headrace.models.config import DecoderConfig, read_attention, read_layer_windows
from headrace.models.model import NORMED, Model
from headrace.models.registry import MAX_HEAD_DIM, MAX_LAYERS
from headrace.models.rope import RopeConfig
from headrace.weights.hugging_face.head_folder import HeadFolder
from headrace.weights.model_config.config_reader import ConfigReader

MAX_BLOCK = 64
"""Published blocks have 7 to 16 tokens; the bound is for hostile configs, and that of drafts of a
row."""
MAX_FEATURES = 64
"""Layers whose features are read: published heads have 5 or 6."""


@dataclass(frozen=True)
class DflashConfig:
    """The config of a head."""

    decoder: DecoderConfig
    """Of its layers."""
    block_size: int
    """Tokens of a block, the last one of the text included."""
    mask_id: int
    """Whose embedding stands for a token that is to come."""
    feature_layers: tuple[int, ...]
    """As of `Model.forward_with_features`."""
    draft_vocab_size: int
    target_hidden_size: int
    causal: tuple[bool, ...]
    """Of each layer, whether a token of a block sees only what is before it."""
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    """0 means no cap."""


def read_dflash(folder: HeadFolder, target: Model) -> DflashConfig:
    """The config of a head's folder, of z-lab's or of `speculators`.

    Raises UnsupportedModelError for a key or value that is not implemented.
    """
    stated = dict(folder.config)
    for key in ("transformer_layer_config", "dflash_config"):
        section = stated.pop(key, None)
        if section is not None and not isinstance(section, dict):
            raise UnsupportedModelError(f"{folder.path}: config key {key} has to be an object")
        # What is said of the block stands in a section or beside the rest, what the layers are in
        # one or beside it.
        stated = {**(section or {}), **stated}
    reader = ConfigReader(stated)
    reader.unused(*_OF_NO_EFFECT)
    reader.expect("model_type", str, ("qwen3", "dflash", "speculator_model"), "qwen3")
    reader.expect("projector_type", str, ("dflash",), "dflash")
    reader.expect("sample_from_anchor", bool, (False,), False)
    reader.expect("shift_label", bool, (False,), False)
    reader.expect("use_aux_hidden_state", bool, (True,), True)
    reader.expect("use_swa", bool, (False,), False)
    reader.expect("attention_sink_bias", bool, (False,), False)
    reader.expect("is_neox_style", bool, (True,), True)
    decoder = _read_layers(reader)
    layers = target.config.num_layers
    reader.expect("num_target_layers", int, (layers,), layers)
    softcap = reader.get("final_logit_softcapping", float, 0.0)
    if not 0 <= softcap < float("inf"):
        reader.refuse("final_logit_softcapping", softcap, "finite numbers from 0 on, or null")
    config = DflashConfig(
        decoder=decoder,
        block_size=reader.size("block_size", 16, most=MAX_BLOCK),
        mask_id=reader.get("mask_token_id", int, -1),
        feature_layers=_feature_layers(reader, layers),
        draft_vocab_size=reader.size("draft_vocab_size", decoder.vocab_size or target.vocab_size),
        target_hidden_size=reader.size("target_hidden_size", target.config.hidden_size),
        causal=_read_causal(reader, decoder.windows),
        embedding_scale=reader.positive("input_embedding_scale", 1.0),
        logit_scale=reader.positive("output_multiplier", 1.0),
        logit_softcap=softcap,
    )
    if config.block_size < 2:
        reader.refuse("block_size", config.block_size, f"2 to {MAX_BLOCK}")
    if not 0 <= config.mask_id < target.vocab_size:
        reader.refuse("mask_token_id", config.mask_id, f"an id below {target.vocab_size}")
    reader.finish()
    return config


_OF_NO_EFFECT = (
    "architectures", "speculators_model_type", "speculators_version", "speculators_config",
    "auto_map", "has_no_defaults_at_init", "torch_dtype", "dtype", "use_sliding_window",
    "tie_word_embeddings", "max_window_layers", "pure_draft_prefix_len", "emb_dim",
    "gru_hidden_dim", "lambda_base_start", "lambda_base_decay_ratio", "auf",
)  # fmt: skip
"""Keys that say where a head is from, how it was trained, or what its kind does not have."""


def _read_layers(reader: ConfigReader) -> DecoderConfig:
    """Qwen3's layers, some of which may have windows."""
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    layers = reader.size("num_hidden_layers", most=MAX_LAYERS)
    head_dim = reader.size("head_dim", max(1, hidden // heads), most=MAX_HEAD_DIM)
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    window = reader.get("swa_window_size", int, reader.get("sliding_window", int, 0))
    if not 0 <= window < 1 << 30:
        reader.refuse("sliding_window", window, f"1 to {(1 << 30) - 1}")
    windows = read_layer_windows(reader, window, (0,) * layers)
    return DecoderConfig(
        model_type="dflash",
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=layers,
        attention=read_attention(reader, heads, head_dim),
        rope=RopeConfig.read(reader),
        max_positions=reader.size("max_position_embeddings", 32768),
        norm_eps=reader.positive("rms_norm_eps", 1e-6),
        mlp_bias=False,
        attention_bias=reader.optional("attention_bias", bool),
        windows=windows if any(windows) else (),
    )


def _read_causal(reader: ConfigReader, windows: Sequence[int]) -> tuple[bool, ...]:
    layers = reader.size("num_hidden_layers")
    stated = reader.optional("is_causal", bool)
    other = reader.optional("causal", bool)
    stated = other if stated is None else stated
    key = "sliding_window_non_causal"
    see_ahead = reader.optional(key, bool)
    if see_ahead is None and reader.raw("speculators_model_type") is None:
        see_ahead = False  # z-lab's do not say it; of speculators' there were both before they did
    if windows and stated is False:
        reader.refuse("is_causal", stated, "causal layers with a window")
    if windows and see_ahead is not False:
        reader.refuse(key, see_ahead, "false, which says that layers with a window are causal")
    if stated is not None:
        return (stated,) * layers
    return tuple(map(bool, windows)) or (False,) * layers


def _feature_layers(reader: ConfigReader, layers: int) -> tuple[int, ...]:
    """In our numbers: n for what the first n layers give."""
    theirs, key = reader.raw("target_layer_ids"), "target_layer_ids"
    ours: Any = reader.raw("aux_hidden_state_layer_ids")
    if theirs is None:
        theirs, key = ours, "aux_hidden_state_layer_ids"
    is_list = isinstance(theirs, list) and 0 < len(theirs) <= MAX_FEATURES
    if not is_list or any(type(layer) is not int for layer in theirs):
        reader.refuse(key, theirs, f"lists of 1 to {MAX_FEATURES} numbers of layers")
    more = 1 if key == "target_layer_ids" else 0
    found = [layer + more for layer in theirs]
    if any(not more <= layer <= layers for layer in found):
        reader.refuse(key, theirs, f"layers of the model, of which there are {layers}")
    return tuple(NORMED if more and layer == layers else layer for layer in found)
