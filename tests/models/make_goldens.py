"""Writes goldens/<family>.npz from transformers, for machines that have neither it nor torch.

For each case seeds are tried in turn, at most MAX_SEEDS, until the smallest gap between the two
largest logits of the greedy steps is well above the error, so that greedy ids are a fair test.
Run from the repository: python -m tests.models.make_goldens [FAMILY ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.models import load_model
from headrace.ops import make_ops
from tests.models.cases import CASES, Session, weights_digest
from tests.models.hf import run_case
from tests.tiny import tiny_checkpoint
from tests.tiny_families import tiny_family_names

GOLDENS = Path(__file__).parent / "goldens"
MAX_SEEDS = 40
GAP_OVER_ERROR = 200
"""Twice what the tests ask for, because another machine's error differs a little."""

WRONG = 1e-2
"""Error over the largest logit, above which another seed will not help."""

COLUMN_STEP = 24
"""Every so many columns of the logits are kept; all of them would be half a megabyte."""


def main(families: Sequence[str]) -> None:
    """Search, and write the files of these families, or of all."""
    for family in families or tiny_family_names():
        write_goldens(family)


def write_goldens(family: str) -> None:
    """The file of one family."""
    ops = make_ops("reference")
    arrays: dict[str, Any] = {}
    cases = {name: case for name, case in CASES.items() if case.family == family}
    for name, case in cases.items():
        for seed in range(MAX_SEEDS):
            expected = run_case(case, seed)
            model = load_model(tiny_checkpoint(case.family, seed=seed, **case.shape), ops)
            ids = expected.prompt + expected.greedy[:-1]
            error = float(np.abs(Session(model, ops).feed(ids) - expected.logits).max())
            scale = float(np.abs(expected.logits).max())
            print(
                f"{name} seed {seed}: error {error / scale:.1e}, "
                f"gap {expected.smallest_gap:.1e}, gap / error {expected.smallest_gap / error:.0f}"
            )
            if error > WRONG * scale:
                raise SystemExit(f"{name}: not the same model, whatever the seed")
            if expected.smallest_gap > GAP_OVER_ERROR * error:
                break
        else:
            raise SystemExit(f"{name}: no seed below {MAX_SEEDS} has a wide enough gap")
        arrays[f"{name}/seed"] = np.array(seed)
        arrays[f"{name}/digest"] = np.array(weights_digest(case, seed))
        arrays[f"{name}/greedy"] = np.array(expected.greedy, np.int32)
        arrays[f"{name}/logits"] = expected.logits[:, ::COLUMN_STEP]
        arrays[f"{name}/scale"] = np.array(scale)
        arrays[f"{name}/smallest_gap"] = np.array(expected.smallest_gap)
    GOLDENS.mkdir(exist_ok=True)
    path = GOLDENS / f"{family}.npz"
    np.savez_compressed(path, **arrays)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
