"""Counts how many published models run here, and names why each other one does not.

    python -m tools.count_models [--configs FOLDER] [--catalog-only] [--json] [--record]

Of each config.json of FOLDER two questions: whether a tiny model of its architecture runs (the
config shrunk by `tools.counts.shrink`, random weights, a folder on disk, 8 greedy tokens), and
whether the checkpoint as published opens (its config is read; quantised ones are refused by the
name of the kind). Of the catalog's open models: whether their architecture is one that runs here,
and whether the checkpoint that the catalog names is one that opens. --record writes what became of
the published configs to RECORD, of which `docs/storage-kinds.md` is made.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from headrace.catalog import Catalog
from headrace.errors import HeadraceError
from headrace.models import FAMILIES, read_config
from headrace.plan.model.published_kind import FLOATS
from headrace.weights.model_config.text_part import text_config
from headrace.weights.storage.quantisation import (
    quantisation_kind,
    stated_quantisation,
    with_quantisation,
)
from tools.counts.shrink import shrunk
from tools.counts.tiny_model import NEW_TOKENS, checkpoint_of, run, write_folder

SUFFIX = "_config.json"
BESIDE = "_hf_quant_config.json"
"""modelopt's own file, which says how a checkpoint is quantised where config.json does not."""


RECORD = Path(__file__).resolve().parent / "counts" / "published.json"


class Outcome(NamedTuple):
    """What became of one model; a reason is "" where nothing was refused."""

    name: str
    architecture: str
    quantised: str
    """The kind that the checkpoint is published in; "" for 16 bits."""
    tiny: str | None
    """Why a tiny model of its architecture does not run; None where that was not tried."""
    published: str
    """Why the checkpoint as published does not open."""


def published_configs(folder: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, config.json and modelopt's file beside it ({} where there is none) of each model."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if path.name.endswith(BESIDE):
            continue
        name = path.name.removesuffix(SUFFIX)
        beside = folder / f"{name}{BESIDE}"
        quantisation = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
        yield name, json.loads(path.read_text("utf-8")), quantisation


def refusal(config: Mapping[str, Any]) -> str:
    """Why a config is not read; "" where it is."""
    try:
        read_config(checkpoint_of(config, {}))
    except HeadraceError as error:
        return str(error)
    return ""


class TinyModels:
    """Tiny models of configs, each run once however many configs shrink to it."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def refusal(self, config: Mapping[str, Any]) -> str:
        """Why the tiny model of a config does not run; "" where it gives its tokens."""
        small = shrunk(config)
        key = json.dumps(small, sort_keys=True)
        if key not in self._reasons:
            self._reasons[key] = refusal(small) or self._run(small)
        return self._reasons[key]

    def _run(self, small: Mapping[str, Any]) -> str:
        with TemporaryDirectory() as scratch:
            tokens = run(write_folder(small, Path(scratch) / "tiny"))
        return "" if len(tokens) == NEW_TOKENS else f"gave {len(tokens)} of {NEW_TOKENS} tokens"


def quantised_as(config: Mapping[str, Any]) -> str:
    """The kind that a config states, in its own word; "" where it states none."""
    stated = stated_quantisation(config)
    return str(quantisation_kind(stated)) if stated else ""


def count_configs(folder: Path) -> Iterator[Outcome]:
    """Every config of a folder, tried both ways."""
    models = TinyModels()
    for name, config, beside in published_configs(folder):
        tiny = models.refusal(config)
        stated = with_quantisation(config, beside)
        kind = quantised_as(stated)
        yield Outcome(name, str(config.get("model_type")), kind, tiny, refusal(stated))


def recorded_configs(folder: Path) -> list[dict[str, str]]:
    """Name and stated kind of every config as published, and why it is refused or ""."""
    recorded = []
    for name, config, beside in published_configs(folder):
        stated = with_quantisation(config, beside)
        reason = shortened(refusal(stated).removeprefix("x: "))
        recorded.append({"name": name, "quantised": quantised_as(stated), "reason": reason})
    return recorded


def count_catalog() -> Iterator[Outcome]:
    """Every open model of the catalog, by its architecture and checkpoint."""
    for row in Catalog.load().models:
        if not row.open_weights:
            continue
        architecture = str(row.architecture)
        known = text_config({"model_type": architecture, "text_config": {}})["model_type"]
        tiny = "" if known in FAMILIES else f"model_type {architecture!r} is not implemented"
        kinds = tuple(row.checkpoints or ())
        plain = not kinds or any(kind in FLOATS for kind in kinds)
        quantised = "" if plain else kinds[0]
        methods = ("fp8", *getattr(FAMILIES.get(known), "quant_methods", ()))
        opens = plain or quantised in methods
        reason = tiny or ("" if opens else f"published in {quantised} alone")
        yield Outcome(row.id, architecture, quantised, tiny, reason)


def as_json(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Counts and outcomes, JSON-ready."""
    kept = list(outcomes)
    plain = [outcome for outcome in kept if not outcome.quantised]
    return {
        "models": len(kept),
        "architectures_run": sum(outcome.tiny == "" for outcome in kept),
        "quantised": len(kept) - len(plain),
        "quantised_open": sum(not item.published for item in kept if item.quantised),
        "plain_open": sum(not item.published for item in plain),
        "plain": len(plain),
        "outcomes": [outcome._asdict() for outcome in kept],
    }


def table(title: str, outcomes: Iterable[Outcome]) -> str:
    """The counts in words, and the reasons of all that is refused, each with its models."""
    kept = list(outcomes)
    counted = as_json(kept)
    lines = [
        f"{title}: {counted['models']} models",
        f"  architectures that run: {counted['architectures_run']}",
        f"  published in 16 bits: {counted['plain']}, of which {counted['plain_open']} open",
        f"  published quantised: {counted['quantised']}, of which {counted['quantised_open']} open",
    ]
    for heading, what in (("does not run", "tiny"), ("does not open", "published")):
        reasons: dict[str, list[str]] = {}
        for outcome in kept:
            if reason := getattr(outcome, what):
                reasons.setdefault(shortened(reason), []).append(outcome.name)
        lines += [
            f"  {heading}, {len(names)}: {reason}\n      {', '.join(names)}"
            for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
        ]
    return "\n".join(lines)


def shortened(reason: str) -> str:
    """A refusal without what is supported and what to do."""
    return reason.partition("; ")[0].partition(" (auto_map")[0].partition(". ")[0][:200]


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    assets = Path(os.environ.get("HEADRACE_ASSETS", "../shared/assets"))
    default = assets / "model-configs" / "hf-config"
    parser.add_argument("--configs", type=Path, default=default, metavar="FOLDER")
    parser.add_argument("--catalog-only", action="store_true", help="leave the configs out")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} and end")
    arguments = parser.parse_args()
    if arguments.record:
        text = json.dumps(recorded_configs(arguments.configs), indent=1)
        RECORD.write_text(text + "\n", encoding="utf-8")
        return
    counted = {"catalog": list(count_catalog())}
    if not arguments.catalog_only:
        counted = {"configs": list(count_configs(arguments.configs)), **counted}
    if arguments.json:
        print(json.dumps({name: as_json(outcomes) for name, outcomes in counted.items()}, indent=1))
        return
    print("\n\n".join(table(name, outcomes) for name, outcomes in counted.items()))


if __name__ == "__main__":
    main()
