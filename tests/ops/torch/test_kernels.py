"""Kernels in Triton: run by its interpreter, and compiled for devices that are not here."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the torch backend needs PyTorch")
pytest.importorskip("triton", reason="kernels in Triton need it: pip install triton")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[3]


def test_the_kernels_interpreted() -> None:
    """The tests of kernels_interpreted.py, in a process where the interpreter takes the place of
    the compiler, and on a processor whatever there is."""
    environ = {**os.environ, "TRITON_INTERPRET": "1", "HEADRACE_TEST_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--no-skips", "-p", "no:cacheprovider",
         str(Path(__file__).with_name("kernels_interpreted.py"))],
        cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed" in done.stdout


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
