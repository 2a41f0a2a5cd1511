"""Kinds that are chosen by measurement: of a model small enough to measure everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.config import EngineConfig
from headrace.errors import ConfigError
from headrace.eval.divergence import divergence
from headrace.eval.mixes import measurements
from headrace.eval.mixes.candidates import Group, group_of, matrices_of
from headrace.eval.mixes.fit import Fit, Fitter, Stage, Target
from headrace.eval.mixes.measurements import Measurements, subject_of
from headrace.eval.mixes.order import FitOptions, fitted, spread
from headrace.eval.mixes.sensitivity import neighbours, sensitivities
from headrace.eval.text import windows_of_file
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.codecs import BF16, F32, Codec, get_codec
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.importance import ColumnSums, ImportanceFile
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.plan import mix_of, override_of
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor
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
    windows = spread(windows_of_file(base, model.parent / "text.txt", 32), 8)[1::2]
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

    class Interrupted(Exception):
        pass

    def interrupt(stage: Stage) -> None:
        stages.append(stage)
        if len(stages) == 25:
            raise Interrupted

    with pytest.raises(Interrupted):
        fitted(model, path, wanted, threads=2, progress=interrupt)
    measured = json.loads(wanted.measurements.read_bytes())
    assert len(measured["chosen_by"]) == 25 - len(measured["judged"])
    order, found = fitted(model, path, wanted, threads=2)
    straight = replace(wanted, measurements=tmp_path / "straight.json")
    assert fitted(model, path, straight, threads=2) == (order, found)
    again: list[Stage] = []
    assert fitted(model, path, wanted, threads=2, progress=again.append) == (order, found)
    assert len(again) < 5
    larger = replace(wanted, target=Target(nbytes=2 * limit))
    _, other = fitted(model, path, larger, threads=2)
    assert limit < other.point.nbytes <= 2 * limit
    assert other.point.measured is not None and found.point.measured is not None
    assert other.point.measured.mean < found.point.measured.mean
    elsewhere = replace(wanted, context=16)
    with pytest.raises(ConfigError, match="was measured on another model, importance or text"):
        fitted(model, path, elsewhere, threads=2)


@pytest.mark.matrix
def test_the_smallest_file_for_a_divergence_keeps_it(model: Path, tmp_path: Path) -> None:
    sizes = []
    for kl in (0.05, 0.005):
        _, found = fit(model, tmp_path / "out.gguf", Target(kl=kl))
        assert found.point.measured is not None and found.point.measured.mean <= kl
        sizes.append(found.point.nbytes)
    assert sizes[0] < sizes[1]


@pytest.mark.matrix
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


def source_of(name: str, *shape: int) -> TensorSource:
    return TensorSource(name, shape, BF16, lambda: [np.empty(0, np.uint8)])


def floats_of(source: TensorSource) -> Tensor:
    rows = np.random.default_rng(5).standard_normal(source.shape, np.float32)
    rows = rows.reshape(-1, source.shape[-1])
    return Tensor(source.name, source.shape, F32, rows.view(np.uint8))


def test_gate_and_up_of_experts_are_one_group_and_rows_of_32_have_kinds_of_32() -> None:
    matrices = matrices_of(
        [
            source_of("token_embd.weight", 64, 256),
            source_of("blk.0.ffn_gate_exps.weight", 4, 64, 256),
            source_of("blk.0.ffn_up_exps.weight", 4, 64, 256),
            source_of("blk.0.ffn_down_exps.weight", 4, 256, 64),
            source_of("blk.0.attn_norm.weight", 256),
        ]
    )
    values = {each.name: floats_of(each) for of in matrices for each in of.tensors}
    groups = [group_of(each, values, None) for each in matrices]
    assert [group.tensors for group in groups] == [
        ("token_embd.weight",),
        ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"),
        ("blk.0.ffn_down_exps.weight",),
    ]
    assert groups[1].kinds[-1] is BF16 and groups[1].sizes[-1] == 2 * 4 * 64 * 256 * 2
    assert all(64 % kind.block_elements == 0 for kind in groups[2].kinds)
    for group in groups:
        assert list(group.sizes) == sorted(set(group.sizes))
        assert list(group.errors) == sorted(set(group.errors), reverse=True)
        assert group.errors[-1] == 0


def test_candidates_are_the_front_of_size_and_error_and_importance_admits_more() -> None:
    (matrices,) = matrices_of([source_of("blk.0.attn_q.weight", 64, 256)])
    values = {"blk.0.attn_q.weight": floats_of(matrices.tensors[0])}
    without = [kind.name for kind in group_of(matrices, values, None).kinds]
    # Of one size, IQ3_S has less error than Q3_K, and Q4_K than Q4_0 and IQ4_NL.
    assert {"IQ3_S", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0"} <= set(without)
    assert not {"Q3_K", "Q4_0", "IQ4_NL", "TQ1_0", "F16", "IQ2_S", "IQ3_XXS"} & set(without)
    sums = ColumnSums(np.ones((1, 256), np.float32), np.ones(1, np.float32))
    importance = ImportanceFile({"blk.0.attn_q.weight": sums})
    found = [kind.name for kind in group_of(matrices, values, importance).kinds]
    assert {"IQ3_XXS", "IQ2_S", "IQ2_XXS"} <= set(found) and "Q2_K" not in found


def ladder(name: str) -> Group:
    kinds = tuple(get_codec(kind) for kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"))
    return Group(name, (name,), kinds, (1, 2, 3, 4, 5), (0.08, 0.02, 0.005, 0.001, 0.0))


def test_sensitivities_are_found_from_fewer_mixes_than_twice_the_matrices() -> None:
    rng = np.random.default_rng(2)
    groups = [ladder(str(number)) for number in range(40)]
    middle = [2] * len(groups)
    mixes = neighbours(groups, middle, rng)
    assert len(mixes) == 44
    signs = np.array(mixes) - 2
    assert (np.abs(signs) == 1).all() and (signs.sum(axis=0) == 0).all()
    assert (signs.T @ signs == 44 * np.eye(40)).all()
    errors = np.array([[group.errors[at] for group, at in zip(groups, mix, strict=True)]
                       for mix in mixes])  # fmt: skip
    true = rng.lognormal(0, 1, len(groups))
    noise = 1 + 0.01 * rng.standard_normal(len(mixes))
    found = sensitivities(errors, (errors @ true + 0.01) * noise, 0.6)
    ratios = found.groups / true
    assert np.median(np.abs(np.log(ratios))) < 0.15
    large = true > np.median(true)
    assert np.abs(np.log(ratios[large])).max() < 0.3
    assert (found.groups > 0).all() and found.rest >= 0


RELATIVE_ERRORS = {
    "Q1_0": 0.4, "Q2_K": 0.08, "Q3_K": 0.02, "Q4_K": 0.005, "Q6_K": 3e-4, "Q8_0": 2e-5, "BF16": 0.0,
}  # fmt: skip


def large(name: str, num_values: int, kinds: Sequence[str]) -> Group:
    """A group of so many values, with the sizes that these kinds have."""
    codecs = tuple(get_codec(kind) for kind in kinds)
    sizes = tuple(int(num_values * codec.bits_per_weight / 8) for codec in codecs)
    return Group(name, (name,), codecs, sizes, tuple(RELATIVE_ERRORS[kind] for kind in kinds))


class SumOfErrors:
    """Variants of a model whose divergence is the sum of its matrices' errors, times 0.01."""

    def divergences(
        self, groups: Sequence[Group], kinds: Sequence[Codec], windows: Sequence[int]
    ) -> np.ndarray:
        errors = [RELATIVE_ERRORS[kind.name] for kind in kinds]
        return np.full(16, 0.01 * sum(errors) + 1e-4)


def fitter_of(groups: Sequence[Group], path: Path, other_bytes: int = 0) -> Fitter:
    kept = Measurements(path, "a subject")
    return Fitter(SumOfErrors(), groups, other_bytes, kept, 4)  # type: ignore[arg-type]


def test_a_divergence_is_met_by_models_of_tens_of_gigabytes(tmp_path: Path) -> None:
    """The product of the smallest size and the largest one goes beyond 64 bits."""
    groups = [large(str(number), 10**9, tuple(RELATIVE_ERRORS)) for number in range(10)]
    fitter = fitter_of(groups, tmp_path / "m.json", 10**8)
    found = fitter.fit(Target(kl=0.002), 0)
    smallest, largest = (10**8 + sum(group.sizes[at] for group in groups) for at in (0, -1))
    assert largest > 20e9 and smallest * largest > 2**63
    assert found.point.measured is not None and found.point.measured.mean <= 0.002
    assert smallest < found.point.nbytes < largest


def test_rounds_with_other_kinds_to_choose_among_are_left_out(tmp_path: Path) -> None:
    """A second run with another --tensor-type, over the measurements of the first."""
    path = tmp_path / "m.json"
    names = [str(number) for number in range(6)]
    free = [large(name, 10**6, tuple(RELATIVE_ERRORS)) for name in names]
    target = Target(nbytes=3 * 10**6)
    first = fitter_of(free, path).fit(target, 0)
    assert first.mixes == len(json.loads(path.read_bytes())["chosen_by"])
    forced = [large("0", 10**6, ["Q3_K"]), *free[1:]]
    assert any(
        kinds.split(",")[0] != "Q3_K" for kinds in json.loads(path.read_bytes())["chosen_by"]
    )
    second = fitter_of(forced, path).fit(target, 0)
    assert second.point.kinds["0"].name == "Q3_K" and second.point.nbytes <= target.nbytes
    alone = fitter_of(forced, tmp_path / "alone.json").fit(target, 0)
    assert second.point == alone.point
    # The other way round all mixes can be chosen, and all are learned from.
    again = fitter_of(free, path).fit(target, 0)
    assert again.mixes == len(json.loads(path.read_bytes())["chosen_by"]) > second.mixes


def test_other_encoders_are_another_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "model.gguf"
    source.touch()
    before = subject_of(source, None, [[1, 2]], ["a"])
    assert before == subject_of(source, None, [[1, 2]], ["a"])
    monkeypatch.setattr(measurements, "ENCODERS", measurements.ENCODERS + 1)
    assert before != subject_of(source, None, [[1, 2]], ["a"])


def test_a_curve_lies_where_files_are_of_use(tmp_path: Path) -> None:
    """Not among mixes that are mostly of the smallest kind, nor above eight bits."""
    groups = [large(str(number), 10**6, tuple(RELATIVE_ERRORS)) for number in range(20)]
    fitter = fitter_of(groups, tmp_path / "m.json")
    found = fitter.fit(Target(nbytes=12 * 10**6), 4)
    bits = [8 * point.nbytes / 20e6 for point in found.curve]
    assert len(bits) == 5
    # Files of 3.2, 4.1, 5.2 and 6.7 bits at most, beside the chosen one of 4.8.
    for size, limit in zip(bits, (3.2, 4.1, 4.8, 5.2, 6.7), strict=True):
        assert 0.93 * limit < size < 1.01 * limit
    # Where every kind is decided there is one size.
    forced = [large("0", 10**6, ["Q3_K"]), large("1", 10**6, ["Q8_0"])]
    alone = fitter_of(forced, tmp_path / "forced.json").fit(Target(nbytes=2 * 10**6), 4)
    assert alone.curve == (alone.point,)


def test_windows_are_spread_over_the_text() -> None:
    windows = [[number] for number in range(100)]
    assert spread(windows, 4) == [[0], [33], [66], [99]]
    assert spread(windows[:3], 4) == windows[:3]
