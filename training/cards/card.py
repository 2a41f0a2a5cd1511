"""Write the model card of a member of the family: no figure in it is typed by hand.

    python -m training.cards.card base --work build/train \\
        --out build/train/cards/headrace-base.md

With --renew only the section about other software is written again, into a card that is there: the
reports it comes from need a GGUF file (take_up.py) and the held-out files, and no run.

Figures come from the note of the member's checkpoint, the files below `work`/measures (measure,
baselines, acceptance, samples and adapters write them), the corpus's list of provenance, and the
times of the family. The sections are in sections.py and results.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from training.cards import results, schedule, sections
from training.data.provenance import Part, parts
from training.family import Times, seconds_of
from training.members import MEMBERS, PROVENANCE_FILE, Member
from training.models.config import CHECKPOINT_NAME, read_note
from training.stages import exported, exported_gguf, plan

OTHER_SOFTWARE = "\n## Other software\n"


@dataclass(frozen=True)
class Evidence:
    """What a card may speak of. `measures` are JSON files by name; what is not there is not told.

    `files` holds the bytes of each exported file, `n_parameters` is of the exported weights,
    `seconds` are those of the family's stages.
    """

    member: Member
    note: dict[str, Any]
    measures: dict[str, Any]
    provenance: list[Part]
    provenance_sha256: str
    machine: str
    seconds: dict[str, float]
    files: dict[str, int]
    n_parameters: int
    n_conversations: int
    provenance_link: str

    def measured(self, name: str) -> dict[str, Any]:
        """One of `measures`; KeyError, naming what writes it, when it is not there."""
        if name not in self.measures:
            raise KeyError(
                f"measures/{name}.json is not there: python -m training.family "
                f"--only measure-{name} writes it"
            )
        found: dict[str, Any] = self.measures[name]
        return found


def count_parameters(weights: Path) -> int:
    """Numbers that were learnt in a safetensors file: tables of ids, and scales, are none."""
    with safe_open(weights, framework="np") as file:
        names = [name for name in file.keys() if not name.endswith("_scale")]  # noqa: SIM118
        slices = [file.get_slice(name) for name in names]
        learnt = [of for of in slices if of.get_dtype().startswith(("F", "BF", "I8"))]
        return sum(math.prod(of.get_shape()) for of in learnt)


def gather(run: str, work: Path) -> Evidence:
    """Read everything about a member below `work`. Raises FileNotFoundError for a missing part."""
    member, folder = MEMBERS[run], exported(work, run)
    weights = folder / "model.safetensors"
    files = [exported_gguf(work, run)]
    if member.folder_files:
        files = [folder / name for name in member.folder_files]
        weights = files[0]
    raw = (work / "corpus" / "provenance.json").read_bytes()
    with (work / "turns" / "train.jsonl").open() as lines:
        n_conversations = sum(1 for _ in lines)
    times = Times(work / "times.json")
    return Evidence(
        member=member,
        note=read_note(work / run / CHECKPOINT_NAME),
        measures=read_measures(work / "measures"),
        provenance=parts(json.loads(raw)),
        provenance_sha256=hashlib.sha256(raw).hexdigest(),
        machine=times.read()["machine"],
        seconds=seconds_of(plan(work, Path()), times),
        files={path.name: path.stat().st_size for path in files},
        n_parameters=count_parameters(weights),
        n_conversations=n_conversations,
        provenance_link=os.path.relpath(PROVENANCE_FILE, member.place),
    )


def render(evidence: Evidence) -> str:
    """The card."""
    member = evidence.member
    parts_of_card = [
        f"# {member.name}\n\n{sections.introduction(evidence)}",
        sections.files(evidence),
        sections.shape(evidence),
        sections.data(evidence),
        schedule.training(evidence),
    ]
    if member.kind == "model":
        parts_of_card.append(results.prediction(evidence))
    if member.run == "draft":
        parts_of_card.append(results.acceptance(evidence))
    if member.kind == "head":
        parts_of_card.append(results.head_acceptance(evidence))
    if member.run == "moe":
        parts_of_card.append(results.experts(evidence))
    if member.kind == "adapter":
        parts_of_card.append(results.style(evidence))
    parts_of_card.append(results.samples(evidence))
    parts_of_card.append(results.agreement(evidence))
    parts_of_card.append(sections.limits(evidence))
    parts_of_card.append(sections.rebuild(evidence))
    return "\n\n".join(part for part in parts_of_card if part) + "\n"


def renewed(card: str, measures: Mapping[str, Any], run: str) -> str:
    """`card` with its section about other software as `measures` have it now.

    Raises ValueError where the card has no such section.
    """
    before, heading, rest = card.partition(OTHER_SOFTWARE)
    if not heading:
        raise ValueError(f"the card has no section {OTHER_SOFTWARE.strip()!r}: write it whole")
    _, following, after = rest.partition("\n## ")
    section = results.other_software(measures, run)
    return f"{before}\n{section}\n{following}{after}"


def read_measures(folder: Path) -> dict[str, Any]:
    """The JSON files of a folder by name."""
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a member's model card.")
    parser.add_argument("member", choices=MEMBERS)
    parser.add_argument("--work", type=Path, default=Path("build/train"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--renew", action="store_true", help="one section of the card in --out")
    arguments = parser.parse_args()
    if arguments.renew:
        card = arguments.out.read_text(encoding="utf-8")
        text = renewed(card, read_measures(arguments.work / "measures"), arguments.member)
    else:
        text = render(gather(arguments.member, arguments.work))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
