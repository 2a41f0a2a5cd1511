"""The table of docs/models.md: which family was compared with what, from what the tests compare.

Nothing here is written down by hand. A case of a family counts as compared where its golden is
stored, is of the weights that the case has today, and holds GREEDY_STEPS tokens; it counts as read
from GGUF unless its family's tests except it. A family without either has a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace.models import FAMILIES
from tests.models.cases import (
    BROKEN_RULES,
    BROKEN_TENSORS,
    CASES,
    GREEDY_STEPS,
    NOT_IN_GGUF,
    weights_digest,
)
from tests.models.make_goldens import GOLDENS
from tests.tiny_families import tiny_family, tiny_family_names

ORACLE = "transformers"
"""What goldens are computed by where a family's tests name nothing else."""


class Comparison(NamedTuple):
    """What the tests of one family compare."""

    model_type: str
    oracle: str
    cases: tuple[str, ...]
    compared: tuple[str, ...]
    """Cases whose logits and greedy tokens are held against the oracle's."""
    in_gguf: tuple[str, ...]
    """Of those, cases that a GGUF file can state: the same logits from it, bit for bit."""
    broken: tuple[str, ...]
    """Config keys and tensors, each of which the comparison finds when it is changed."""


def compared_cases(model_type: str) -> Iterator[str]:
    """The cases of a family whose golden is stored and is of the weights of today."""
    path = GOLDENS / f"{model_type}.npz"
    if not path.is_file():
        return
    with np.load(path, allow_pickle=False) as golden:
        for name, case in CASES.items():
            if case.family != model_type or f"{name}/logits" not in golden:
                continue
            digest = weights_digest(case, int(golden[f"{name}/seed"]))
            whole = golden[f"{name}/greedy"].size == GREEDY_STEPS
            if whole and digest == str(golden[f"{name}/digest"]):
                yield name


def comparison(model_type: str) -> Comparison:
    """What is compared of one family."""
    if model_type not in tiny_family_names():
        return Comparison(model_type, "", (), (), (), ())
    compared = tuple(compared_cases(model_type))
    rules = [key for name, change in BROKEN_RULES if name in compared for key in change]
    tensors = [end for name, end in BROKEN_TENSORS if name in compared]
    return Comparison(
        model_type,
        getattr(tiny_family(model_type), "ORACLE", ORACLE),
        tuple(name for name, case in CASES.items() if case.family == model_type),
        compared,
        tuple(name for name in compared if name not in NOT_IN_GGUF),
        tuple(dict.fromkeys([*rules, *tensors])),
    )


def families_table() -> str:
    """A row for each family that this package implements."""
    lines = [
        "| `model_type` | compared with | cases | from a folder | from GGUF | found when changed |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(comparison(model_type)) for model_type in FAMILIES]
    return "\n".join(lines) + "\n"


def _row(of: Comparison) -> str:
    cells = [f"`{of.model_type}`"]
    if not of.compared:
        return "| " + " | ".join([*cells, "nothing", str(len(of.cases)), "", "", ""]) + " |"
    folder = "all" if len(of.compared) == len(of.cases) else str(len(of.compared))
    absent = [f"`{name}`" for name in of.compared if name not in of.in_gguf]
    gguf = "all" if not absent else f"all but {', '.join(absent)}"
    if not of.in_gguf:
        gguf = "none"
    broken = ", ".join(f"`{name}`" for name in of.broken)
    return "| " + " | ".join([*cells, of.oracle, str(len(of.cases)), folder, gguf, broken]) + " |"
