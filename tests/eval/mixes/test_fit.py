"""Kinds that are chosen by measurement: of a model small enough to measure everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.config import EngineConfig
from headrace.errors import ConfigError
from headrace.eval.divergence import divergence
from headrace.eval.mixes.candidates import groups_of
from headrace.eval.mixes.fit import Fit, Stage, Target
from headrace.eval.mixes.measurements import subject_of
from headrace.eval.mixes.order import FitOptions, fitted
from headrace.eval.text import windows_of_file
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.codecs import BF16, get_codec
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.plan import mix_of, override_of
from headrace.weights.tensors.source import TensorSource
from tests.tiny import write_tiny_gguf

pytest.importorskip("headrace.ops.cpu._native", exc_type=ImportError)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    text = "Water is led to the wheel in a channel. What is kept out of it is lost. " * 12
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return write_tiny_gguf(folder, "llama", "F32", layers=2, hidden_size=256)


def options(model: Path, path: Path, target: Target, **more: object) -> FitOptions:
    return FitOptions(
        target=target,
        text=model.parent / "text.txt",
        measurements=path.with_suffix(".json"),
        context=32,
        windows=8,
        curve_points=1,
        **more,  # type: ignore[arg-type]
    )


def fit(model: Path, path: Path, target: Target, **more: object) -> tuple[QuantizeOptions, Fit]:
    return fitted(model, path, options(model, path, target, **more), threads=2)


def size_of(model: Path, folder: Path, mix: str) -> int:
    return make(model, folder / f"{mix}.gguf", QuantizeOptions(mix_of(mix)), threads=2).nbytes


@pytest.mark.matrix
def test_a_file_has_the_size_that_was_foreseen_and_loses_what_was_measured(
    model: Path, tmp_path: Path
) -> None:
    limit = size_of(model, tmp_path, "Q4_K_M")
    path = tmp_path / "out.gguf"
    order, found = fit(model, path, Target(nbytes=limit))
    made = make(model, path, order, threads=2)
    assert made.nbytes == found.point.nbytes <= limit
    assert len(set(made.kinds) - {"F32"}) > 1
    assert len(found.curve) == 2 and found.point in found.curve
    # The judge of the command line, on the windows that whole mixes are measured on.
    ops = make_ops("cpu", threads=2)
    base, other = open_checkpoint(model), open_checkpoint(path)
    windows = windows_of_file(base, model.parent / "text.txt", 32, limit=8)[1::2]
    judged = divergence(
        load_model(base, ops),
        load_model(other, ops),
        ops,
        windows,
        cache=EngineConfig(kv_cache_dtype="f32"),
    )
    assert found.point.measured is not None
    assert judged.kl_mean == pytest.approx(found.point.measured.mean, rel=0.05)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "Q4_K_M.gguf", "out.gguf", "out.json",
    ]  # fmt: skip


@pytest.mark.matrix
def test_measurements_are_continued_and_serve_other_targets(model: Path, tmp_path: Path) -> None:
    stages: list[Stage] = []
    path = tmp_path / "out.gguf"
    limit = size_of(model, tmp_path, "Q3_K_M")
    wanted = options(model, path, Target(nbytes=limit))
    order, found = fitted(model, path, wanted, threads=2, progress=stages.append)
    assert sum(stage.subject != "mix" for stage in stages) == found.matrix_measurements
    again: list[Stage] = []
    assert fitted(model, path, wanted, threads=2, progress=again.append) == (order, found)
    assert {stage.subject for stage in again} == {"mix"}
    larger = replace(wanted, target=Target(nbytes=2 * limit))
    _, other = fitted(model, path, larger, threads=2)
    assert limit < other.point.nbytes <= 2 * limit
    assert other.point.predicted < found.point.predicted
    elsewhere = replace(wanted, context=16)
    with pytest.raises(ConfigError, match="was measured on another model, importance or text"):
        fitted(model, path, elsewhere, threads=2)


@pytest.mark.matrix
def test_the_smallest_file_for_a_divergence_keeps_it(model: Path, tmp_path: Path) -> None:
    sizes = []
    for kl in (1e-4, 1e-5):
        _, found = fit(model, tmp_path / "out.gguf", Target(kl=kl))
        assert found.point.measured is not None and found.point.measured.mean <= kl
        sizes.append(found.point.nbytes)
    assert sizes[0] < sizes[1]


def test_what_a_person_decides_stays_and_targets_out_of_reach_are_refused(
    model: Path, tmp_path: Path
) -> None:
    limit = size_of(model, tmp_path, "Q6_K")
    forced = [override_of("ffn_down=Q5_K")]
    _, found = fit(model, tmp_path / "out.gguf", Target(nbytes=limit), overrides=forced)
    kinds = {name: codec.name for name, codec in found.point.kinds.items() if "ffn_down" in name}
    # Rows of 96 have no whole blocks of 256.
    assert set(kinds.values()) == {"Q5_1"} and len(kinds) == 2
    with pytest.raises(ConfigError, match="--target-size 1000: the smallest file of this model"):
        fit(model, tmp_path / "out.gguf", Target(nbytes=1000))
    coarse = [override_of("ffn=Q4_0")]
    with pytest.raises(ConfigError, match="--target-kl 1e-30: "):
        fit(model, tmp_path / "other.gguf", Target(kl=1e-30), overrides=coarse)


def test_windows_of_another_length_are_another_text(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.touch()
    halves = np.arange(8).reshape(4, 2).tolist()
    assert subject_of(source, None, [halves[0] + halves[1], halves[2] + halves[3]]) != subject_of(
        source, None, halves
    )


def test_gate_and_up_of_experts_are_one_group_and_rows_of_32_have_kinds_of_32() -> None:
    def source(name: str, *shape: int) -> TensorSource:
        return TensorSource(name, shape, BF16, lambda: [np.empty(0, np.uint8)])

    groups = groups_of(
        [
            source("token_embd.weight", 64, 256),
            source("blk.0.ffn_gate_exps.weight", 4, 64, 256),
            source("blk.0.ffn_up_exps.weight", 4, 64, 256),
            source("blk.0.ffn_down_exps.weight", 4, 256, 64),
            source("blk.0.attn_norm.weight", 256),
        ]
    )
    assert [group.tensors for group in groups] == [
        ("token_embd.weight",),
        ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"),
        ("blk.0.ffn_down_exps.weight",),
    ]
    assert groups[1].kinds[-1] is BF16 and groups[1].sizes[-1] == 2 * 4 * 64 * 256 * 2
    assert [kind.name for kind in groups[2].kinds] == ["IQ4_NL", "Q5_1", "Q8_0", "BF16"]
    assert list(groups[0].sizes) == sorted(groups[0].sizes)
    assert groups[0].kinds[0] is get_codec("Q2_K")
