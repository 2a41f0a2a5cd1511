"""Folders of FP8: their values, their runs beside the same numbers, refusals, and their bytes.

With scales that are powers of two every weight is a bfloat16, and a folder of FP8 gives the bits of
one in BF16 (not at the level avx512_bf16, which adds BF16's products in an order of its own). With
any other scales weights are float32: the reference then has the bits of the product with these, up
to the rounding of activations that FP8 shares with BF16.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from headrace import LLM, SamplingParams
from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import WeightPlan, plan_weights
from headrace.engine.memory.weight_memory import copied_bytes
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.plan.header import bytes_by_codec
from headrace.weights.codecs import BF16, F8_E4M3, F32
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.storage.float8 import with_scales
from headrace.weights.storage.statement import read_storage
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.source import (
    TensorSource,
    source_of_array,
    source_of_rows,
    source_of_tensor,
)
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import Session, greedy, prompt
from tests.models.fp8_folders import FP8, LAYOUTS, Layout, write_fp8
from tests.models.test_quantised import apart

BLOCKS = LAYOUTS["block"]
WIDE = {"hidden": 192, "intermediate": 320, "layers": 2}
"""Two blocks of 128 in each dimension, the second one cut off."""
IDS = prompt(0)[:24]


@pytest.mark.proves("read", "ml_dtypes, every bit", of="name", group="FP8")
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_formats_own_values(name: str, tmp_path: Path) -> None:
    made = write_fp8(tmp_path, "qwen3", LAYOUTS[name], **WIDE)
    checkpoint = open_checkpoint(made.fp8)
    assert set(checkpoint.tensors) == set(open_checkpoint(made.plain).tensors)
    for tensor_name, values in made.values.items():
        tensor = checkpoint.tensors[tensor_name]
        assert isinstance(tensor, ScaledTensor) and tensor.codec is F8_E4M3
        assert np.array_equal(tensor.to_f32(), values), tensor_name
        assert values.size < tensor.nbytes <= values.size + 4 * (len(values) + 8)


def check_bits(ops: Ops, folder: Path, family: str, layout: Layout, **shape: int) -> None:
    made = write_fp8(folder, family, layout, powers=True, plain=BF16, **shape)
    models = [load_model(open_checkpoint(path), ops) for path in (made.fp8, made.plain)]
    one, other = (Session(model, ops).feed(IDS) for model in models)
    assert np.array_equal(one, other)
    alone = Session(models[0], ops).feed_in_chunks(IDS, 5)
    assert np.array_equal(one, alone)


def exact_kernels() -> Ops:
    """The best level at which FP8 and BF16 share an arithmetic."""
    level = next(level for level in CpuOps.levels() if level != "avx512_bf16")
    return make_ops("cpu", threads=2, cpu_level=level)


@pytest.mark.parametrize("name", ["block", "compressed channel", "AutoFP8"])
def test_with_powers_of_two_a_folder_has_the_bits_of_one_in_bf16(
    name: str, tmp_path: Path, kernels: Ops
) -> None:
    del kernels  # skips where they are not built
    check_bits(exact_kernels(), tmp_path, "qwen3", LAYOUTS[name], **WIDE)


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3", "minimax_m2", "llama", "glm4_moe"])
def test_experts_and_latent_attention_have_these_bits_too(
    family: str, tmp_path: Path, kernels: Ops
) -> None:
    """Matrices of heads in latent attention are decoded to F32 where they are turned."""
    del kernels
    if family == "deepseek_v3":
        ops = exact_kernels()
        made = write_fp8(tmp_path, family, BLOCKS, powers=True, plain=BF16)
        models = [load_model(open_checkpoint(path), ops) for path in (made.fp8, made.plain)]
        one, other = (Session(model, ops).feed(IDS) for model in models)
        rms, _ = apart(one, other)
        assert rms < 0.02
        return
    check_bits(exact_kernels(), tmp_path, family, BLOCKS)


def test_a_family_with_stacks_runs_from_them(tmp_path: Path, kernels: Ops) -> None:
    del kernels
    layout = LAYOUTS["compressed channel"]
    check_bits(exact_kernels(), tmp_path, "step3p7", layout)


def test_stacks_that_lie_turned_are_refused(tmp_path: Path) -> None:
    made = write_fp8(tmp_path, "llama4_text", LAYOUTS["compressed channel"])
    with pytest.raises(CheckpointError, match=r"is F8_E4M3 and has shape .*F32, F16 or BF16"):
        open_checkpoint(made.fp8)


@pytest.mark.proves(
    "run", "the reference backend, and the same numbers in F32", of="name", group="FP8"
)  # fmt: skip
@pytest.mark.parametrize("name", LAYOUTS)
def test_any_scales_run_near_the_same_numbers(name: str, tmp_path: Path, reference: Ops) -> None:
    """On both backends; activations rounded to bfloat16 are the only difference."""
    made = write_fp8(tmp_path, "llama", LAYOUTS[name])
    plain = Session(load_model(open_checkpoint(made.plain), reference), reference).feed(IDS[:8])
    fp8 = Session(load_model(open_checkpoint(made.fp8), reference), reference).feed(IDS[:8])
    assert 0 < apart(fp8, plain)[0] < 0.02
    ops = make_ops("cpu", threads=2)
    native = Session(load_model(open_checkpoint(made.fp8), ops), ops).feed(IDS[:8])
    assert apart(native, fp8)[0] < 0.01


def test_a_folder_is_served_end_to_end(tmp_path: Path, kernels: Ops) -> None:
    del kernels
    made = write_fp8(tmp_path, "qwen3_moe", BLOCKS)
    ops = make_ops("cpu")
    expected = greedy(Session(load_model(open_checkpoint(made.fp8), ops), ops), IDS, 6)
    llm = LLM(made.fp8, backend="cpu", num_gpu_blocks_override=16, kv_cache_dtype="f32")
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    (result,) = llm.generate([IDS], params)
    assert list(result.token_ids) == expected


def test_experts_that_stay_mapped_give_the_same_bits(tmp_path: Path, kernels: Ops) -> None:
    made = write_fp8(tmp_path, "qwen3_moe", BLOCKS)
    checkpoint = open_checkpoint(made.fp8)
    small = make_ops("cpu", threads=2, expert_cache_bytes=60_000)
    packed = Session(load_model(checkpoint, kernels), kernels).feed(IDS)
    mapped = Session(load_model(checkpoint, small), small).feed(IDS)
    assert np.array_equal(packed, mapped)
    stats = small.expert_cache_stats()
    assert stats is not None and stats.misses > 0


def test_bytes_are_those_of_the_file_and_of_the_kernels(tmp_path: Path, kernels: Ops) -> None:
    """One a weight and the scales, for the planner and for what the engine takes."""
    made = write_fp8(tmp_path, "qwen3", BLOCKS, **WIDE)
    checkpoint = open_checkpoint(made.fp8)
    header = sum(
        tensor.nbytes
        for tensor in read_safetensors(made.fp8 / "model.safetensors").tensors.values()
    )
    kinds = bytes_by_codec(checkpoint.tensors.values())
    assert sum(kinds.values()) == checkpoint.nbytes == header
    weights = sum(values.size for values in made.values.values())
    assert weights < kinds["F8_E4M3"] < 1.01 * weights
    model = load_model(checkpoint, kernels)
    assert model.weight_bytes == header and model.weight_codec == "F8_E4M3"
    assert copied_bytes(checkpoint) <= header
    # Nothing is planned ahead where there are no experts.
    config = EngineConfig(model="-", backend="cpu")
    assert plan_weights(checkpoint, config) == WeightPlan()
    experts = open_checkpoint(write_fp8(tmp_path / "e", "qwen3_moe", BLOCKS).fp8)
    plan = plan_weights(experts, config)
    tensors = {name: tensor for name, tensor in experts.tensors.items() if ".experts." in name}
    assert sum(tensor.num_values for tensor in tensors.values()) < plan.expert_bytes
    assert 1.0 <= plan.expert_bytes / sum(tensor.nbytes for tensor in tensors.values()) < 1.2


def test_it_is_written_as_numbers(tmp_path: Path) -> None:
    """GGUF and plain folders have no place for the scales; F32 holds the values exactly."""
    made = write_fp8(tmp_path, "qwen3", BLOCKS, **WIDE)
    checkpoint = open_checkpoint(made.fp8)
    write_hf_folder(checkpoint, tmp_path / "back")
    back = open_checkpoint(tmp_path / "back")
    assert "quantization_config" not in back.config
    write_gguf(checkpoint, tmp_path / "m.gguf", None)
    write_gguf(checkpoint, tmp_path / "q.gguf", "Q8_0")
    file = open_checkpoint(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path / "q.gguf").tensors[Q_PROJ].codec.name == "Q8_0"
    for name, values in made.values.items():
        assert np.array_equal(back.tensors[name].to_f32(), values)
        assert file.tensors[name].codec is F32
    plain = open_checkpoint(made.plain)
    write_gguf(plain, tmp_path / "p.gguf", None)
    other = open_checkpoint(tmp_path / "p.gguf")
    assert all(
        np.array_equal(tensor.to_f32(), other.tensors[name].to_f32())
        for name, tensor in file.tensors.items()
    )


def test_heads_of_latent_attention_are_written_as_numbers(tmp_path: Path) -> None:
    made = write_fp8(tmp_path, "deepseek_v3", BLOCKS)
    for number, folder in enumerate((made.fp8, made.plain)):
        write_gguf(open_checkpoint(folder), tmp_path / f"{number}.gguf", "F32")
    one, other = (open_checkpoint(tmp_path / f"{number}.gguf") for number in (0, 1))
    for name, tensor in one.tensors.items():
        assert np.array_equal(tensor.to_f32(), other.tensors[name].to_f32()), name


Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
SCALE = f"{Q_PROJ}_scale_inv"


def spoilt(folder: Path, change: dict[str, TensorSource | None], **stated: object) -> Path:
    """A folder of blocks in which tensors are others, or missing, or the config says otherwise."""
    return changed(write_fp8(folder, "qwen3", BLOCKS, **WIDE).fp8, change, **stated)


def changed(folder: Path, change: dict[str, TensorSource | None], **stated: object) -> Path:
    """The folder, so rewritten."""
    file = folder / "model.safetensors"
    sources: dict[str, TensorSource | None] = {
        name: source_of_tensor(tensor, name, tensor.codec)
        for name, tensor in read_safetensors(file).tensors.items()
    }
    sources |= change
    write_safetensors_file(file, [source for source in sources.values() if source is not None])
    if stated:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config |= stated
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def scales(values: object, name: str = SCALE) -> dict[str, TensorSource | None]:
    return {name: source_of_array(np.array(values, np.float32), name)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({SCALE: None}, r"q_proj\.weight' is F8_E4M3 and needs one tensor of scales.*neither is"),
        (scales([[1.0]], f"{Q_PROJ}_scale"), "both are"),
        (scales([[0.0, 1.0]]),
         r"q_proj\.weight_scale_inv' holds 0 at \[0, 0\]; a scale has to be a number from"),
        (scales([[1.0, float("nan")]]), r"holds nan at \[0, 1\]"),
        (scales([[1.0, float("inf")]]), r"holds inf at \[0, 1\]"),
        (scales([[1.0, -1.0]]), r"holds -1 at \[0, 1\]"),
        (scales([[1.0, 1.0, 1.0]]), r"has shape \[1, 3\].*block of 128 x 128.*be \[1, 2\]"),
        (scales([1.0]), r"has shape \[1\]"),
        ({SCALE: source_of_rows(np.full((2, 2), 0x38, np.uint8), (2, 2), SCALE, F8_E4M3)},
         "F8_E4M3"),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit_stop_the_load(
    tmp_path: Path, change: dict[str, TensorSource | None], words: str
) -> None:
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        open_checkpoint(spoilt(tmp_path, change))


MIXED = {
    "quant_method": "compressed-tensors", "format": "mixed-precision",
    "config_groups": {
        "a": {"targets": ["re:.*q_proj"],
              "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}},
        "b": {"targets": ["re:.*lm_head"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        "c": {"targets": ["Linear"],
              "weights": {"num_bits": 8, "type": "float", "strategy": "block"}},
    },
}  # fmt: skip
"""Two formats of FP8, and modules of a third format."""


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({**FP8, "weight_block_size": [64, 64]}, r"blocks of 64 x 64.*multiple of 128"),
        (
            {**FP8, "weight_block_size": [64, 128]},
            r"has shape \[2, 3\].*block of 64 x 128.*be \[3, 3\]",
        ),
        (FP8, r"a scale for each matrix.*has to be \[\] or \[1\]"),
        (
            MIXED,
            r"q_proj\.weight' is F8_E4M3, and .* states int of 8 bits of this module",
        ),
        (
            MIXED | {"ignore": ["re:.*q_proj"]},
            r"q_proj\.weight' is F8_E4M3, and .* states 16 bits of this module",
        ),
        (None, "no quantization_config"),
        ({"quant_method": "awq", "bits": 4}, "no quantization_config that states how FP8"),
    ],
)
def test_a_config_that_states_otherwise_stops_the_load(
    tmp_path: Path, stated: object, words: str
) -> None:
    folder = spoilt(tmp_path, {}, quantization_config=stated)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=words):
        open_checkpoint(folder)


def test_embeddings_and_heads_in_fp8_are_those_of_their_values(
    tmp_path: Path, kernels: Ops
) -> None:
    """Powers of two as scales: the head's product is BF16's, and rows are exact."""
    del kernels
    ops = exact_kernels()
    made = write_fp8(tmp_path, "qwen3", LAYOUTS["block"], powers=True, plain=BF16, **WIDE)
    folders: dict[Path, dict[str, TensorSource | None]] = {made.fp8: {}, made.plain: {}}
    for seed, name in enumerate(("model.embed_tokens.weight", "lm_head.weight")):
        rows = open_checkpoint(made.plain).tensors["model.embed_tokens.weight"].shape
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 0x7F, rows, np.uint8) | rng.integers(0, 2, rows, np.uint8) << 7
        blocks = np.exp2(rng.integers(-12, -8, (-(-rows[0] // 128), -(-rows[1] // 128))))
        spread = blocks.repeat(128, axis=0)[: rows[0]].repeat(128, axis=1)[:, : rows[1]]
        exact = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * spread.astype(np.float32)
        folders[made.plain][name] = source_of_array(exact, name, BF16)
        folders[made.fp8][name] = source_of_rows(codes, rows, name, F8_E4M3)
        folders[made.fp8] |= scales(blocks.tolist(), f"{name}_scale_inv")
    sessions = []
    for folder, sources in folders.items():
        changed(folder, sources, tie_word_embeddings=False)
        model = load_model(open_checkpoint(folder), ops)
        sessions.append(Session(model, ops))
    same, other = (session.feed(IDS) for session in sessions)
    assert np.array_equal(same, other)
    ids = np.array([len(exact)], np.int32)
    table = ops.embedding_weight(open_checkpoint(made.fp8).tensors["model.embed_tokens.weight"])
    with pytest.raises(ValueError, match="token id"):
        ops.embedding(table, ids)


def test_tensors_of_fp8_that_are_no_matrices_of_weights_are_refused(tmp_path: Path) -> None:
    name, vector = "model.norm.weight", np.full((1, 8), 0x38, np.uint8)
    one = source_of_rows(vector, (8,), name, F8_E4M3)
    with pytest.raises(UnsupportedModelError, match=r"of shape \[8\]; matrices and stacks"):
        open_checkpoint(spoilt(tmp_path / "s", {name: one}))


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("block", (6, 2, 2)), ("AutoFP8", (6, 1)), ("compressed channel", (6, 256, 1))],
)
def test_experts_in_a_stack_are_those_of_single_tensors(
    layout: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Scales have a dimension in front; parts of a stack have whole blocks, or all of one."""
    rng = np.random.default_rng(0)
    stack = "model.layers.0.moe.gate_proj.weight"
    codes = rng.integers(0, 0x78, (6 * 256, 192), np.uint8)
    values = rng.uniform(0.5, 2, shape).astype(np.float32)
    written = LAYOUTS[layout]
    storage = read_storage(ConfigReader({"quantization_config": written.stated}))
    name = f"{stack.removesuffix('weight')}{written.ending}"
    tensors = {
        stack: Tensor(stack, (6, 256, 192), F8_E4M3, codes),
        name: Tensor(name, shape, F32, F32.encode(values.reshape(-1, shape[-1]))),
    }
    joined = with_scales(tmp_path, tensors, storage)
    tensor = joined[stack]
    assert set(joined) == {stack} and isinstance(tensor, ScaledTensor)
    exact = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32).reshape(6, 256, 192)
    height, width = 256 // max(1, values.size // 6 // (2 if layout == "block" else 1)), 128
    spread = values.reshape(6, -1, 2 if layout == "block" else 1)
    scales = np.repeat(spread, height, 1)
    scales = np.repeat(scales, width, 2)[:, :, :192] if layout == "block" else scales
    assert np.array_equal(tensor.to_f32(), exact * scales)
    for number in range(6):
        part = tensor.part("e", (256, 192), number * 256)
        assert np.array_equal(part.to_f32(), exact[number] * scales[number])
        half = tensor.part("h", (128, 192), number * 256 + 128)
        assert np.array_equal(half.to_f32(), (exact[number] * scales[number])[128:])
    assert sum(tensor.part("e", (256, 192), 256 * n).nbytes for n in range(6)) == tensor.nbytes
    if layout == "block":
        with pytest.raises(UnsupportedModelError, match="share scales with others"):
            tensor.part("e", (192, 192), 192)
