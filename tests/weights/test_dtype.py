"""--dtype: what is held in another kind, what stays, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from headrace import LLM, SamplingParams
from headrace.config.settings import EngineConfig
from headrace.engine.load import load_engine
from headrace.errors import ConfigError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.codecs import BF16, F16, F32, get_codec
from headrace.weights.dtype import Dtype, held_as
from headrace.weights.tensors.tensor import Tensor
from tests.engine.mock import real_ops
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, write_tiny_gguf

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
NAMES = {"bfloat16": BF16, "float16": F16, "half": F16, "float32": F32, "float": F32}


def logits(checkpoint: object, backend: str = "cpu") -> np.ndarray:
    ops = real_ops(backend)
    return Session(load_model(checkpoint, ops), ops).feed(prompt(2)[:9])  # type: ignore[arg-type]


def test_the_setting_has_the_names_of_vllm() -> None:
    assert get_args(Dtype) == ("auto", *NAMES)
    assert EngineConfig().dtype == "auto"
    whole = tiny_checkpoint()
    assert held_as(whole, "auto") is whole


@pytest.mark.parametrize("stored", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("dtype", NAMES)
def test_matrices_have_the_nearest_values_and_vectors_their_own(stored: str, dtype: Dtype) -> None:
    checkpoint = tiny_checkpoint("qwen3_moe", stored)
    held, codec = held_as(checkpoint, dtype).tensors, NAMES[dtype]
    assert held.keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.shape) < 2 or name.endswith("mlp.gate.weight"):
            assert held[name] is tensor
            continue
        assert held[name].codec is codec and held[name].shape == tensor.shape
        values = tensor.to_f32()
        assert np.array_equal(held[name].to_f32(), codec.decode(codec.encode(values)))
        assert held[name].nbytes == held[name].data.nbytes
        order = np.arange(len(tensor.data), dtype=np.int32)[::-1].copy()
        assert np.array_equal(held[name].select_rows(order).to_f32(), held[name].to_f32()[::-1])


@pytest.mark.parametrize(("dtype", "codec"), [("bfloat16", "BF16"), ("half", "F16")])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_is_the_model_that_a_file_of_that_kind_holds(
    dtype: Dtype, codec: str, backend: str
) -> None:
    wide = held_as(tiny_checkpoint("llama", "F32"), dtype)
    assert np.array_equal(logits(wide, backend), logits(tiny_checkpoint("llama", codec), backend))


def test_wider_weights_are_those_of_the_file_with_operands_that_are_not_rounded() -> None:
    """F32 of BF16 values: no weight changes, and the product is that of float32."""
    checkpoint = tiny_checkpoint("llama", "BF16")
    same = {name: Tensor(name, t.shape, F32, F32.encode(t.to_f32().reshape(-1, t.shape[-1])))
            for name, t in checkpoint.tensors.items()}  # fmt: skip
    written = replace(checkpoint, tensors=same)
    assert np.array_equal(logits(held_as(checkpoint, "float32")), logits(written))
    assert not np.array_equal(logits(checkpoint), logits(written))


def test_the_engine_holds_what_is_asked_and_sizes_by_it(tmp_path: Path) -> None:
    path = str(write_tiny_gguf(tmp_path, "llama", "F32"))
    facts = {}
    for dtype in ("auto", "bfloat16"):
        core, _ = load_engine(
            EngineConfig(model=path, backend="reference", num_gpu_blocks_override=8, dtype=dtype)  # type: ignore[arg-type]
        )
        facts[dtype] = core.info()
    assert [facts[one].weight_codec for one in facts] == ["F32", "BF16"]
    assert [facts[one].kv_cache_dtype for one in facts] == ["f32", "bf16"]
    assert facts["bfloat16"].weight_bytes < 0.6 * facts["auto"].weight_bytes
    assert LLM(path, backend="reference", dtype="half").generate(
        "a", SamplingParams(max_tokens=1), progress=False
    )


def test_what_cannot_be_held_is_refused_with_a_remedy() -> None:
    checkpoint = tiny_checkpoint("llama", "BF16")
    tensor = checkpoint.tensors[Q_PROJ]
    values = tensor.to_f32()
    values[3, 4] = 1e5
    large = Tensor(Q_PROJ, tensor.shape, BF16, get_codec("BF16").encode(values))
    held = held_as(replace(checkpoint, tensors={**checkpoint.tensors, Q_PROJ: large}), "float16")
    with pytest.raises(ConfigError, match=rf"--dtype float16: tensor {Q_PROJ}.*--dtype bfloat16"):
        load_model(held, make_ops("reference"))
    with pytest.raises(ConfigError, match=r"all matrices of .* are \(Q8_0\): omit it"):
        held_as(tiny_checkpoint("llama", "Q8_0"), "bfloat16")
