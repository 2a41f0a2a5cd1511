"""Hunyuan, dense: norms behind the rotation, a base that alpha has grown, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.models.blocks import RopeNormAttention
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf_metadata import metadata_of_config
from tests.tiny import tiny_checkpoint, tiny_config
from tests.tiny_families.hunyuan_v1_dense import ALPHA

FAMILY = "hunyuan_v1_dense"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def test_a_gguf_file_has_the_base_that_alpha_has_grown() -> None:
    """llama.cpp's own number for the published models, of heads of 128 dimensions."""
    config = tiny_config(FAMILY, head_dim=128, rope_scaling=ALPHA)
    entries = metadata_of_config(config, ARCHITECTURES[FAMILY]).entries
    assert entries["hunyuan-dense.rope.freq_base"] == pytest.approx(11158839.9251, rel=1e-7)
    assert "hunyuan-dense.rope.scaling.type" not in entries


def test_heads_are_normed_behind_the_rotation(reference: Ops) -> None:
    """Goldens are transformers'; weights of the norms differ by dimension, so the order counts."""
    model = load_model(tiny_checkpoint(FAMILY), reference)
    attention = model._layers[0].attention  # type: ignore[attr-defined]
    assert isinstance(attention, RopeNormAttention)
    assert attention.q_norm is attention.k_norm is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_cla": True}, "use_cla = True"),
        ({"use_qk_norm": False}, "use_qk_norm = False"),
        ({"attention_head_dim": 64}, "attention_head_dim = 64"),
        ({"num_experts": 8}, "num_experts = 8"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"rope_scaling": {**ALPHA, "alpha": -1.0}}, r"rope_scaling\.alpha is -1"),
        ({"rope_scaling": {**ALPHA, "beta": 1}}, r"rope_scaling\.beta = 1"),
        ({"rope_scaling": ALPHA, "head_dim": 2}, "an alpha and 2 dimensions"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    change: dict[str, Any], words: str, reference: Ops
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(FAMILY), **change})
        load_model(tiny_checkpoint(FAMILY, **change), reference)
