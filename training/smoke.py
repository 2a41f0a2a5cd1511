"""The programs of this folder with toys: small shapes, few windows, a corpus of a megabyte.

What is proven is that every stage works and fits the next one; the models are good for nothing.
The corpus is a part of the standard library and, in the place of the packages, what headrace
itself depends on and is therefore installed.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from training.models.config import BASE, DRAFT
from training.models.head_config import HEADS
from training.models.moe_config import MOE
from training.programs import RunProgram, run_forked
from training.stages import Effort

# click and email are among what the corpus holds out; starlette has type annotations.
DISTRIBUTIONS = ("click", "starlette")
MODULES = (
    "argparse ast bisect calendar collections configparser contextlib copy csv dataclasses "
    "datetime difflib email enum fractions functools heapq html http importlib inspect "
    "json pathlib random shlex shutil statistics string tempfile textwrap tomllib typing uuid"
)
# Some conversations are about examples in docstrings, of which the held-out modules have none.
EXAMPLES = '''\
"""Small sums, with examples."""


def doubled(number):
    """Return twice the number.

    >>> doubled(4)
    8
    """
    return 2 * number


def shortened(text, length):
    """Return the beginning of the text, with at most so many characters.

    >>> shortened("headrace", 4)
    'head'
    """
    return text[:length]
'''
EXAMPLES_PATH = Path("wsgiref") / "examples.py"
VOCABULARY = 1024
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
NARROW = {"vocab_size": 512, "num_attention_heads": 2, "num_key_value_heads": 1}
# Every module's constants of these names; all others are as in earnest.
TOYS: dict[str, Any] = {
    "BASE": replace(BASE, intermediate_size=96, **SHAPE),
    "DRAFT": replace(DRAFT, intermediate_size=64, **(SHAPE | {"num_hidden_layers": 1})),
    "HEADS": {
        "head": replace(HEADS["head"], feature_layers=(0, 1, 2), **NARROW),
        "mtp": replace(HEADS["mtp"], **NARROW),
    },
    "MOE": replace(MOE, intermediate_size=96, moe_intermediate_size=32, **SHAPE),
    "HELD_OUT_WINDOWS": 4,
    "COMPLETION_TOKENS": 24,
}
# Conversations of each kind, as a share of what is wanted in earnest.
TURNS_SHARE = 0.02
# Two steps of an adapter, whose texts are no more than it trains on and fill a batch; others make
# one or two, too.
TRAINING_TOKENS = 12_288


def effort(work: Path) -> Effort:
    """The arguments that make each stage's work small."""
    library = work / "packages" / "library"
    training = ("--tokens", str(TRAINING_TOKENS), "--workers", "1", "--device", "cpu")
    return Effort(
        packages_there=_library_is_there,
        corpus=("--root", str(library)),
        vocabulary=("--vocabulary-size", str(VOCABULARY)),
        training=(*training, "--no-compile", "--no-bfloat16"),
        heldout=("--share", "0.02", "--no-bfloat16"),
        acceptance=("--prefixes", "2", "--no-bfloat16"),
        styles=("--heads", "4", "--windows", "2", "--max-tokens", "32"),
        baselines=("--every", "128"),
    )


def _library_is_there(packages: Path) -> bool:
    wanted: list[str | Path] = [*_modules(), EXAMPLES_PATH]
    return all((packages / "library" / name).exists() for name in wanted)


def _modules() -> list[str]:
    root = Path(sysconfig.get_path("stdlib"))
    return [name if (root / name).is_dir() else f"{name}.py" for name in MODULES.split()]


def write_packages(out: Path) -> None:
    """What the stage "packages" makes: installed distributions, and a piece of the library."""
    for name in DISTRIBUTIONS:
        _copy_distribution(distribution(name), out)
    root = Path(sysconfig.get_path("stdlib"))
    (out / "library").mkdir(parents=True, exist_ok=True)
    for name in _modules():
        source, target = root / name, out / "library" / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    examples = out / "library" / EXAMPLES_PATH
    examples.parent.mkdir(exist_ok=True)
    examples.write_text(EXAMPLES)


def _copy_distribution(source: Distribution, out: Path) -> None:
    for file in source.files or []:
        origin = Path(str(source.locate_file(file)))
        if ".." not in file.parts and origin.is_file():
            target = out / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, target)


def shrink(modules: list[ModuleType]) -> None:
    """Put the toys in the places of the constants."""
    for module in modules:
        for name, toy in TOYS.items():
            if hasattr(module, name):
                setattr(module, name, toy)
        if hasattr(module, "WANTED"):
            few = {kind: max(2, round(n * TURNS_SHARE)) for kind, n in module.WANTED.items()}
            module.WANTED = few  # type: ignore[attr-defined]


def runner() -> RunProgram:
    """Runs programs with toys. To import PyTorch and its compiler takes most of them longer than
    their work, so it is done once, before the first program that is run."""
    forked = run_forked(run_small)

    def run(module: str, arguments: Sequence[str]) -> int:
        importlib.import_module("torch._dynamo")
        return forked(module, arguments)

    return run


def run_small(name: str, arguments: Sequence[str]) -> None:
    """The main of a module, in a process that does nothing else."""
    sys.argv = [name, *arguments]
    if name == "training.data.packages":
        write_packages(Path(arguments[arguments.index("--out") + 1]))
        return
    program = importlib.import_module(name)
    shrink([module for key, module in sys.modules.items() if key.startswith("training.")])
    program.main()
