"""What a run shows of itself: a bar on a terminal, a line every twenty steps elsewhere."""

from __future__ import annotations

import math
import sys

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from training.loop.checkpoint import Progress

STEPS_PER_LINE = 20
# The loss shown is a running mean over about so many steps: one batch says little.
SMOOTHED_STEPS = 20


class Report:
    """Shows the loss, the speed and the time left of one run; `progress` is the run's own."""

    def __init__(self, tokens: int, progress: Progress) -> None:
        self.budget, self.progress = tokens, progress
        self.loss = math.nan
        self._shown_at = (progress.counted_s, progress.tokens)
        self._rate = math.nan
        self._bar: Bar | None = None
        if sys.stdout.isatty():
            columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, console=Console())
            self._task = self._bar.add_task("compiling", total=tokens)
            self._bar.start()

    def step(self, loss: float) -> None:
        """Take note of one more step."""
        share = 1.0 / SMOOTHED_STEPS
        self.loss = loss if math.isnan(self.loss) else self.loss + share * (loss - self.loss)
        if self.progress.step % STEPS_PER_LINE == 0:
            counted_s, tokens = self._shown_at
            elapsed_s = max(self.progress.counted_s - counted_s, 1e-9)
            self._rate = (self.progress.tokens - tokens) / elapsed_s
            self._shown_at = (self.progress.counted_s, self.progress.tokens)
            if self._bar is None:
                share_done = self.progress.tokens / self.budget
                print(f"{share_done:6.1%}  {self.describe()}", flush=True)
        if self._bar is not None:
            done = min(self.progress.tokens, self.budget)
            self._bar.update(self._task, completed=done, description=self.describe())

    def describe(self) -> str:
        """One line: step, tokens, losses, speed, minutes left, as far as each is known."""
        progress = self.progress
        parts = [
            f"step {progress.step}",
            f"tokens {progress.tokens / 1e6:.2f}M",
            f"loss {self.loss:.4f}",
        ]
        if not math.isnan(progress.heldout_loss):
            per_byte = progress.heldout_bits_per_byte
            parts.append(f"held-out {progress.heldout_loss:.4f} ({per_byte:.4f} bits/byte)")
        if not math.isnan(self._rate):
            left = max(self.budget - progress.tokens, 0) / self._rate / 60.0
            parts += [f"{self._rate:.0f} tokens/s", f"{left:.1f} min left"]
        return "  ".join(parts)

    def close(self, stopped: bool) -> None:
        """End the bar and say how the run ended."""
        if self._bar is not None:
            self._bar.stop()
        end = "stopped; the same command goes on from here" if stopped else "finished"
        print(f"{end}: {self.describe()}", flush=True)
