"""How well a model predicts held-out text: bits per byte, perplexity and next-token accuracy.

Every token of a document is predicted, the first one too, behind <|endoftext|>. Documents longer
than `window` tokens are read in windows that overlap: all but a document's first `window` tokens
are predicted from at least `window - stride` and fewer than `window` tokens before them. Bits per
byte are of all bytes of the documents read.

    python -m training.measure.held_out build/train/base/checkpoint.safetensors \\
        --share 0.1 --json FILE

JSON: {"model", "adapter", "precision", "window_tokens", "stride_tokens", "share", "cpu_s",
"total": FIGURES, "by_package": {NAME: FIGURES}}, with FIGURES as in the class below.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from training.data.tokenizer import CONTEXT_TOKENS, END_OF_TEXT_ID
from training.measure.heldout_text import Document, read_held_out, spread
from training.measure.predictor import Predictor, open_predictor

TOP = 5
STRIDE_TOKENS = CONTEXT_TOKENS // 2


class Score(NamedTuple):
    """Sums over one document's tokens."""

    n_bytes: int
    n_tokens: int
    nats: float
    n_top1: int
    n_top5: int


@dataclass(frozen=True)
class Figures:
    """Means over the tokens, or bytes, of some documents.

    `bits_per_byte_error` is the standard error of `bits_per_byte`, where documents are taken for a
    sample of many such documents; None of a single one. `top1` and `top5` are shares of tokens
    that are the model's first, or among its first five, guesses.
    """

    n_documents: int
    n_bytes: int
    n_tokens: int
    nats_per_token: float
    perplexity: float
    bits_per_byte: float
    bits_per_byte_error: float | None
    top1: float
    top5: float


@dataclass(frozen=True)
class Report:
    """What is written as JSON. `share` is the share of documents that was asked for."""

    model: str
    adapter: str | None
    precision: str
    window_tokens: int
    stride_tokens: int
    share: float
    cpu_s: float
    total: Figures
    by_package: dict[str, Figures]


def score(
    predictor: Predictor, ids: Sequence[int], n_bytes: int, window: int, stride: int
) -> Score:
    """Predict each of `ids`, a document without its separator.

    Raises ValueError when stride is not between 1 and window.
    """
    if not 1 <= stride <= window:
        raise ValueError(f"stride is {stride}; give 1 to {window}, the window")
    stream = torch.tensor([END_OF_TEXT_ID, *ids])
    inputs, targets = stream[:-1], stream[1:]
    nats, n_top1, n_top5, done = 0.0, 0, 0, 0
    while done < len(targets):
        end = min(max(window, done + stride), len(targets))
        begin = max(0, end - window)
        logits = predictor.logits(inputs[None, begin:end])[0, done - begin :].float()
        wanted = targets[done:end]
        nats += float(F.cross_entropy(logits, wanted, reduction="sum"))
        hits = logits.topk(min(TOP, logits.shape[-1])).indices == wanted[:, None]
        n_top1, n_top5 = n_top1 + int(hits[:, 0].sum()), n_top5 + int(hits.sum())
        done = end
    return Score(n_bytes, len(targets), nats, n_top1, n_top5)


def figures(scores: Sequence[Score]) -> Figures:
    """The means over documents of at least one token.

    The error is that of a ratio of two sums, bits by bytes (W. Cochran, "Sampling Techniques").
    """
    n_bytes, n_tokens = sum(s.n_bytes for s in scores), sum(s.n_tokens for s in scores)
    nats, n = sum(s.nats for s in scores), len(scores)
    per_byte = nats / n_bytes
    error = None
    if n > 1:
        squares = sum((s.nats - per_byte * s.n_bytes) ** 2 for s in scores)
        error = math.sqrt(squares * n / (n - 1)) / n_bytes / math.log(2.0)
    return Figures(
        n_documents=n,
        n_bytes=n_bytes,
        n_tokens=n_tokens,
        nats_per_token=nats / n_tokens,
        perplexity=math.exp(nats / n_tokens),
        bits_per_byte=per_byte / math.log(2.0),
        bits_per_byte_error=error,
        top1=sum(s.n_top1 for s in scores) / n_tokens,
        top5=sum(s.n_top5 for s in scores) / n_tokens,
    )


def held_out(
    predictor: Predictor,
    tokenizer: Tokenizer,
    documents: Sequence[Document],
    window: int = CONTEXT_TOKENS,
    stride: int = STRIDE_TOKENS,
) -> tuple[Figures, dict[str, Figures]]:
    """The figures of all documents, and by package in alphabetical order."""
    scores: defaultdict[str, list[Score]] = defaultdict(list)
    for document in documents:
        ids = tokenizer.encode(document.text).ids
        found = score(predictor, ids, len(document.text.encode()), window, stride)
        scores[document.package].append(found)
    total = figures([one for package in scores.values() for one in package])
    return total, {package: figures(scores[package]) for package in sorted(scores)}


def table(total: Figures, by_package: dict[str, Figures]) -> str:
    """The figures for a terminal."""
    head = "package        documents   bytes  bits/byte          perplexity   top-1   top-5"
    lines = [head]
    for name, one in [*by_package.items(), ("all", total)]:
        error = "" if one.bits_per_byte_error is None else f"±{one.bits_per_byte_error:.4f}"
        lines.append(
            f"{name:15}{one.n_documents:9}{one.n_bytes:8}  {one.bits_per_byte:9.4f} {error:8}"
            f"{one.perplexity:11.2f}{one.top1:8.1%}{one.top5:8.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a model on held-out documents.")
    parser.add_argument("model", type=Path, help="checkpoint file or Hugging Face folder")
    parser.add_argument("--adapter", type=Path, help="PEFT folder to fold into the model")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--share", type=float, default=1.0, help="share of documents to read")
    parser.add_argument("--window", type=int, default=CONTEXT_TOKENS, help="in tokens")
    parser.add_argument("--stride", type=int, default=STRIDE_TOKENS, help="in tokens")
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    predictor = open_predictor(arguments.model, arguments.adapter, arguments.bfloat16)
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer" / "tokenizer.json"))
    documents = spread(read_held_out(arguments.data / "corpus"), arguments.share)
    started_s = time.process_time()
    total, by_package = held_out(
        predictor, tokenizer, documents, arguments.window, arguments.stride
    )
    print(table(total, by_package))
    report = Report(
        model=str(arguments.model),
        adapter=None if arguments.adapter is None else str(arguments.adapter),
        precision="bfloat16, logits float32" if arguments.bfloat16 else "float32",
        window_tokens=arguments.window,
        stride_tokens=arguments.stride,
        share=arguments.share,
        cpu_s=time.process_time() - started_s,
        total=total,
        by_package=by_package,
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(report), indent=1) + "\n")


if __name__ == "__main__":
    main()
