"""Start a run in several processes, and open what every member of the family trains on."""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from training.data.answers_only import answers_only
from training.data.corpus import read_documents
from training.data.cut_words import cut_words
from training.data.packing import Batch, Sampler, pack, windows
from training.loop.parallel import Workers, join
from training.loop.trainer import Settings, StopRequest, Trainer, run
from training.models.config import CHECKPOINT_NAME
from training.turns.conversations import read_conversations

# Held-out windows measured at each checkpoint: enough to see a trend, few enough not to wait for.
HELD_OUT_WINDOWS, HELD_OUT_LENGTH = 48, 1024
# One order of documents for the whole family, so that it is packed once; members differ in the
# order of windows, which comes from their own seeds.
PACKING_SEED = 20261121


@dataclass(frozen=True)
class HeldOut:
    """Held-out windows and the bytes of text they stand for."""

    batches: list[Batch]
    n_bytes: int


def code_stream(data: Path, tokenizer: Tokenizer, settings: Settings) -> Tensor:
    """The packed training documents, from `data`/streams when they were packed before.

    A file there is named by everything that decides its contents.
    """
    corpus = (data / "corpus" / "provenance.json").read_bytes()
    made_of = [corpus.decode(), tokenizer.to_str(), settings.fim_share, settings.cut_share]
    digest = hashlib.sha256(json.dumps([PACKING_SEED, *made_of]).encode()).hexdigest()[:16]
    path = data / "streams" / f"code-{digest}.safetensors"
    if not path.exists():
        documents = read_documents(data / "corpus", "train")
        stream = pack(tokenizer, documents, PACKING_SEED, settings.fim_share)
        stream = cut_words(stream, tokenizer, settings.cut_share, PACKING_SEED)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Workers may get here at the same time: each writes its own, and the last one stays.
        partial = path.with_suffix(f".{os.getpid()}")
        save_file({"stream": stream}, partial)
        partial.replace(path)
    return load_file(path)["stream"]


def open_sources(data: Path, settings: Settings) -> tuple[Tokenizer, dict[str, Sampler], HeldOut]:
    """The tokenizer and the streams below `data` (folders corpus, tokenizer, turns)."""
    tokenizer = Tokenizer.from_file(str(data / "tokenizer" / "tokenizer.json"))
    sources = {"code": Sampler(code_stream(data, tokenizer, settings), settings.seed)}
    if settings.turns_share:
        turns = pack(tokenizer, read_conversations(data / "turns", "train"), PACKING_SEED)
        if settings.answers_only:
            turns = answers_only(turns, tokenizer)
        sources["turns"] = Sampler(turns, settings.seed)
    documents = read_documents(data / "corpus", "heldout")
    stream = pack(tokenizer, documents, PACKING_SEED)
    length = HELD_OUT_LENGTH
    spread = stream.numel() // HELD_OUT_WINDOWS
    batches = [
        windows(stream[first : first + length + 1], length, 1)[0]
        for first in range(0, spread * HELD_OUT_WINDOWS, spread)
    ]
    bytes_per_token = sum(len(text.encode()) for text in documents) / stream.numel()
    return tokenizer, sources, HeldOut(batches, round(bytes_per_token * len(batches) * length))


def default_workers(n_cpus: int) -> int:
    """As many workers as share the sequences of a step evenly, also of the longest ones."""
    n_sequences = sequences_of_long_step(Settings(tokens=0))
    return max(n for n in range(1, min(n_cpus, n_sequences) + 1) if n_sequences % n == 0)


def sequences_of_long_step(settings: Settings) -> int:
    return max(1, settings.step_tokens // settings.long_length)


def arguments_of(description: str) -> argparse.ArgumentParser:
    """The options that every member's program has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--tokens", type=int, help="budget, when not the member's own")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    n_workers = 1 if device == "cuda" else default_workers(os.cpu_count() or 1)
    parser.add_argument("--workers", type=int, default=n_workers, help="processes, on a CPU")
    parser.add_argument("--fresh", action="store_true", help="do not go on from a checkpoint")
    parser.add_argument("--save-every-s", type=float, default=150.0)
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return parser


# Builds the trainer of one worker, and says what it is held against.
Build = Callable[[argparse.Namespace, Workers], tuple[Trainer, HeldOut]]


def _work(build: Build, arguments: argparse.Namespace, rank: int, meeting_point: Path) -> bool:
    # Norms have float32 weights under autocast; compiled, they are fused all the same.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    # One thread each: workers meet once a step, threads at every operation.
    torch.set_num_threads(1)
    stop = StopRequest()
    workers = join(rank, arguments.workers, meeting_point)
    trainer, held_out = build(arguments, workers)
    n_sequences = sequences_of_long_step(trainer.settings)
    if n_sequences % workers.count:
        raise SystemExit(
            f"--workers is {workers.count}, but a step has {n_sequences} sequences of "
            f"{trainer.settings.long_length} tokens to share: give a divisor of {n_sequences}"
        )
    saved = arguments.out / CHECKPOINT_NAME
    if saved.exists() and not arguments.fresh:
        trainer.resume(saved)
    if rank == 0:
        n_parameters = sum(p.numel() for p in trainer.model.parameters())
        n_tokens = {name: source.stream.numel() for name, source in trainer.sources.items()}
        print(f"{n_parameters:,} parameters, tokens at hand {n_tokens}", flush=True)
    return run(
        trainer,
        held_out.batches,
        held_out.n_bytes,
        arguments.out,
        save_every_s=arguments.save_every_s,
        stop=stop,
    )


def launch(build: Build, arguments: argparse.Namespace) -> None:
    """Run `build`'s trainer on every worker. `build` must be a function of a module.

    Raises SystemExit with status 3 when the run was stopped before its budget was used.
    """
    if arguments.device == "cuda" and arguments.workers != 1:
        raise SystemExit(
            f"--workers is {arguments.workers}, but one process uses the GPU: give --workers 1"
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    # A fresh process each: forking after PyTorch has started its threads is not safe.
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = Path(folder) / "meeting-point"
        others = [
            spawn.Process(target=_work, args=(build, arguments, rank, meeting_point), daemon=True)
            for rank in range(1, arguments.workers)
        ]
        for process in others:
            process.start()
        finished = _work(build, arguments, 0, meeting_point)
        for process in others:
            process.join()
    if not finished:
        raise SystemExit(3)
