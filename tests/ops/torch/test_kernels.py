"""Kernels in Triton: run by its interpreter, and compiled for devices that are not here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="the torch backend needs PyTorch")
pytest.importorskip("triton", reason="kernels in Triton need it: pip install triton")

from tests.ops.cpu.cases import named

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]


def test_the_kernels_interpreted() -> None:
    """The tests of *_interpreted.py, in a process where the interpreter takes the place of the
    compiler, and on a processor whatever there is."""
    files = sorted(str(path) for path in Path(__file__).parent.glob("*_interpreted.py"))
    environ = {**os.environ, "TRITON_INTERPRET": "1", "HEADRACE_TEST_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--no-skips", "-p", "no:cacheprovider",
         *files],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 10


class Case(NamedTuple):
    """A kernel as it is launched."""

    kernel: Any
    constants: dict[str, object]
    pointers: dict[str, str]
    """Types of arguments by name; what is not here is a whole number."""
    options: Mapping[str, int] = {"num_warps": 4}


def product_cases(grouped: bool) -> dict[str, Case]:
    """Of every kind that is multiplied so. Steps are not written out in a row, which takes the
    compiler as often as long and adds nothing."""
    from headrace.ops.torch.triton import products
    from headrace.ops.torch.triton.kinds import KINDS

    cases = {}
    for name, kind in KINDS.items():
        if kind.library and not grouped:
            continue
        tiling = products.MANY if kind.floats or grouped else products.FEW
        constants = {
            "ROWS": tiling.rows, "OUTS": tiling.outs, "STEP": kind.step, "UNPACK": kind.unpack,
            "HALVES": kind.halves, "MINIMUM": kind.minimum, "FLOATS": kind.floats,
            "SCALES": kind.floats, "SPREAD": not grouped, "GROUPED": grouped,
            "PER_SEGMENT": products.SEGMENT // kind.step, "UNROLL": 1,
        }  # fmt: skip
        pointers = {
            "x": "*bf16" if kind.floats else "*i8", "data": "*u8", "order": "*i32",
            "tiles": "*i32", "out": "*fp32", "scales": "*fp32", "x_scales": "*fp32",
            "x_sums": "*fp32",
        }  # fmt: skip
        warps = {"num_warps": tiling.warps}
        cases[name] = Case(products._kernel, constants, pointers, warps)
    return cases


def attention_cases() -> dict[str, Case]:
    """Heads of 128 in bfloat16, of 48 in 8 bits with all there is to see, in four bits and FP8, the
    widest of 8 bits and of float32, and latents of 512 beside 64."""
    from triton import language

    from headrace.ops.torch.triton import attention

    none = {
        "SPAN": 64, "SPLIT": attention.SPLIT, "K_READ": 0, "V_READ": 0, "K_SCALED": False,
        "V_SCALED": False, "K_HOW": 0, "V_HOW": 0, "K_TYPE": language.float32,
        "V_TYPE": language.float32, "SINKS": False, "SOFTCAP": False, "SLOPES": False,
        "MASKS": False, "NEAR": False,
    }  # fmt: skip
    seen = {"SINKS": True, "SOFTCAP": True, "SLOPES": True, "MASKS": True, "NEAR": True}
    halves = {"K_TYPE": language.bfloat16, "V_TYPE": language.bfloat16}
    rounded = {**halves, "K_HOW": 1, "V_HOW": 1}
    in_parts = {**halves, "K_HOW": 3, "V_HOW": 3}
    scaled = {**in_parts, "K_SCALED": True, "V_SCALED": True}
    floats = dict.fromkeys(
        ("q", "sinks", "slopes", "out", "maxima", "totals", "k_scales", "v_scales"), "*fp32"
    )
    floats |= dict.fromkeys(("scale", "softcap", "k_of_layer", "v_of_layer"), "fp32")
    whole = dict.fromkeys(("positions", "table", "near_table", "spans"), "*i32")
    pointers = {**floats, **whole, "masks": "*i64", "near_k": "*bf16", "near_v": "*bf16"}
    bf16 = {"k": "*bf16", "v": "*bf16"}
    cases = {}
    for name, sizes, constants, kinds in (
        ("bf16", (64, 128, 0, 128), {**rounded, "SINKS": True}, bf16),
        ("all", (16, 32, 16, 64), {**scaled, **seen}, {"k": "*i8", "v": "*i8"}),
        ("packed", (16, 64, 0, 64), {**in_parts, "K_READ": 2, "K_SCALED": True, "V_READ": 1},
         {"k": "*u8", "v": "*u8"}),
        ("widest", (32, 256, 0, 256), {**scaled, "NEAR": True}, {"k": "*i8", "v": "*i8"}),
        ("f32", (64, 128, 0, 128), {}, {"k": "*fp32", "v": "*fp32"}),
        ("latent", (16, 512, 64, 512), rounded, bf16),
    ):  # fmt: skip
        named_sizes = dict(zip(("ROWS", "DIMS", "REST", "VALUES"), sizes, strict=True))
        rows, dims, rest, values = sizes
        cases[f"attention {name}"] = Case(
            attention._kernel, {**none, **constants, **named_sizes}, {**pointers, **kinds},
            attention.options(rows, values, dims + rest, in_parts=constants.get("K_HOW") == 3),
        )  # fmt: skip
    joined = {"mixes": "*fp32", **pointers}
    cases["join"] = Case(attention._join, {"ROWS": 16, "VALUES": 128}, joined)
    return cases


def row_cases() -> dict[str, Case]:
    from headrace.ops.torch.triton import rope, rows

    floats = dict.fromkeys(
        ("x", "weight", "bias", "residual", "out", "scales", "sums", "qkv", "cos", "sin",
         "q_weight", "k_weight", "k_scales", "v_scales"), "*fp32",
    )  # fmt: skip
    floats |= dict.fromkeys(
        ("eps", "q_eps", "k_eps", "k_of_layer", "v_of_layer", "k_factor", "v_factor"), "fp32"
    )
    norm = {"SIZE": 4096, "CENTRED": True, "BIAS": True, "RESIDUAL": True}
    rotated = {"DIMS": 128, "VALUES": 128, "ROTATE": True, "Q_NORM": True, "K_NORM": True}
    places = dict.fromkeys(("positions", "blocks", "slots"), "*i64")
    kinds = {
        "bf16-q8_0": ({"K_KIND": 1, "V_KIND": 3, "K_TURNS": 0, "V_TURNS": 7}, "*i16", "*i8"),
        "fp8-f32": ({"K_KIND": 2, "V_KIND": 0, "K_TURNS": 0, "V_TURNS": 0}, "*u8", "*fp32"),
    }
    rotations = {
        f"rope {name}": Case(
            rope._kernel,
            {**rotated, **codecs},
            {**floats, **places, "k": k, "v": v},
            {"num_warps": 1},
        )
        for name, (codecs, k, v) in kinds.items()
    }
    return {
        "quantise": Case(
            rows._quantise, {"BLOCKS": 32, "BLOCK": 32, "TOGETHER": 1, "SUMS": True},
            {**floats, "numbers": "*i8"}, {"num_warps": 1},
        ),
        "quantise together": Case(
            rows._quantise, {"BLOCKS": 32, "BLOCK": 32, "TOGETHER": 8, "SUMS": True},
            {**floats, "numbers": "*i8"}, {"num_warps": 1},
        ),
        "norm": Case(rows._norm, norm, floats, {"num_warps": 8}),
        **rotations,
    }  # fmt: skip


def cases_of(capability: int) -> dict[str, Case]:
    return {**product_cases(capability == 90), **attention_cases(), **row_cases()}


ALIGNED: list[list[object]] = [["tt.divisibility", 16]]
SIZES = ("head_dim", "value_dim", "width", "outs", "row_width", "block_size", "run")
"""Arguments that are multiples of 16 in models, as a launch finds: loads are wide then."""
SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}
"""Memory of a multiprocessor that a program may have (CUDA programming guide, table of compute
capabilities)."""


@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_devices_that_are_not_here(capability: int) -> None:
    """To machine code, with the assembler that Triton brings."""
    from headrace.ops.torch.triton import products

    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    for name, case in cases_of(capability).items():
        types: dict[str, object] = {}
        aligned: dict[tuple[int, ...], list[list[object]]] = {}
        for place, argument in enumerate(case.kernel.arg_names):
            if argument in case.constants:
                types[argument] = "constexpr"
            elif argument.endswith("strides"):
                types[argument] = ("i64",) * 6
                aligned |= {(place, part): ALIGNED for part in range(6)}
            else:
                types[argument] = case.pointers.get(argument, "i32")
                if argument in case.pointers or argument in SIZES:
                    aligned[place,] = ALIGNED
        source = compiler.ASTSource(
            fn=case.kernel, signature=types, constexprs=case.constants, attrs=aligned
        )
        with named(case=name), warnings.catch_warnings():
            # Of Triton, on what it will do by default in later versions.
            warnings.simplefilter("ignore")
            made = compiler.compile(source, target=target, options={**case.options})
            assert len(made.asm["cubin"]) > 1000
            assert made.metadata.shared <= SHARED_BYTES[capability]
            assert "mma" in made.asm["ptx"] or case.kernel is not products._kernel
