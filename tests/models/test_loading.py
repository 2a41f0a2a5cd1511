"""From tensors to weights: what is undone, what falls back, and what stops a load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import Model, load_model
from headrace.models.families.qwen3 import Qwen3Layer
from headrace.ops.interface import Ops
from headrace.ops.kv import LayerPlace, RaggedBatch
from headrace.ops.operands import RopeTable
from headrace.ops.reference.backend import ReferenceOps
from headrace.weights.architectures import ROPE_FACTORS
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.files.mapped import map_file
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, to_interleaved, to_tensor

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def logits(model: Model, ops: Ops, count: int = 20) -> Any:
    return Session(model, ops).feed(prompt(0)[:count])


def with_tensors(checkpoint: Checkpoint, **changed: Tensor | None) -> Checkpoint:
    """A copy with tensors added, replaced or (None) removed; "__" in a keyword stands for "."."""
    tensors = dict(checkpoint.tensors)
    for key, tensor in changed.items():
        name = key.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = replace(tensor, name=name)
    return replace(checkpoint, tensors=tensors)


def resident_kib(path: Path) -> int:
    """Of the mappings of a file in this process."""
    total, is_its = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.split(" ", 1)[0].count("-") == 1:
            is_its = line.endswith(str(path))
        elif is_its and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def test_pages_of_the_file_are_let_go_when_all_is_packed(tmp_path: Path, ops: Ops) -> None:
    checkpoint = tiny_checkpoint("llama", "Q8_0", tie_word_embeddings=True)
    path = tmp_path / "tensors"
    path.write_bytes(b"".join(tensor.data.tobytes() for tensor in checkpoint.tensors.values()))
    mapped, start, tensors = map_file(path), 0, {}
    for name, tensor in checkpoint.tensors.items():
        view = mapped[start : start + tensor.data.nbytes].reshape(tensor.data.shape)
        tensors[name] = replace(tensor, data=view)
        start += tensor.data.nbytes
    mapped.sum()
    assert resident_kib(path) >= start // 1024
    model = load_model(replace(checkpoint, tensors=tensors), ops)
    assert resident_kib(path) == 0
    assert np.array_equal(logits(model, ops), logits(load_model(checkpoint, ops), ops))


@pytest.mark.parametrize("codec", ["F32", "F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("bias", [False, True])
def test_interleaved_rows_give_the_same_bits(ops: Ops, codec: str, bias: bool) -> None:
    half, interleaved = (
        load_model(tiny_checkpoint("llama", codec, layout=layout, attention_bias=bias), ops)
        for layout in ("half", "interleaved")
    )
    assert np.array_equal(logits(half, ops), logits(interleaved, ops))


def test_rows_in_the_wrong_order_would_be_seen(reference: Ops) -> None:
    right = tiny_checkpoint("llama", layout="interleaved")
    wrong = replace(right, conventions=Conventions(rope_layout="half"))
    one, other = (logits(load_model(c, reference), reference) for c in (right, wrong))
    assert np.abs(one - other).max() > 0.1


def test_projections_of_mixed_codecs_are_joined(ops: Ops) -> None:
    """V in another codec than Q and K, up in another than gate: the same as fused, in values."""
    plain = tiny_checkpoint("llama", "BF16", attention_bias=True)
    mixed: dict[str, Tensor] = {}
    for name, tensor in plain.tensors.items():
        if ".v_proj.weight" in name or ".up_proj.weight" in name:
            tensor = to_tensor(name, tensor.to_f32(), "F32")
        mixed[name] = tensor
    one = logits(load_model(plain, ops), ops)
    other = logits(load_model(replace(plain, tensors=mixed), ops), ops)
    # F32 weights see activations that BF16 weights see rounded to 8 bits.
    assert 0 < np.abs(one - other).max() < 0.05 * np.abs(one).max()
    again = logits(load_model(replace(plain, tensors=mixed), ops), ops)
    assert np.array_equal(other, again)


def test_splitting_alone_changes_no_bit(reference: Ops) -> None:
    """The fallback against the fused path, with the same codec on both sides."""
    checkpoint = tiny_checkpoint("qwen3", "BF16")
    model = load_model(checkpoint, reference)
    layer = model._layers[0]
    assert isinstance(layer, Qwen3Layer)
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    projection = layer.attention.qkv_proj
    fused = projection(x, norm=layer.input_norm)
    parts = tuple(
        reference.linear_weight([checkpoint.tensors[f"model.layers.0.self_attn.{k}_proj.weight"]])
        for k in "qkv"
    )
    split = replace(projection, weights=parts)
    assert np.array_equal(split(x, norm=layer.input_norm), fused)
    assert np.array_equal(split(x, scale=0.5), projection(x, scale=0.5))
    with pytest.raises(ValueError, match="residual"):
        split(x, residual=x)


def test_the_norm_offset_is_added(reference: Ops) -> None:
    plain = tiny_checkpoint("qwen3")
    less = {
        name: to_tensor(name, tensor.to_f32() - 1, "F32")
        if name.endswith("norm.weight")
        else tensor
        for name, tensor in plain.tensors.items()
    }
    offset = replace(plain, tensors=less, conventions=Conventions(norm_offset=1.0))
    one, other = (logits(load_model(c, reference), reference) for c in (plain, offset))
    np.testing.assert_allclose(one, other, atol=1e-4)
    without = replace(plain, tensors=less)
    assert np.abs(one - logits(load_model(without, reference), reference)).max() > 0.1


def test_tied_when_lm_head_is_absent_and_nothing_is_said(ops: Ops) -> None:
    tied = tiny_checkpoint("llama", tied=True)
    silent = {k: v for k, v in tied.config.items() if k != "tie_word_embeddings"}
    model = load_model(tied, ops)
    assert np.array_equal(
        logits(model, ops), logits(load_model(replace(tied, config=silent), ops), ops)
    )
    assert model.step_weight_bytes == model.weight_bytes
    copied = with_tensors(tied, lm_head__weight=tied.tensors[EMBEDDING])
    assert np.array_equal(logits(model, ops), logits(load_model(copied, ops), ops))


def test_contradictions_about_tying_stop_the_load(reference: Ops) -> None:
    untied = tiny_checkpoint("llama")
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings is false but lm_head\.weight"):
        load_model(with_tensors(untied, lm_head__weight=None), reference)
    lying = replace(untied, config={**untied.config, "tie_word_embeddings": True})
    with pytest.raises(CheckpointError, match="tie_word_embeddings is true but"):
        load_model(lying, reference)


def test_a_missing_tensor_is_named(reference: Ops) -> None:
    broken = with_tensors(tiny_checkpoint(), model__norm__weight=None)
    with pytest.raises(CheckpointError, match=r"tensor model\.norm\.weight is missing"):
        load_model(broken, reference)


def test_a_tensor_of_another_shape_is_named(reference: Ops) -> None:
    other = to_tensor("x", np.ones((4, 64), np.float32), "F32")
    broken = with_tensors(tiny_checkpoint(), model__layers__1__mlp__up_proj__weight=other)
    with pytest.raises(CheckpointError, match=r"up_proj\.weight has shape \[4, 64\].*\[96, 64\]"):
        load_model(broken, reference)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_rope_divisors_that_are_none_stop_the_load(value: float, reference: Ops) -> None:
    divisors = np.ones(8, np.float32)
    checkpoint = tiny_checkpoint()
    load_model(with_tensors(checkpoint, **{ROPE_FACTORS: vector(divisors)}), reference)
    divisors[3] = value
    broken = with_tensors(checkpoint, **{ROPE_FACTORS: vector(divisors)})
    words = rf"tensor {ROPE_FACTORS} holds {value} at 3; its values have to be above 0 and finite"
    with pytest.raises(CheckpointError, match=words):
        load_model(broken, reference)


def vector(values: npt.NDArray[np.float32]) -> Tensor:
    return to_tensor("vector", values, "F32")


def test_a_tensor_nobody_uses_stops_the_load(reference: Ops) -> None:
    extra = to_tensor("x", np.ones(4, np.float32), "F32")
    with pytest.raises(UnsupportedModelError, match=r"1 tensors.*self_attn\.sinks"):
        load_model(
            with_tensors(tiny_checkpoint(), model__layers__0__self_attn__sinks=extra), reference
        )
    load_model(
        with_tensors(tiny_checkpoint(), model__layers__0__self_attn__rotary_emb__inv_freq=extra),
        reference,
    )


def test_biases_must_agree_with_the_config(reference: Ops) -> None:
    biased = tiny_checkpoint("llama", attention_bias=True)
    denied = replace(biased, config={**biased.config, "attention_bias": False})
    with pytest.raises(UnsupportedModelError, match=r"proj\.bias"):
        load_model(denied, reference)
    with pytest.raises(CheckpointError, match=r"q_proj\.bias is missing"):
        load_model(with_tensors(biased, model__layers__0__self_attn__q_proj__bias=None), reference)
    silent = {k: v for k, v in biased.config.items() if k != "attention_bias"}
    one, other = (
        logits(load_model(c, reference), reference)
        for c in (biased, replace(biased, config=silent))
    )
    assert np.array_equal(one, other)


def test_norms_of_heads_are_stored_in_the_order_of_their_rows(ops: Ops) -> None:
    """Sums of squares go through a head in "half" order, whatever the file's."""
    plain, stored = (tiny_checkpoint("qwen3", layout=layout) for layout in (None, "interleaved"))
    norms = {
        name: to_tensor(name, to_interleaved(tensor.to_f32(), 1), "F32")
        for name, tensor in stored.tensors.items()
        if name.endswith(("q_norm.weight", "k_norm.weight"))
    }
    stored = replace(stored, tensors={**stored.tensors, **norms})
    one, other = (logits(load_model(item, ops), ops) for item in (plain, stored))
    assert np.array_equal(one, other)


def test_facts_of_a_model(ops: Ops) -> None:
    checkpoint = tiny_checkpoint("llama", "Q8_0", max_positions=300)
    model = load_model(checkpoint, ops)
    assert (model.model_type, model.vocab_size, model.max_positions) == ("llama", 288, 300)
    assert model.weight_codec == "Q8_0"
    assert model.weight_bytes == checkpoint.nbytes
    assert model.step_weight_bytes == checkpoint.nbytes - checkpoint.tensors[EMBEDDING].nbytes
    spec = model.cache_layout.spec(32, 7, "bf16", "f32")
    assert spec.places == (LayerPlace(0, 0, 2, 16), LayerPlace(0, 1, 2, 16))
    assert (spec.block_size, spec.num_blocks, spec.k_codec, spec.v_codec) == (32, 7, "bf16", "f32")


def test_the_dominant_codec_is_by_bytes(reference: Ops) -> None:
    """One F32 table outweighs sixteen Q8_0 matrices."""
    checkpoint = tiny_checkpoint("llama", "Q8_0", vocab=1024)
    table = to_tensor(EMBEDDING, checkpoint.tensors[EMBEDDING].to_f32(), "F32")
    changed = with_tensors(checkpoint, model__embed_tokens__weight=table)
    assert load_model(checkpoint, reference).weight_codec == "Q8_0"
    assert load_model(changed, reference).weight_codec == "F32"


def test_max_positions_limits_the_rope_table(reference: Ops) -> None:
    model = load_model(tiny_checkpoint(), reference, max_positions=8)
    assert model.max_positions == 512
    logits(model, reference, 8)
    with pytest.raises(ValueError, match=r"position 8 is not in \[0, 8\)"):
        logits(model, reference, 9)
    with pytest.raises(ConfigError, match=r"--max-model-len 513 .* 512"):
        load_model(tiny_checkpoint(), reference, max_positions=513)


class CountingOps(ReferenceOps):
    """Notes how many positions each rope table was made for."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[int] = []

    def rope_table(self, inv_freq: Any, positions: int, **options: Any) -> RopeTable:
        self.positions.append(positions)
        return super().rope_table(inv_freq, positions, **options)


def test_the_rope_table_grows_with_what_is_asked_of_it() -> None:
    ops = CountingOps()
    model = load_model(tiny_checkpoint(max_positions=10_000), ops)
    assert ops.positions == []
    kv = ops.kv_cache(model.cache_layout.spec(64, 160, "f32", "f32"))
    tables = np.arange(160, dtype=np.int32)[None]

    def logits_at(start: int, model: Any) -> np.ndarray:
        """Of one token at `start`, over a cache in which everything before it is zero."""
        one = np.array([start], np.int32)
        batch = RaggedBatch(
            np.array([7], np.int32),
            one,
            np.array([0, 1], np.int32),
            (tables,),
            np.zeros(1, np.int32),
        )
        result: np.ndarray = model.forward(batch, kv)
        return result

    grown = {}
    for position, made in ((0, [4096]), (4095, [4096]), (4096, [4096, 8192]), (9999, None)):
        grown[position] = logits_at(position, model)
        assert ops.positions == (made or [4096, 8192, 10_000])
    at_once = load_model(tiny_checkpoint(max_positions=10_000), ReferenceOps())
    assert np.array_equal(logits_at(9999, at_once), grown[9999])
    long = CountingOps()
    short = load_model(tiny_checkpoint(max_positions=131_072), long, max_positions=40)
    logits(short, long)
    assert long.positions == [40]


def test_biases_of_some_projections_alone(ops: Ops) -> None:
    """A GGUF file says nothing of biases: those it holds are used. Config.json means all four."""
    biased = tiny_checkpoint("llama", attention_bias=True)
    gone = {f"model__layers__{i}__self_attn__o_proj__bias": None for i in range(2)}
    some = with_tensors(biased, **gone)
    silent = {k: v for k, v in biased.config.items() if k != "attention_bias"}
    zero = {
        name: to_tensor(name, np.zeros(biased.config["hidden_size"], np.float32), "F32")
        for name in gone
    }
    expected = logits(load_model(with_tensors(biased, **zero), ops), ops)
    given = logits(load_model(replace(some, config=silent), ops), ops)
    assert np.array_equal(given, expected)
    with pytest.raises(CheckpointError, match=r"o_proj\.bias is missing"):
        load_model(some, ops)


def test_vocab_size_is_that_of_the_table_where_nothing_is_said(reference: Ops) -> None:
    checkpoint = tiny_checkpoint()
    silent = {k: v for k, v in checkpoint.config.items() if k != "vocab_size"}
    assert load_model(replace(checkpoint, config=silent), reference).vocab_size == 288


@pytest.mark.parametrize("tied", [False, True])
def test_progress_rises_to_the_total(reference: Ops, tied: bool) -> None:
    checkpoint = tiny_checkpoint("llama", tied=tied)
    seen: list[tuple[int, int]] = []
    load_model(checkpoint, reference, progress=lambda done, total: seen.append((done, total)))
    done = [entry[0] for entry in seen]
    assert done == sorted(done)
    assert len(set(done)) > 10
    assert seen[-1] == (checkpoint.nbytes, checkpoint.nbytes)


@pytest.mark.parametrize("tied", [False, True])
def test_the_matrix_of_the_vocabulary_is_packed_first(tied: bool) -> None:
    """Of what is largest the file's pages are in memory while little else is."""
    shapes: list[tuple[int, ...]] = []

    class Watched(ReferenceOps):
        def linear_weight(self, parts: Any, *, bias: Any = None) -> Any:
            shapes.append(parts[0].shape)
            return super().linear_weight(parts, bias=bias)

    checkpoint = tiny_checkpoint("llama", tied=tied)
    model = load_model(checkpoint, Watched())
    assert shapes[0][0] == model.vocab_size
    assert len(shapes) > 4
