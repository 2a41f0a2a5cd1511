"""Kernels in Triton, run by its interpreter on small shapes: against the reference, against
themselves in any company, and the bits of the CPU kernels where sums are exact.

Only where TRITON_INTERPRET=1 was set before Triton came, so in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import round_quantised
from tests.ops.cpu.attention_cases import expected_ragged, new_cache, ragged, run
from tests.ops.cpu.cases import (
    Request,
    batch_of,
    matrix,
    named,
    normal,
    shape_of,
    shuffled_blocks,
)

pytest.importorskip("torch", reason="the torch backend needs PyTorch")
pytest.importorskip("triton", reason="kernels in Triton need it: pip install triton")
from headrace.ops.torch import TorchOps
from tests.ops.torch.bounds import of_attention, of_product
from tests.ops.torch.on_host import DEVICE, OnHost, torch_ops

pytestmark = pytest.mark.torch

RUNS = os.environ.get("TRITON_INTERPRET") == "1" or DEVICE != "cpu"
"""Whether kernels run in this process: on a device, or interpreted."""
ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ReferenceOps()
SHAPES = (
    shape_of(2, 1, 8),
    replace(shape_of(1, 7, 32), softcap=5.0),
    replace(shape_of(2, 3, 18), window=40),
    replace(shape_of(1, 2, 18), chunk=48),
    AttentionShape(4, 2, 32, 0.2, value_dim=20),
)
CODECS: tuple[tuple[KVCodec, KVCodec], ...] = (("f32", "f32"), ("bf16", "bf16"), ("q8_0", "int8"))

needs_kernels = pytest.mark.skipif(not RUNS, reason="the kernels run in a process of their own")


def kernels() -> OnHost:
    return OnHost(TorchOps(DEVICE, threads=1, kernels=True))


@pytest.mark.skipif(RUNS, reason="they run here")
def test_the_kernels_interpreted() -> None:
    """The tests below, where the interpreter takes the place of the compiler."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", __file__],
        cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed, 3 skipped" in done.stdout


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="there is nothing to compile")
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_devices_that_are_not_here(capability: int) -> None:
    """To machine code, with the assembler that Triton brings."""
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    from headrace.ops.torch.triton import attention, q8_0

    of_attention = {
        "ROWS": 16, "DIMS": 128, "VALUES": 128, "SPAN": 64, "K_SCALED": True, "V_SCALED": False,
        "ROUND_P": True, "SINKS": True, "SOFTCAP": True,
    }  # fmt: skip
    of_product = {"TILE_ROWS": 16, "TILE_OUTS": 64, "BLOCK": 32, "STORED_BYTES": 34}
    for kernel, constants, pointers in (
        (q8_0._kernel, of_product, {"x": "i8", "bytes_": "u8", "numbers": "i8"}),
        (attention._kernel, of_attention, {"k": "i8", "v": "bf16", "positions": "i32",
                                           "table": "i32", "spans": "i32"}),
    ):  # fmt: skip
        floats = {"q", "sinks", "out", "k_scales", "v_scales", "x_scales"}
        types: dict[str, object] = {}
        for name in kernel.arg_names:
            if name in constants:
                types[name] = "constexpr"
            elif name in pointers or name in floats:
                types[name] = "*" + pointers.get(name, "fp32")
            elif name.endswith("strides"):
                types[name] = ("i64",) * 6
            else:
                types[name] = "fp32" if name in ("scale", "softcap") else "i32"
        source = compiler.ASTSource(fn=kernel, signature=types, constexprs=constants)
        with warnings.catch_warnings():
            # Of Triton, on what it will do by default in later versions.
            warnings.simplefilter("ignore")
            made = compiler.compile(source, target=target)
        assert len(made.asm["cubin"]) > 1000
        assert "mma" in made.asm["ptx"] or kernel is attention._kernel


@needs_kernels
def test_products_with_q8_0() -> None:
    ops = kernels()
    for out, width, rows in ((40, 96, 5), (70, 352, 20)):
        tensor, x = matrix(5, out, width, "Q8_0"), normal(6, rows, width)
        weight = ops.linear_weight([tensor])
        got = ops.linear(x, weight)
        want = REFERENCE.linear(x, REFERENCE.linear_weight([tensor]))
        operand = np.array([round_quantised(row) for row in x])
        with named(out=out, width=width, rows=rows):
            assert (np.abs(got - want) <= of_product(operand, tensor.to_f32())).all()
            for at in (0, rows - 3):
                assert (ops.linear(x[at : at + 3].copy(), weight) == got[at : at + 3]).all()
    assert ops.linear(np.empty((0, 352), np.float32), weight).shape == (0, 70)


@needs_kernels
@pytest.mark.skipif(DEVICE != "cpu", reason="a device fuses a product and a sum")
def test_products_with_q8_0_have_the_bits_of_the_portable_level() -> None:
    cpu = pytest.importorskip("headrace.ops.cpu", reason="the kernels are not built")
    portable, tensor, x = cpu.CpuOps("portable", 1), matrix(7, 33, 320, "Q8_0"), normal(8, 9, 320)
    ops = kernels()
    got = ops.linear(x, ops.linear_weight([tensor]))
    assert (got == portable.linear(x, portable.linear_weight([tensor]))).all()


@needs_kernels
def test_attention_agrees_with_the_reference() -> None:
    ops = kernels()
    for index, shape in enumerate(SHAPES):
        block_size = (16, 32, 64)[index % 3]
        for codecs in CODECS:
            got = ragged(ops, shape, block_size, codecs)  # type: ignore[arg-type]
            error = np.abs(got - expected_ragged(shape, block_size, codecs))
            with named(shape=shape, codecs=codecs):
                assert error.max() <= of_attention(shape, normal(1, 130, shape.row_width), codecs)


@needs_kernels
def test_attention_of_a_token_is_the_same_in_any_company() -> None:
    ops, length = kernels(), 100
    sinks = normal(3, 1, 6)[0]
    for shape in (SHAPES[2], shape_of(3, 2, 16)):
        results = []
        # The interpreter's product is NumPy's, which adds up otherwise in other rows of a tile:
        # chunks begin where tiles of 16 tokens do.
        chunks = (
            ((100, 16), (16, 64), (48, 32)) if DEVICE == "cpu" else ((100, 16), (1, 64), (33, 32))
        )
        for chunk, block_size in chunks:
            (table,) = shuffled_blocks(chunk, [length], block_size)
            kv = new_cache(ops, shape, len(table), block_size, "bf16", "q8_0")  # type: ignore[arg-type]
            parts = [
                run(ops, shape, kv, [Request(5, at, min(chunk, length - at), table)])  # type: ignore[arg-type]
                for at in range(0, length, chunk)
            ]
            results.append(np.concatenate(parts))
            assert (results[-1] == results[0]).all(), chunk
        request = Request(5, 0, length, np.arange(7, dtype=np.int32))
        both = []
        for each in (ops, torch_ops()):
            kv = new_cache(each, shape, 7, 16, "f32", "f32")  # type: ignore[arg-type]
            rows, batch = request.rows(shape), batch_of([request])
            each.kv_write(rows, shape, kv, 1, batch)
            both.append(each.paged_attention(rows, shape, kv, 1, batch, sinks=sinks))
        limit = of_attention(shape, normal(5, 100, shape.row_width), ("f32", "f32"))
        assert np.abs(both[0] - both[1]).max() <= limit
