"""Writes goldens/parity.npz from transformers, for machines that have neither it nor torch.

For each case seeds are tried in turn, at most MAX_SEEDS, until the smallest gap between the two
largest logits of the greedy steps is well above the error, so that greedy ids are a fair test.
Run from the repository: python -m tests.models.make_goldens
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.models import load_model
from headrace.ops import make_ops
from tests.models.cases import CASES, Session, weights_digest
from tests.models.hf import run_case
from tests.tiny import tiny_checkpoint

GOLDENS = Path(__file__).parent / "goldens" / "parity.npz"
MAX_SEEDS = 40
GAP_OVER_ERROR = 200
"""Twice what the tests ask for, because another machine's error differs a little."""

COLUMN_STEP = 24
"""Every so many columns of the logits are kept; all of them would be half a megabyte."""


def main() -> None:
    """Search, and write the file."""
    ops = make_ops("reference")
    arrays: dict[str, np.ndarray] = {}
    for name, case in CASES.items():
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
    GOLDENS.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDENS, **arrays)
    print(f"{GOLDENS}: {GOLDENS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
