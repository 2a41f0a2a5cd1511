"""The training loop of every member of the family: steps, schedule, checkpoints, progress.

A run is a model, an objective, sources of tokens, and a budget in tokens. The learning rate warms
up and falls along half a cosine over the budget. Most of the run uses short sequences, which are
cheaper; the last part uses the whole context, so that every rotary position has been seen. Turns
of conversation join in the second half, when there is code to talk about.

A run may be stopped (Ctrl-C, SIGTERM) or killed at any time; starting it again goes on from its
last checkpoint and sees the same tokens as a run that never stopped.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn

from training.data.packing import Batch, Sampler
from training.loop import checkpoint
from training.loop.optimizer import make_optimizers
from training.loop.parallel import Workers
from training.loop.progress import Report
from training.models.config import CHECKPOINT_NAME

# What a step may count at most: a longer one was a pause of the process, not work.
MAX_STEP_S = 60.0

Objective = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Settings:
    """What a run is made of; all of it is written into its checkpoints."""

    tokens: int
    step_tokens: int = 16_384
    # Tokens of one forward and backward pass: the logits of more no longer fit any cache.
    pass_tokens: int = 4096
    length: int = 512
    long_length: int = 2048
    long_from: float = 0.9
    turns_from: float = 0.6
    turns_share: float = 0.2
    # Of conversations only the answers are learnt; the rest is read.
    answers_only: bool = True
    muon_learning_rate: float = 0.02
    adamw_learning_rate: float = 0.004
    final_share: float = 0.02
    warm_up: float = 0.02
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    bfloat16: bool = True
    device: str = "cpu"
    compile: bool = True
    # Share of words written in two pieces (cut_words.py), for prompts that end within one.
    cut_share: float = 0.05
    fim_share: float = 0.1
    seed: int = 20261121

    def rate_at(self, share: float) -> float:
        """The share of the peak rate: linear warm-up over `warm_up`, then a half cosine."""
        if share < self.warm_up:
            # Never zero: the first step would otherwise teach nothing.
            return max(share / self.warm_up, 0.01)
        turn = min((share - self.warm_up) / (1.0 - self.warm_up), 1.0)
        cosine = 0.5 * (1.0 + math.cos(math.pi * turn))
        return self.final_share + (1.0 - self.final_share) * cosine

    def length_at(self, share: float) -> int:
        return self.length if share < self.long_from else self.long_length

    def turns_at(self, share: float) -> float:
        return self.turns_share if share >= self.turns_from else 0.0


class Trainer:
    """One run: a model, its optimizers, its place in the data and in the budget.

    `sources` holds the streams by name: "code", and "turns" where there are any. `shape` is what
    the checkpoint says of the model. The loss of a batch is `objective(ids, targets)`.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        settings: Settings,
        sources: Mapping[str, Sampler],
        shape: Mapping[str, object],
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.turns_share and "turns" not in sources:
            raise ValueError(
                f"turns_share is {settings.turns_share}, but there is no source of turns: "
                "give one or set it to 0"
            )
        self.model, self.settings, self.sources, self.shape = model, settings, sources, shape
        self.model.to(settings.device)
        self.workers, self.clock = workers, clock
        self.optimizers = make_optimizers(
            model,
            workers,
            muon_learning_rate=settings.muon_learning_rate,
            adamw_learning_rate=settings.adamw_learning_rate,
            weight_decay=settings.weight_decay,
        )
        self.progress = checkpoint.Progress()
        self.objective = objective
        # Two shapes in a run: compiling each beats one graph for any length.
        self.compiled = torch.compile(objective, dynamic=False) if settings.compile else objective

    @property
    def share(self) -> float:
        """How much of the budget is used, from 0 to 1 and a step over."""
        return self.progress.tokens / self.settings.tokens

    def precision(self) -> AbstractContextManager[object]:
        """Matrix products in bfloat16 when asked; weights and optimizers stay float32."""
        if self.settings.bfloat16:
            autocast: AbstractContextManager[object] = torch.autocast(
                self.settings.device, dtype=torch.bfloat16
            )
            return autocast
        return nullcontext()

    def next_batch(self) -> Batch:
        """The sequences of one step, over all workers."""
        length = self.settings.length_at(self.share)
        n_sequences = max(1, self.settings.step_tokens // length)
        n_turns = round(n_sequences * self.settings.turns_at(self.share))
        parts = [self.sources["code"].next_batch(n_sequences - n_turns, length)]
        if n_turns:
            parts.append(self.sources["turns"].next_batch(n_turns, length))
        return Batch(
            *(torch.cat(columns).to(self.settings.device) for columns in zip(*parts, strict=True))
        )

    def step(self) -> float:
        """One optimizer step; returns the loss of this worker's sequences before the update."""
        started_s = self.clock()
        rate = self.settings.rate_at(self.share)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["peak_lr"]
        batch = self.next_batch()
        mine = Batch(*(column[self.workers.rank :: self.workers.count] for column in batch))
        per_pass = max(1, self.settings.pass_tokens // batch.ids.shape[1])
        passes = list(zip(mine.ids.split(per_pass), mine.targets.split(per_pass), strict=True))
        value = 0.0
        for ids, targets in passes:
            with self.precision():
                loss = self.compiled(ids, targets) * (len(ids) / len(mine.ids))
            torch.autograd.backward(loss)
            value += float(loss.detach())
        self.workers.average_gradients(self.model.parameters())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.progress.counted_s += min(self.clock() - started_s, MAX_STEP_S)
        self.progress.step += 1
        self.progress.tokens += batch.ids.numel()
        return value

    def evaluate(self, batches: Sequence[Batch], n_bytes: int) -> None:
        """Put the loss over `batches`, and its bits per byte, into the progress."""
        total, n_tokens = 0.0, 0
        with torch.no_grad(), self.precision():
            for batch in batches:
                ids, targets = (column.to(self.settings.device) for column in batch)
                total += float(self.objective(ids, targets)) * batch.ids.numel()
                n_tokens += batch.ids.numel()
        self.progress.heldout_loss = total / n_tokens
        self.progress.heldout_bits_per_byte = total / n_bytes / math.log(2.0)

    def save(self, path: Path) -> None:
        self.progress.places = {
            name: [source.epoch, source.position] for name, source in self.sources.items()
        }
        settings = asdict(self.settings)
        checkpoint.save(path, self.model, self.optimizers, self.progress, settings, self.shape)

    def resume(self, path: Path) -> None:
        settings = asdict(self.settings)
        self.progress = checkpoint.load(path, self.model, self.optimizers, settings, self.shape)
        for name, (epoch, position) in self.progress.places.items():
            if name in self.sources:
                self.sources[name].epoch, self.sources[name].position = epoch, position


class StopRequest:
    """Remembers that the process was asked to end; the run ends after the step at hand."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def run(
    trainer: Trainer,
    held_out: Sequence[Batch],
    n_bytes: int,
    out: Path,
    *,
    save_every_s: float = 150.0,
    stop: StopRequest | None = None,
) -> bool:
    """Train until the budget is used, with a report, evaluations and checkpoints.

    Only rank 0 writes and listens to `stop`; the others follow it, step by step. Returns whether
    the budget was used: False means that the run was stopped, and saved.
    """
    progress, workers = trainer.progress, trainer.workers
    first = workers.rank == 0
    saved_at_s = progress.counted_s
    report = Report(trainer.settings.tokens, progress) if first else None
    stopped = False
    try:
        while trainer.share < 1.0 and not stopped:
            loss = trainer.step()
            stopped = bool(workers.from_first(float(stop is not None and stop.asked)))
            if report is None:
                continue
            report.step(loss)
            last = stopped or trainer.share >= 1.0
            if last or progress.counted_s - saved_at_s > save_every_s:
                saved_at_s = progress.counted_s
                trainer.evaluate(held_out, n_bytes)
                trainer.save(out / CHECKPOINT_NAME)
                with (out / "log.jsonl").open("a") as log:
                    log.write(json.dumps({"loss": report.loss, **asdict(progress)}) + "\n")
    finally:
        if report is not None:
            report.close(stopped)
    return not stopped
