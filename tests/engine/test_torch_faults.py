"""Faults of a device, injected into torch on a processor: no memory left, a device that is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.models import load_model
from headrace.ops.interface import Ops
from tests.engine.mock import Collected, collect, drain
from tests.tiny import NUM_TOKENS, tiny_checkpoint, write_tiny_gguf

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")

from headrace.ops.torch import TorchOps  # noqa: E402
from headrace.ops.torch.device import fault_of  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


class TightOps(TorchOps):
    """Torch with an allocator that has room for products of so many values."""

    room = 1 << 60
    refused = 0

    def linear(self, x: Any, weight: Any, **others: Any) -> Any:
        if len(x) * weight.out_features > self.room:
            type(self).refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return super().linear(x, weight, **others)


def requests() -> list[Submit]:
    return [
        Submit(f"r{i}", [(7 * i + j) % 250 for j in range(5 + 9 * i)],
               SamplingParams(temperature=0.8, seed=i, max_tokens=8, logprobs=2, ignore_eos=True))
        for i in range(5)
    ]  # fmt: skip


def engine(ops: Ops, **settings: Any) -> EngineCore:
    config = EngineConfig(num_gpu_blocks_override=64, block_size=16, max_num_seqs=8, **settings)
    model = load_model(tiny_checkpoint("llama", "F32"), ops)
    return EngineCore(model, ops, config, num_tokens=NUM_TOKENS, sleep=lambda seconds: None)


def answers(core: EngineCore) -> dict[str, Any]:
    results: dict[str, Collected] = {}
    for each in requests():
        core.submit(each)
        collect(results, core.step())
    drain(core, results)
    return {
        name: (result.token_ids, result.finish_reason,
               [entry for output in result.outputs for entry in output.logprobs or []])
        for name, result in results.items()
    }  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("rows", [1, 7])
def test_memory_that_runs_out_changes_no_bit_of_any_answer(rows: int) -> None:
    """Of the widest product, so many rows find room: of all tokens a step wants, few."""
    expected = answers(engine(TorchOps("cpu", 1)))
    ops = TightOps("cpu", 1)
    core = engine(ops)
    ops.room = rows * core.limits.vocab_size
    assert answers(core) == expected
    assert core.stats().out_of_memory_steps > 0 and ops.refused > 0


def test_errors_of_torch_are_told_apart() -> None:
    def never(device: Any) -> bool:
        raise AssertionError("it was asked")

    oom = torch.OutOfMemoryError("CUDA out of memory.")
    assert fault_of(oom, CPU, never) == "memory"
    for text in ("CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when",
                 "DefaultCPUAllocator: can't allocate memory: you tried"):  # fmt: skip
        assert fault_of(RuntimeError(text), CPU, never) == "memory"
    sticky = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert fault_of(sticky, CPU, lambda device: False) == "lost"
    refused = RuntimeError("CUDA error: invalid configuration argument")
    assert fault_of(refused, CPU, lambda device: True) is None
    assert fault_of(ValueError("the batch is wrong"), CPU, never) is None
    assert fault_of(sticky, CPU) is None, "a processor is not lost"


LOST_ENGINE = """
import headrace.ops.torch.device as device
from headrace.ops.torch import TorchOps
linear = TorchOps.linear
count = 0

def failing(self, *args, **named):
    global count
    count += 1
    if count > 200:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return linear(self, *args, **named)

TorchOps.linear = failing
TorchOps.fault_of = lambda self, error: device.fault_of(error, self.device, lambda where: False)
"""
"""Put in front of an engine's process: after 200 products its device is gone."""


@pytest.mark.process
def test_a_lost_device_is_a_restart_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams end with the line; the next engine answers."""
    from headrace.engine.process.supervisor import SupervisedEngine
    from headrace.errors import EngineDeadError

    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(LOST_ENGINE)
    path = write_tiny_gguf(tmp_path, "llama", "F32")
    config = EngineConfig(
        model=str(path), backend="torch", device="cpu", num_gpu_blocks_override=32, threads=1
    )

    async def run() -> tuple[str, str, int]:
        monkeypatch.setenv("PYTHONPATH", str(site))
        supervised = await SupervisedEngine.start(config)
        monkeypatch.delenv("PYTHONPATH")
        try:
            error = ""
            params = SamplingParams(max_tokens=100, ignore_eos=True)
            try:
                async for _ in supervised.generate(Submit("a", [1, 2, 3], params)):
                    pass
            except EngineDeadError as caught:
                error = str(caught)
            for _ in range(600):
                if supervised.status.state == "ready":
                    break
                await asyncio.sleep(0.05)
            got = 0
            async for output in supervised.generate(Submit("b", [1, 2, 3], params)):
                got += len(output.token_ids)
            return error, supervised.status.state, got
        finally:
            await supervised.close()

    error, state, got = asyncio.run(run())
    assert "the device cpu is lost, nothing can be computed there any more" in error
    assert "illegal memory access" in error
    assert (state, got) == ("ready", 100)
