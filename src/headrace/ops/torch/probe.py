"""`TorchProbe`: the limits of a device, as PyTorch's own operations reach them.

Bytes a second by a sum, which reads and does nearly nothing else, and operations a second by
products of one square size. What is timed is many runs at a time, ended by one wait, so that
starting them is no part of it where a run is long enough to hide it. Operands are drawn: a card
that is held to a power multiplies zeros and ones faster than what models multiply.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from headrace.ops.torch.device import find_device, level_of

LEAST_S = 0.05
"""Of one reading: a thousand times what starting a kernel takes."""

DEVICE_SIZE = 8192
"""Rows, columns and depth of a product on a device: 1.1e12 operations, some ms of any card."""

CPU_SIZE = 1024
"""The same on a processor."""


class TorchProbe:
    """A device that can be measured; a probe of bench/machine.py."""

    def __init__(
        self,
        device: str,
        threads: int | None = None,
        *,
        size: int | None = None,
        least_s: float = LEAST_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """device: as TorchOps takes it. threads: of a processor. size: of products; None for
        DEVICE_SIZE or CPU_SIZE. least_s: of a reading. Raises ConfigError for a device that is not
        there.
        """
        self.device = find_device(device)
        self.level = level_of(self.device)
        on_cpu = self.device.type == "cpu"
        if on_cpu and threads is not None:
            torch.set_num_threads(threads)
        self.num_threads = torch.get_num_threads() if on_cpu else 1
        self._size = size or (CPU_SIZE if on_cpu else DEVICE_SIZE)
        self._least_s = least_s
        self._clock = clock

    def read_bandwidth(self, footprint_bytes: int) -> float:
        """Bytes per second over a footprint of about that size."""
        values = torch.ones(max(1, footprint_bytes // 4), device=self.device)
        return values.nbytes / self.seconds_of(values.sum)

    def peak_rate(self, kind: str) -> float | None:
        """Operations per second of operands of kind "f32" (IEEE, no TF32), "bf16" or "int8"; None
        for others, and where the device does not multiply them."""
        if kind not in ("f32", "bf16", "int8"):
            return None
        size = (self._size, self._size)
        try:
            seconds = self.seconds_of(self._product(kind, size))
        except RuntimeError:
            return None
        return 2 * self._size**3 / seconds

    def _product(self, kind: str, size: tuple[int, int]) -> Callable[[], object]:
        if kind == "int8":
            numbers = torch.randint(-127, 128, size, dtype=torch.int8, device=self.device)
            # Columns of the second operand have to lie together for the library's kernel.
            turned = numbers.t()
            return lambda: torch._int_mm(numbers, turned)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
        values = torch.randn(size, dtype=dtype, device=self.device)
        return lambda: values @ values

    def seconds_of(self, run: Callable[[], object]) -> float:
        """Of one run, behind one that is not counted."""
        run()
        runs = 1
        while True:
            self._finish()
            start_s = self._clock()
            for _ in range(runs):
                run()
            self._finish()
            seconds = self._clock() - start_s
            if seconds >= self._least_s:
                return seconds / runs
            runs = max(
                2 * runs, min(64 * runs, int(1.2 * runs * self._least_s / max(seconds, 1e-9)))
            )

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
