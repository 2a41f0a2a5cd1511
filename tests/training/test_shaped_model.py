"""The mixture Q4_K_M of the shaped model is llama.cpp's."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_q4_k_m_is_llama_cpps_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    shaped_model = importlib.import_module("shaped_model")
    shape = shaped_model.Shape(256, 28, 2, 1, 128, 512, 300)
    kinds = {
        tensor.name: tensor.codec.name
        for tensor in shaped_model.tensors(shape, shaped_model.mixture("Q4_K_M"), untied=True)
        if len(tensor.shape) == 2
    }
    # Both eighths of 28 layers, and every third between: use_more_bits of llama-quant.cpp.
    fine = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    expected = {"token_embd.weight", "output.weight"}
    expected |= {f"blk.{i}.{name}.weight" for i in fine for name in ("attn_v", "ffn_down")}
    assert {name for name, kind in kinds.items() if kind == "Q6_K"} == expected
    assert set(kinds.values()) == {"Q4_K", "Q6_K"} and len(kinds) == 2 + 7 * 28
