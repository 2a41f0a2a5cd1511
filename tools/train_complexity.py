"""Trains the gateway's classifier of requests and writes its weights.

    python tools/train_complexity.py            # some seconds; --check measures alone

Simple is what a small model of some billions of parameters mostly answers well: small talk, facts,
short rewriting, sorting and picking out, one-line code. Hard is what takes several steps that
depend on each other: proofs, designs, root causes, algorithms under constraints, weighing.

Training requests are made of templates (tools/complexity/templates.json), each `{slot}` filled by
chance; none of them is measured on. Measured is on requests written by hand, which no template has
(tools/complexity/held_out.json). The same people wrote both, so traffic of other people has to be
expected to be told less well.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.gateway.routing.complexity.classifier import WEIGHTS, LogisticClassifier, Weights
from headrace.gateway.routing.complexity.features import BUCKETS, COUNTS, buckets_of, counts_of

ROOT = Path(__file__).resolve().parent
OUT = ROOT.parent / "src/headrace/gateway/routing/complexity" / WEIGHTS
_EACH = 3000
_STEPS = 400
_RATE = 1.0
# Held against words: counts are few and mean the same in every request.
_DECAY = 1e-4
_FILLERS = ("", "", "", "Please ", "Can you help? ", "I need this today. ", "Hi! ")
_LEVELS = 127


class Templates(msgspec.Struct, frozen=True):
    """slots: what each may be filled with."""

    slots: dict[str, list[str]]
    simple: list[str]
    hard: list[str]


def filled(template: str, slots: dict[str, list[str]], source: random.Random) -> str:
    """A template with its slots filled."""
    text = template.replace("{{", "\0").replace("}}", "\1")
    while "{" in text:
        before, _, rest = text.partition("{")
        name, _, after = rest.partition("}")
        text = before + source.choice(slots[name]) + after
    text = source.choice(_FILLERS) + text.replace("\0", "{").replace("\1", "}")
    return text.lower() if source.random() < 0.2 else text


def features_of(texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A row each: words and pairs by the root of how many there are, then the counts."""
    found = np.zeros((len(texts), BUCKETS + len(COUNTS)), np.float32)
    for at, text in enumerate(texts):
        buckets = sorted(buckets_of(text))
        found[at, buckets] = 1.0 / np.sqrt(max(1, len(buckets)))
        found[at, BUCKETS:] = counts_of(text)
    return found


def trained(seed: int) -> Weights:
    """Logistic regression by gradient steps over all requests at once."""
    source = random.Random(seed)
    raw = (ROOT / "complexity/templates.json").read_bytes()
    given = msgspec.json.decode(raw, type=Templates)
    texts = [
        filled(source.choice(kind), given.slots, source)
        for kind in (given.simple, given.hard)
        for _ in range(_EACH)
    ]
    wanted = np.repeat([0.0, 1.0], _EACH).astype(np.float32)
    rows = features_of(texts)
    weights, bias = np.zeros(rows.shape[1], np.float32), 0.0
    for _ in range(_STEPS):
        said = 1.0 / (1.0 + np.exp(-(rows @ weights + bias)))
        error = (said - wanted) / len(texts)
        weights -= _RATE * 20 * (rows.T @ error + _DECAY * weights)
        bias -= _RATE * float(error.sum())
    words = weights[:BUCKETS]
    scale = float(np.abs(words).max()) / _LEVELS
    return Weights(
        bias=round(bias, 6),
        scale=round(scale, 8),
        buckets=base64.b64encode(np.round(words / scale).astype(np.int8).tobytes()).decode(),
        counts=tuple(round(float(one), 6) for one in weights[BUCKETS:]),
        recipe=f"tools/train_complexity.py, seed {seed}, {2 * _EACH} requests of "
        f"{len(given.simple) + len(given.hard)} templates",
        held_out={},
    )


def measured(weights: Weights) -> dict[str, float]:
    """On the requests written by hand, at the threshold 0.5."""
    classifier = LogisticClassifier(weights)
    held_out = json.loads((ROOT / "complexity/held_out.json").read_text())
    simple = [classifier.of_text(one) < 0.5 for one in held_out["simple"]]
    hard = [classifier.of_text(one) >= 0.5 for one in held_out["hard"]]
    return {
        "simple": len(simple),
        "simple_right": round(sum(simple) / len(simple), 4),
        "hard": len(hard),
        "hard_right": round(sum(hard) / len(hard), 4),
    }


def main() -> None:
    """Train and write, or check what is written."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="measure what is written")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    if given.check:
        weights = msgspec.json.decode(OUT.read_bytes(), type=Weights)
        found = measured(weights)
        print(found)
        raise SystemExit(0 if found == weights.held_out else 1)
    weights = trained(given.seed)
    weights = msgspec.structs.replace(weights, held_out=measured(weights))
    OUT.write_bytes(msgspec.json.format(msgspec.json.encode(weights)) + b"\n")
    print(weights.held_out, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
