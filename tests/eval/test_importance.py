"""Importance that is measured: sums of what truly enters the matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.eval.importance import measured_importance
from headrace.eval.windows import WindowRunner
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.conversion.to_gguf import write_gguf
from headrace.weights.gguf.file import read_gguf
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.importance import ImportanceFile
from tests.tiny import tiny_checkpoint

WINDOWS = [[(7 * at + start) % 250 for at in range(24)] for start in (3, 90)]
TOKENS = sum(len(window) - 1 for window in WINDOWS)


def measured(checkpoint: Checkpoint, backend: str = "reference") -> ImportanceFile:
    return measured_importance(checkpoint, make_ops(backend, threads=1), WINDOWS, "text")


def test_inputs_of_the_first_layer_are_normed_rows_of_the_embedding() -> None:
    checkpoint = tiny_checkpoint("llama", "F32")
    found = measured(checkpoint)
    tensors = checkpoint.tensors
    table = tensors["model.embed_tokens.weight"].to_f32().astype(np.float64)
    norm = tensors["model.layers.0.input_layernorm.weight"].to_f32().astype(np.float64)
    rows = table[[token for window in WINDOWS for token in window[:-1]]]
    eps = checkpoint.config["rms_norm_eps"]
    normed = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + eps) * norm
    for part in "qkv":
        sums = found.sums[f"blk.0.attn_{part}.weight"]
        np.testing.assert_allclose(sums.squares[0], (normed**2).sum(axis=0), rtol=1e-4)
        assert sums.counts.tolist() == [TOKENS]
    assert (found.chunks, found.chunk_tokens, found.datasets) == (2, 24, ("text",))


def test_every_matrix_is_measured_but_embedding_and_output(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama", "F32")
    write_gguf(checkpoint, tmp_path / "m.gguf")
    stored = read_gguf(tmp_path / "m.gguf").tensors
    matrices = {name for name, tensor in stored.items() if len(tensor.shape) == 2}
    found = measured(open_checkpoint(tmp_path / "m.gguf"))
    assert matrices - found.sums.keys() <= {"output.weight", "token_embd.weight"}
    assert found.sums.keys() == {name for name in matrices if name.startswith("blk.")}


def test_each_token_counts_for_the_experts_it_chose() -> None:
    checkpoint = tiny_checkpoint("qwen3_moe", "F32")
    found = measured(checkpoint)
    chosen = checkpoint.config["num_experts_per_tok"]
    router = found.sums["blk.0.ffn_gate_inp.weight"]
    assert router.counts.tolist() == [TOKENS]
    for part in ("gate", "up", "down"):
        sums = found.sums[f"blk.0.ffn_{part}_exps.weight"]
        assert len(sums.counts) == checkpoint.config["num_experts"]
        assert sums.counts.sum() == chosen * TOKENS
        if part != "down":
            np.testing.assert_allclose(
                sums.squares.sum(axis=0), chosen * router.squares[0], rtol=1e-5
            )


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_backends_measure_alike(family: str) -> None:
    pytest.importorskip("headrace.ops.cpu._native", exc_type=ImportError)
    checkpoint = tiny_checkpoint(family, "F32")
    expected, got = measured(checkpoint), measured(checkpoint, "cpu")
    assert expected.sums.keys() == got.sums.keys()
    for name, sums in expected.sums.items():
        np.testing.assert_allclose(got.sums[name].squares, sums.squares, rtol=2e-2, atol=1e-6)
        assert np.array_equal(got.sums[name].counts, sums.counts)


def test_measuring_changes_no_logit() -> None:
    from headrace.eval import importance

    checkpoint, ops = tiny_checkpoint("qwen3_moe", "F32"), make_ops("reference")
    architecture = importance.architecture_of_config("qwen3_moe")
    recording = importance._RecordingOps(ops, importance._Sums(architecture))
    logits = []
    for backend in (ops, recording):
        model = load_model(checkpoint, backend)  # type: ignore[arg-type]
        runner = WindowRunner(model, backend, 24)  # type: ignore[arg-type]
        logits.append([np.asarray(scored.logits) for scored in runner.run(0, WINDOWS[0])])
    for plain, recorded in zip(*logits, strict=True):
        assert np.array_equal(plain, recorded)
