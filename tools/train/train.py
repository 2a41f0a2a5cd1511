"""Train the model: AdamW, warm-up and cosine decay over a budget of minutes or of tokens.

The clock counts only time spent in steps: a run that is paused (SIGSTOP) or shares its machine
still ends its schedule where its budget ends, and `--resume` goes on from the last checkpoint.
Most of the run uses short sequences, which are cheaper; the last part uses the whole context, so
that every rotary position has been seen.

    python -m tools.train.train --corpus work/corpus --tokenizer work/tokenizer --out work/run \\
        --minutes 75
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import checkpoint
from .config import ModelConfig
from .corpus import read_documents
from .data import Batch, Sampler, pack, split_spaces, windows
from .model import LanguageModel
from .parallel import Workers, join

# A step that took this many times the median was a pause of the process, not work.
PAUSE_FACTOR = 10.0
MEDIAN_STEPS = 51
CHECKPOINT_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Settings:
    """What a run is made of; all of it is written into its checkpoints."""

    minutes: float | None = None
    tokens: int | None = None
    sequences: int = 16
    length: int = 512
    long_length: int = 1024
    long_from: float = 0.7
    learning_rate: float = 3e-3
    final_share: float = 0.02
    warm_up: float = 0.02
    # More than the usual 0.1: the corpus is seen about eight times.
    weight_decay: float = 0.3
    clip_norm: float = 1.0
    bfloat16: bool = True
    compile: bool = False
    # Share of " word" tokens split after the space, for prompts that end in a space.
    space_split: float = 0.03
    seed: int = 20250

    def share_done(self, progress: checkpoint.Progress) -> float:
        """How much of the budget is used, from 0 to 1 and over.

        Raises ValueError unless exactly one of `minutes` and `tokens` is set.
        """
        if (self.minutes is None) == (self.tokens is None):
            raise ValueError("give exactly one of minutes and tokens as the budget")
        if self.minutes is not None:
            return progress.counted_s / (60.0 * self.minutes)
        assert self.tokens is not None
        return progress.tokens / self.tokens

    def learning_rate_at(self, share: float) -> float:
        """Linear warm-up over the first `warm_up` of the budget, then a half cosine."""
        if share < self.warm_up:
            # Never zero: the first step would otherwise teach nothing.
            return self.learning_rate * max(share / self.warm_up, 0.01)
        turn = min((share - self.warm_up) / (1.0 - self.warm_up), 1.0)
        cosine = 0.5 * (1.0 + math.cos(math.pi * turn))
        return self.learning_rate * (self.final_share + (1.0 - self.final_share) * cosine)

    def batch_shape(self, share: float) -> tuple[int, int]:
        """(sequences, length) at this share of the budget; tokens per step stay the same."""
        if share < self.long_from:
            return self.sequences, self.length
        return max(1, self.sequences * self.length // self.long_length), self.long_length


def make_optimizer(model: LanguageModel, settings: Settings) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices and none on norms."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=True)


class Trainer:
    """One run: a model, its optimizer, its place in the data and in the budget."""

    def __init__(
        self,
        config: ModelConfig,
        settings: Settings,
        sampler: Sampler,
        clock: Callable[[], float] = time.monotonic,
        workers: Workers | None = None,
    ) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.sampler = sampler
        self.clock = clock
        self.workers = workers or Workers()
        self.model = LanguageModel(config)
        self.optimizer = make_optimizer(self.model, settings)
        self.progress = checkpoint.Progress()
        self.loss: Callable[[Tensor, Tensor], Tensor] = self.model.loss
        if settings.compile:
            # Two shapes in a run: compiling each beats one graph for any length.
            self.loss = torch.compile(self.model.loss, dynamic=False)
        self._durations: deque[float] = deque(maxlen=MEDIAN_STEPS)

    def precision(self) -> AbstractContextManager[object]:
        """Matrix products in bfloat16 when asked; weights and optimizer stay float32."""
        if self.settings.bfloat16:
            autocast: AbstractContextManager[object] = torch.autocast("cpu", dtype=torch.bfloat16)
            return autocast
        return nullcontext()

    def step(self) -> float:
        """One optimizer step; returns the loss of this worker's sequences before the update."""
        started = self.clock()
        share = self.settings.share_done(self.progress)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate_at(share)
        batch = self.sampler.next_batch(*self.settings.batch_shape(share))
        mine = slice(self.workers.rank, None, self.workers.count)
        with self.precision():
            loss = self.loss(batch.ids[mine], batch.targets[mine])
        torch.autograd.backward(loss)
        self.workers.average_gradients(self.model.parameters())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = float(loss.detach())
        # The schedule follows this clock, so every worker has to read the same one.
        self._count(self.workers.from_first(self.clock() - started), batch.ids.numel())
        return value

    def _count(self, duration_s: float, n_tokens: int) -> None:
        if self._durations:
            duration_s = min(duration_s, PAUSE_FACTOR * statistics.median(self._durations))
        self._durations.append(duration_s)
        self.progress.counted_s += duration_s
        self.progress.step += 1
        self.progress.tokens += n_tokens
        self.progress.epoch = self.sampler.epoch
        self.progress.position = self.sampler.position

    def evaluate(self, batches: list[Batch], n_bytes: int) -> None:
        """Put the loss over `batches`, and its bits per byte, into the progress."""
        total, n_tokens = 0.0, 0
        with torch.no_grad(), self.precision():
            for batch in batches:
                total += float(self.model.loss(batch.ids, batch.targets)) * batch.ids.numel()
                n_tokens += batch.ids.numel()
        self.progress.heldout_loss = total / n_tokens
        self.progress.heldout_bits_per_byte = total / n_bytes / math.log(2.0)

    def save(self, path: Path) -> None:
        checkpoint.save(path, self.model, self.optimizer, self.progress, asdict(self.settings))

    def resume(self, path: Path) -> None:
        self.progress = checkpoint.load(path, self.model, self.optimizer)
        self.sampler.epoch, self.sampler.position = self.progress.epoch, self.progress.position


def describe(progress: checkpoint.Progress, share: float, loss: float, rate: float) -> str:
    """The progress line; `rate` is in tokens per second."""
    minutes_left = progress.counted_s * (1.0 / share - 1.0) / 60.0
    return (
        f"step {progress.step}  {share:6.1%}  tokens {progress.tokens / 1e6:.2f}M  "
        f"epoch {progress.epoch}  loss {loss:.4f}  held-out {progress.heldout_loss:.4f} "
        f"({progress.heldout_bits_per_byte:.4f} bits/byte)  {rate:.0f} tokens/s  "
        f"{minutes_left:.1f} min left"
    )


def run(
    trainer: Trainer, held_out: list[Batch], n_bytes: int, out: Path, save_every_s: float
) -> None:
    """Train until the budget is used, with progress lines, evaluations and checkpoints.

    Only rank 0 writes; the others wait for it in their next exchange of gradients.
    """
    progress, settings = trainer.progress, trainer.settings
    if trainer.workers.rank != 0:
        while settings.share_done(progress) < 1.0:
            trainer.step()
        return
    saved_at_s, shown_at_s, shown_tokens = progress.counted_s, progress.counted_s, progress.tokens
    smoothed = float("nan")
    with (out / "log.jsonl").open("a") as log:

        def record() -> None:
            trainer.evaluate(held_out, n_bytes)
            trainer.save(out / CHECKPOINT_NAME)
            log.write(json.dumps({"loss": smoothed, **asdict(progress)}) + "\n")
            log.flush()

        while settings.share_done(progress) < 1.0:
            loss = trainer.step()
            smoothed = loss if math.isnan(smoothed) else 0.95 * smoothed + 0.05 * loss
            if progress.step % 20 == 0:
                elapsed_s = progress.counted_s - shown_at_s
                rate = (progress.tokens - shown_tokens) / max(elapsed_s, 1e-9)
                share = settings.share_done(progress)
                print(describe(progress, share, smoothed, rate), flush=True)
                shown_at_s, shown_tokens = progress.counted_s, progress.tokens
            if progress.counted_s - saved_at_s > save_every_s:
                saved_at_s = progress.counted_s
                record()
        record()
    print(f"finished: {progress}", flush=True)


def parse_arguments() -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(description="Train the embedded model.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--sequences", type=int, default=defaults.sequences)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--save-every-s", type=float, default=150.0)
    parser.add_argument(
        "--bfloat16", action=argparse.BooleanOptionalAction, default=defaults.bfloat16
    )
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=defaults.compile
    )
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def work(arguments: argparse.Namespace, rank: int, meeting_point: Path) -> None:
    """One worker's whole run."""
    torch.set_num_threads(arguments.threads)
    settings = Settings(
        minutes=arguments.minutes,
        tokens=arguments.tokens,
        sequences=arguments.sequences,
        learning_rate=arguments.learning_rate,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        seed=arguments.seed,
    )
    n_long = settings.batch_shape(1.0)[0]
    if settings.sequences % arguments.workers or n_long % arguments.workers:
        raise ValueError(
            f"sequences is {settings.sequences} ({n_long} when long), not a multiple of workers, "
            f"which is {arguments.workers}: give other --sequences or --workers"
        )
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer / "tokenizer.json"))
    config = ModelConfig(vocab_size=tokenizer.get_vocab_size())
    stream = pack(tokenizer, read_documents(arguments.corpus, "train"), settings.seed)
    stream = split_spaces(stream, tokenizer, settings.space_split, settings.seed)
    held_out_documents = read_documents(arguments.corpus, "heldout")
    held_out_stream = pack(tokenizer, held_out_documents, settings.seed)
    batches = windows(held_out_stream, config.max_position_embeddings, n_sequences=8)
    n_held_out = sum(batch.ids.numel() for batch in batches)
    n_bytes = sum(len(text.encode()) for text in held_out_documents)
    # The windows drop a tail; its bytes are left out in proportion.
    n_bytes = round(n_bytes * n_held_out / held_out_stream.numel())
    workers = join(rank, arguments.workers, meeting_point)
    trainer = Trainer(config, settings, Sampler(stream, settings.seed), workers=workers)
    if arguments.resume:
        trainer.resume(arguments.out / CHECKPOINT_NAME)
    if rank == 0:
        n_parameters = sum(p.numel() for p in trainer.model.parameters())
        print(
            f"{n_parameters} parameters, {stream.numel()} training tokens, {n_held_out} held-out "
            f"tokens, {arguments.workers} workers of {arguments.threads} threads",
            flush=True,
        )
    run(trainer, batches, n_bytes, arguments.out, arguments.save_every_s)


def main() -> None:
    arguments = parse_arguments()
    Settings(minutes=arguments.minutes, tokens=arguments.tokens).share_done(checkpoint.Progress())
    arguments.out.mkdir(parents=True, exist_ok=True)
    # A fresh process each: forking after PyTorch has started its threads is not safe.
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = Path(folder) / "meeting-point"
        others = [
            spawn.Process(target=work, args=(arguments, rank, meeting_point), daemon=True)
            for rank in range(1, arguments.workers)
        ]
        for process in others:
            process.start()
        work(arguments, 0, meeting_point)
        for process in others:
            process.join()


if __name__ == "__main__":
    main()
