"""Folders of gpt-oss as published, with experts in MXFP4: their values, their runs, other forms.

The decoder of MXFP4 here is written from OCP Microscaling Formats 1.0 and knows nothing of ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import plan_weights
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.weights.codecs import BYTES, F32
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.pieces import PiecedTensor
from headrace.weights.tensors.source import TensorSource, source_of_array, source_of_tensor
from tests.engine.mock import real_ops
from tests.models.cases import GREEDY_STEPS, Session, greedy, prompt
from tests.models.test_gpt_oss import read
from tests.models.test_quantised import REROUTED_ROWS, RMS_BOUND, apart
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_hf

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

LAYER = "model.layers.{}.mlp.experts"
CPU = EngineConfig(model="-", backend="cpu")
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
SHORT_PROMPT_TOKENS = 40


def decoded(blocks: Bytes, scales: Bytes) -> Floats:
    """f32[experts, rows, columns]: sign, two bits of exponent and one of mantissa, low half first,
    times a power of two for each 32.
    """
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    signs = np.where(codes & 8, np.float32(-1), np.float32(1))
    powers = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)[..., None]
    values = signs * E2M1[codes & 7] * powers
    return values.astype(np.float32).reshape(*scales.shape[:2], -1)


class Published(NamedTuple):
    """A folder with experts in MXFP4, one of the same values in F32, and these values."""

    folder: Path
    plain: Path
    gate_up: list[Floats]
    """Of each layer, f32[experts, rows of gate and up in turn, hidden]."""
    down: list[Floats]


def in_bytes(name: str, values: Bytes) -> TensorSource:
    return TensorSource(name, values.shape, BYTES, lambda: [values])


def write_published(folder: Path, seed: int = 0, **quantization: Any) -> Published:
    """Random blocks in the form of openai/gpt-oss-20b."""
    rng = np.random.default_rng(seed)
    plain = write_tiny_hf(folder / "plain", "gpt_oss", seed=seed)
    config = json.loads((plain / "config.json").read_text(encoding="utf-8"))
    count, hidden = config["num_local_experts"], config["hidden_size"]
    width = config["intermediate_size"]
    kept = read_safetensors(plain / "model.safetensors").tensors
    ends = ("experts.gate_up_proj", "experts.down_proj")
    others = [
        source_of_array(tensor.to_f32(), name)
        for name, tensor in kept.items()
        if not name.endswith(ends)
    ]
    packed, turned = list(others), list(others)
    values: dict[str, list[Floats]] = {"gate_up_proj": [], "down_proj": []}
    for layer in range(config["num_hidden_layers"]):
        for module, rows, columns in (
            ("gate_up_proj", 2 * width, hidden),
            ("down_proj", hidden, width),
        ):
            blocks = rng.integers(0, 256, (count, rows, columns // 32, 16), np.uint8)
            scales = rng.integers(122, 125, (count, rows, columns // 32)).astype(np.uint8)
            name = f"{LAYER.format(layer)}.{module}"
            packed += [in_bytes(f"{name}_blocks", blocks), in_bytes(f"{name}_scales", scales)]
            values[module].append(decoded(blocks, scales))
            stack = np.ascontiguousarray(values[module][-1].swapaxes(1, 2))
            turned.append(source_of_array(stack, name))
    path = folder / "published"
    path.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (path / file).write_bytes((plain / file).read_bytes())
    stated = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"], **quantization}
    (path / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    write_safetensors_file(path / "model.safetensors", packed)
    write_safetensors_file(plain / "model.safetensors", turned)
    return Published(path, plain, values["gate_up_proj"], values["down_proj"])


@pytest.mark.proves(
    "read", "a decoder of the test, every bit", kinds=("MXFP4 of gpt-oss",), group="4 bits"
)
def test_experts_in_mxfp4_have_the_values_that_another_decoder_gives(tmp_path: Path) -> None:
    made = write_published(tmp_path)
    published, plain = open_checkpoint(made.folder), open_checkpoint(made.plain)
    assert set(published.tensors) == set(plain.tensors)
    for layer, (gate_up, down) in enumerate(zip(made.gate_up, made.down, strict=True)):
        for number in range(len(gate_up)):
            at = f"{LAYER.format(layer)}.{number}"
            for name, values in (
                ("gate_proj", gate_up[number, 0::2]),
                ("up_proj", gate_up[number, 1::2]),
                ("down_proj", down[number]),
            ):
                tensor = published.tensors[f"{at}.{name}.weight"]
                assert tensor.codec.name == "MXFP4" and tensor.shape == values.shape
                assert tensor.nbytes == tensor.data.nbytes == values.size * 17 // 32
                assert np.array_equal(tensor.to_f32(), values)
                assert np.array_equal(plain.tensors[tensor.name].to_f32(), values)
    # Nothing is put together before it is read, and nothing is kept.
    experts = [t for name, t in published.tensors.items() if ".experts." in name]
    assert len(experts) == 72 and all(isinstance(tensor, PiecedTensor) for tensor in experts)


@pytest.mark.proves("run", "its GGUF file, every bit", kinds=("MXFP4 of gpt-oss",), group="4 bits")
def test_a_folder_in_mxfp4_runs_as_its_gguf_file_and_near_its_numbers(
    kernels: Ops, tmp_path: Path
) -> None:
    """Rounded activations are the only difference between the kind and its numbers in F32."""
    check_published([kernels], tmp_path, prompt(0)[:SHORT_PROMPT_TOKENS])


@pytest.mark.matrix
def test_a_folder_in_mxfp4_runs_so_on_every_backend(every_ops: list[Ops], tmp_path: Path) -> None:
    check_published(every_ops, tmp_path, prompt(0))


def check_published(backends: list[Ops], tmp_path: Path, ids: list[int]) -> None:
    made = write_published(tmp_path)
    published = open_checkpoint(made.folder)
    write_gguf(published, tmp_path / "m.gguf", None)
    file = open_checkpoint(tmp_path / "m.gguf")
    name = f"{LAYER.format(1)}.3.up_proj.weight"
    assert file.tensors[name].codec.name == "MXFP4"
    assert np.array_equal(file.tensors[name].data, published.tensors[name].data)
    write_hf_folder(file, tmp_path / "back")
    back = open_checkpoint(tmp_path / "back")
    assert "quantization_config" not in back.config
    for ops in backends:
        models = [load_model(item, ops) for item in (published, file, back)]
        plain = load_model(open_checkpoint(made.plain), ops)
        logits = [Session(model, ops).feed(ids) for model in (*models, plain)]
        assert np.array_equal(logits[0], logits[1]), ops
        assert np.array_equal(logits[2], logits[3]), ops
        error = np.abs(logits[0] - logits[3]).max(axis=1)
        rows = np.argsort(error)[: len(ids) - REROUTED_ROWS]
        rms, _ = apart(logits[0][rows], logits[3][rows])
        assert 0 < rms < RMS_BOUND, ops
        continuations = [greedy(Session(m, ops), ids, GREEDY_STEPS) for m in models[:2]]
        assert continuations[0] == continuations[1]


@pytest.mark.proves("read", "transformers, every bit", kinds=("MXFP4 of gpt-oss",), group="4 bits")
@pytest.mark.proves(
    "elsewhere", "transformers", kinds=("MXFP4 of gpt-oss",), group="4 bits"
)  # fmt: skip
@pytest.mark.torch
def test_a_folder_in_mxfp4_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="transformers reads the folder with it")
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    made = write_published(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        made.folder,
        quantization_config=transformers.Mxfp4Config(dequantize=True),
        local_files_only=True,
        dtype=torch.bfloat16,
    )
    state = model.state_dict()
    for layer, (gate_up, down) in enumerate(zip(made.gate_up, made.down, strict=True)):
        for name, values in (("gate_up_proj", gate_up), ("down_proj", down)):
            theirs = state[f"{LAYER.format(layer)}.{name}"].float().numpy()
            assert np.array_equal(theirs, values.swapaxes(1, 2)), (layer, name)


def changed_folder(tmp_path: Path, change: dict[str, TensorSource | None]) -> Path:
    """A published folder in which tensors are others, or missing."""
    made = write_published(tmp_path)
    stored = read_safetensors(made.folder / "model.safetensors", raw=("U8",)).tensors
    sources: dict[str, TensorSource | None] = {
        name: source_of_tensor(tensor, name, tensor.codec) for name, tensor in stored.items()
    }
    sources |= change
    kept = [source for source in sources.values() if source is not None]
    write_safetensors_file(made.folder / "model.safetensors", kept)
    return made.folder


NAME = f"{LAYER.format(0)}.gate_up_proj"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({f"{NAME}_scales": None}, "scales is not there"),
        ({f"{NAME}_blocks": None}, "is there without"),
        (
            {f"{NAME}_scales": in_bytes(f"{NAME}_scales", np.zeros((6, 64, 3), np.uint8))},
            r"scales has \[6, 64, 3\]",
        ),
        (
            {
                f"{NAME}_blocks": in_bytes(f"{NAME}_blocks", np.zeros((6, 63, 2, 16), np.uint8)),
                f"{NAME}_scales": in_bytes(f"{NAME}_scales", np.zeros((6, 63, 2), np.uint8)),
            },
            r"has shape \[6, 63, 2, 16\]",
        ),
        (
            {f"{NAME}_scales": source_of_array(np.zeros((6, 64, 2), np.float32), f"{NAME}_scales")},
            "bytes .experts, rows, blocks, 16. ",
        ),
        (
            {NAME: source_of_array(np.zeros((6, 64, 64), np.float32), NAME)},
            r"experts\.0\.gate_proj\.weight' is there twice",
        ),
        (
            {"lm_head.weight": in_bytes("lm_head.weight", np.zeros((288, 64), np.uint8))},
            "'lm_head.weight' is U8",
        ),
        (
            {f"{NAME}_bias": source_of_array(np.zeros((6, 63), np.float32), f"{NAME}_bias")},
            r"gate_up_proj_bias' is F32 and has shape \[6, 63\]; \[experts, rows\]",
        ),
    ],
)
def test_experts_in_another_form_are_refused(
    tmp_path: Path, change: dict[str, TensorSource | None], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(changed_folder(tmp_path, change))


@pytest.mark.parametrize("exponent", [253, 255])
def test_an_exponent_without_finite_values_stops_the_load(
    exponent: int, tmp_path: Path, kernels: Ops
) -> None:
    exponents = np.full((6, 64, 2), 124, np.uint8)
    # Row 9 of gate and up in turn is row 4 of up.
    exponents[3, 9, 1] = exponent
    folder = changed_folder(
        tmp_path, {f"{NAME}_scales": in_bytes(f"{NAME}_scales", exponents)}
    )  # fmt: skip
    checkpoint = open_checkpoint(folder)
    words = rf"experts\.3\.up_proj\.weight: block 1 of row 4 has the exponent {exponent}; it has"
    for ops in (kernels, real_ops("reference")):
        with pytest.raises(CheckpointError, match=words):
            load_model(checkpoint, ops)
    with pytest.raises(CheckpointError, match=words):
        write_gguf(checkpoint, tmp_path / "m.gguf", None)


def test_bytes_are_refused_in_other_families(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, "mixtral")
    name = "model.layers.0.mlp.experts.gate_up_proj_blocks"
    write_safetensors_file(
        folder / "model.safetensors", [in_bytes(name, np.zeros((2, 2, 1, 16), np.uint8))]
    )
    with pytest.raises(CheckpointError, match="dtype 'U8' is not supported"):
        open_checkpoint(folder)
    stated = {"quantization_config": {"quant_method": "mxfp4"}}
    with pytest.raises(UnsupportedModelError, match="quantization_config = 'mxfp4'"):
        read({**tiny_config("mixtral"), **stated})


def test_stacks_are_written_turned(tmp_path: Path) -> None:
    """As transformers has them: [experts, hidden, rows of gate and up in turn]."""
    first = tiny_checkpoint("gpt_oss")
    write_hf_folder(first, tmp_path / "out")
    stored = read_safetensors(tmp_path / "out" / "model.safetensors").tensors
    at = LAYER.format(0)
    gate_up, bias = stored[f"{at}.gate_up_proj"], stored[f"{at}.gate_up_proj_bias"]
    assert (gate_up.shape, bias.shape) == ((6, 64, 64), (6, 64))
    assert stored[f"{at}.down_proj"].shape == (6, 32, 64)
    gate = first.tensors[f"{at}.4.gate_proj.weight"].to_f32()
    up_bias = first.tensors[f"{at}.4.up_proj.bias"].to_f32()
    assert np.array_equal(gate_up.to_f32()[4, :, 0::2].T, gate)
    assert np.array_equal(bias.to_f32()[4, 1::2], up_bias)
    assert stored["model.layers.0.self_attn.sinks"].codec is F32


def test_experts_of_published_folders_stay_mapped(tmp_path: Path) -> None:
    """Half of them packed at a time: the same bits, and as many bytes read as of a GGUF file."""
    real_ops("cpu")
    made = write_published(tmp_path)
    published = open_checkpoint(made.folder)
    write_gguf(published, tmp_path / "m.gguf", None)
    ids, limit = prompt(0)[:SHORT_PROMPT_TOKENS], plan_weights(published, CPU).expert_bytes // 2
    expected = Session(load_model(published, plain := make_ops("cpu", threads=1)), plain).feed(ids)
    figures = []
    for checkpoint in (published, open_checkpoint(tmp_path / "m.gguf")):
        ops = make_ops("cpu", threads=1, expert_cache_bytes=limit)
        session = Session(load_model(checkpoint, ops), ops)
        logits = [session.feed([token])[0] for token in ids]
        assert np.array_equal(np.stack(logits), expected)
        figures.append(ops.expert_cache_stats())
    assert figures[0] == figures[1]
    assert figures[0] is not None and figures[0].hits and figures[0].misses > 72
    assert limit // 2 < figures[0].held_bytes <= limit
