"""The plan of the family: what is made from what, by which commands, and when it is there.

A stage is done when everything it makes is there and no file it is made from is newer; a run is
done when its checkpoint says that the budget is used. Commands are programs of this folder. Knows
nothing of running them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

from headrace.models import FAMILIES
from training.members import MEMBERS, PROVENANCE_FILE
from training.models.config import CHECKPOINT_NAME, read_note
from training.models.head_config import HEADS

PACKAGES_FILE = Path(__file__).parent / "data" / "packages.txt"
ARCHITECTURES = {"base": "qwen3", "draft": "qwen3", "moe": "glm4_moe"}
State = Literal["done", "missing", "begun", "outdated"]
Command = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One step of the plan. A command is a module of training and its arguments.

    `made` are files; the last ones made must be last. `run` is the folder of a training run, which
    goes on from its checkpoint and is never begun anew of its own accord. `there` says what no
    file can say.
    """

    name: str
    commands: tuple[Command, ...]
    made_from: tuple[Path, ...]
    made: tuple[Path, ...]
    run: Path | None = None
    there: Callable[[], bool] | None = None

    def state(self) -> State:
        """Whether there is something to do."""
        if self.there is not None:
            return "done" if self.there() else "missing"
        if self.run is not None and (checkpoint := self.run / CHECKPOINT_NAME).exists():
            note = read_note(checkpoint)
            if note["progress"]["tokens"] < note["settings"]["tokens"]:
                return "begun"
        if not all(path.exists() for path in self.made):
            return "missing"
        return "outdated" if self.newer_sources() else "done"

    def newer_sources(self) -> list[Path]:
        """What of `made_from` was written after the oldest file that is made."""
        oldest_s = min(path.stat().st_mtime for path in self.made)
        return [p for p in self.made_from if p.exists() and p.stat().st_mtime > oldest_s]


def packages_are_there(folder: Path) -> bool:
    """Whether every line of packages.txt is installed in `folder`, in its version."""
    lines = PACKAGES_FILE.read_text().split("\n")
    wanted = {line for line in lines if line and not line.startswith("#")}
    found = {
        f"{str(d.metadata['Name']).lower().replace('_', '-').replace('.', '-')}=={d.version}"
        for d in distributions(path=[str(folder)])
    }
    return wanted <= found


@dataclass(frozen=True)
class Effort:
    """How much work is put into the stages: arguments added to the commands of some."""

    packages_there: Callable[[Path], bool] = packages_are_there
    corpus: Command = ()
    vocabulary: Command = ()
    training: Command = ()
    heldout: Command = ()
    acceptance: Command = ()
    styles: Command = ()
    baselines: Command = ()


FULL = Effort()


def plan(work: Path, root: Path, effort: Effort = FULL) -> list[Stage]:
    """All stages in their order. `work` gets what is made, `root` is the repository."""
    corpus, tokenizer = work / "corpus" / "train.jsonl", work / "tokenizer" / "tokenizer.json"
    turns = work / "turns" / "train.jsonl"
    data = (corpus, tokenizer, turns)
    checkpoints = {name: work / name / CHECKPOINT_NAME for name in [*MEMBERS, "moe-control"]}
    base = checkpoints["base"]

    def trained(name: str, program: Command, *sources: Path, then: tuple[Path, ...] = ()) -> Stage:
        out = work / name
        places: Command = ("--data", str(work), "--out", str(out))
        if name != "base":
            places = ("--base", str(work / "base"), *places)
        return Stage(
            name,
            ((*program, *places, *effort.training),),
            (*data, *sources),
            (checkpoints[name], *then),
            run=out,
        )

    corpus_folder = ("--corpus", str(work / "corpus"))
    stages = [
        Stage(
            "packages",
            (("data.packages", "--out", str(work / "packages")),),
            made_from=(),
            made=(),
            there=lambda: effort.packages_there(work / "packages"),
        ),
        Stage(
            "corpus",
            (
                (
                    "data.corpus",
                    "--packages",
                    str(work / "packages"),
                    "--out",
                    str(work / "corpus"),
                    *effort.corpus,
                ),
            ),
            (PACKAGES_FILE,),
            (corpus, work / "corpus" / "heldout.jsonl", work / "corpus" / "provenance.json"),
        ),
        Stage(
            "tokenizer",
            (
                (
                    "data.tokenizer",
                    *corpus_folder,
                    "--out",
                    str(tokenizer.parent),
                    *effort.vocabulary,
                ),
            ),
            (corpus,),
            (tokenizer,),
        ),
        Stage(
            "turns",
            (("turns.conversations", *corpus_folder, "--out", str(turns.parent)),),
            (corpus,),
            (turns, turns.with_name("heldout.jsonl")),
        ),
        trained("base", ("base",)),
        trained("draft", ("draft",), base),
        *(trained(name, ("head", name), base) for name in HEADS),
        trained("moe", ("moe",), base),
        trained("moe-control", ("moe", "--control"), base),
        *(
            trained(
                style,
                ("adapters", style),
                base,
                then=(work / style / "adapter" / "adapter_config.json",),
            )
            for style in ("typed", "terse")
        ),
        *(_export(work, name, checkpoints[name], tokenizer) for name in MEMBERS),
    ]
    return [*stages, *measures(work, effort), *_published(work, root)]


def exported(work: Path, name: str) -> Path:
    """The folder that a member is exported to."""
    return work / "export" / MEMBERS[name].name


def exported_gguf(work: Path, name: str) -> Path:
    return work / "export" / MEMBERS[name].gguf.name


def _export(work: Path, name: str, checkpoint: Path, tokenizer: Path) -> Stage:
    folder = exported(work, name)
    places: Command = ("--run", str(work / name), "--data", str(work), "--out", str(folder))
    if MEMBERS[name].kind == "adapter":
        made: tuple[Path, ...] = (folder / "adapter_config.json",)
    elif MEMBERS[name].kind == "head":
        made = tuple(folder / file for file in reversed(MEMBERS[name].folder_files))
    else:
        made = (folder / "config.json", exported_gguf(work, name))
        places = (*places, "--gguf", str(exported_gguf(work, name)))
    return Stage(f"export-{name}", (("export", *places),), (checkpoint, tokenizer), made)


def measures(work: Path, effort: Effort) -> list[Stage]:
    """The stages that write the figures of the cards, below `work`/measures."""
    folder = work / "measures"
    heldout = work / "corpus" / "heldout.jsonl"
    tokenizer = work / "tokenizer" / "tokenizer.json"
    places: Command = ("--data", str(work))

    def measured(name: str, command: Command, *sources: Path, flag: str = "--json") -> Stage:
        out = folder / f"{name}.json"
        return Stage(
            f"measure-{name}",
            ((*command, *places, flag, str(out)),),
            (heldout, tokenizer, *sources),
            (out,),
        )

    checkpoints = {name: str(work / name / CHECKPOINT_NAME) for name in [*MEMBERS, "moe-control"]}
    base, draft = checkpoints["base"], checkpoints["draft"]
    # headrace writes the samples, so only what it serves has any.
    sampled = [name for name in ("base", "draft", "moe") if ARCHITECTURES[name] in FAMILIES]
    adapters = [exported(work, name) for name in ("typed", "terse")]
    named = [f"--adapter={folder.name.removeprefix('headrace-')}={folder}" for folder in adapters]
    return [
        measured("baselines", ("measure.baselines", *effort.baselines)),
        *(
            measured(
                name,
                ("measure.held_out", checkpoints[name], *effort.heldout),
                Path(checkpoints[name]),
            )
            for name in ("base", "draft", "moe", "moe-control")
        ),
        measured(
            "acceptance",
            ("measure.acceptance", base, draft, *effort.acceptance),
            Path(base),
            Path(draft),
        ),
        *(
            measured(
                f"{name}-acceptance",
                ("measure.head_acceptance", base, str(exported(work, name)), *effort.acceptance),
                Path(base),
                *(exported(work, name) / file for file in MEMBERS[name].folder_files),
            )
            for name in HEADS
        ),
        *(
            measured(
                f"samples-{name}",
                ("measure.samples", str(exported_gguf(work, name))),
                exported_gguf(work, name),
            )
            for name in sampled
        ),
        measured(
            "adapters",
            ("adapters", "measure", "--base", str(work / "base"), *named, *effort.styles),
            Path(base),
            *(folder / "adapter_config.json" for folder in adapters),
            flag="--out",
        ),
    ]


def _published(work: Path, root: Path) -> list[Stage]:
    """Cards, provenance, and the copies in the repository."""
    cards = []
    figures = sorted({stage.made[0] for stage in measures(work, FULL)})
    for name, member in MEMBERS.items():
        card = work / "cards" / f"{member.name}.md"
        command: Command = ("cards.card", name, "--work", str(work), "--out", str(card))
        sources = (work / name / CHECKPOINT_NAME, *figures)
        cards.append(Stage(f"card-{name}", (command,), sources, (card,)))
    provenance = work / "corpus" / "provenance.json"
    placed = [path for card in cards for path in card.made]
    for name, member in MEMBERS.items():
        placed.append(
            exported(work, name) / member.folder_files[-1]
            if member.folder_files
            else exported_gguf(work, name)
        )
    made = [root / member.card for member in MEMBERS.values()]
    made += [
        root / member.place / member.folder_files[0] if member.folder_files else root / member.gguf
        for member in MEMBERS.values()
    ]
    page = root / PROVENANCE_FILE
    listing: Command = ("data.provenance", "--corpus", str(work / "corpus"), "--out", str(page))
    copying: Command = ("place", "--work", str(work), "--root", str(root))
    return [
        *cards,
        Stage("provenance", (listing,), (provenance,), (page,)),
        Stage("place", (copying,), tuple(placed), tuple(made)),
    ]
