"""The family: what is to do, what is passed over, what may not be placed, and all of it at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from headrace.weights.hugging_face.head_folder import open_head_folder
from headrace.weights.open import open_checkpoint
from tests.training.toy_training import SHAPE
from training import place as placing
from training.cards.markdown import block, table
from training.data.provenance import page, parts
from training.family import Times, chosen, make, seconds_of
from training.members import MEMBERS
from training.models.config import CHECKPOINT_NAME, NOTE_KEY
from training.stages import PACKAGES_FILE, Stage, packages_are_there, plan

ROOT = Path(__file__).resolve().parents[2]
# About a minute of processor time; machines may be busy with something else.
SMOKE_LIMIT_S = 1800


def write_checkpoint(run: Path, tokens: int, budget: int, counted_s: float = 60.0) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    note = {
        "progress": {"tokens": tokens, "counted_s": counted_s},
        "settings": {"tokens": budget},
        "model": asdict(SHAPE),
    }
    path = run / CHECKPOINT_NAME
    save_file({"x": np.zeros(1, np.float32)}, path, metadata={NOTE_KEY: json.dumps(note)})
    return path


def age(path: Path, hours: float) -> None:
    then_s = time.time() - 3600 * hours
    os.utime(path, (then_s, then_s))


class Programs:
    """Stands in for the programs of stages: notes what is called, and makes their files."""

    def __init__(self, statuses: dict[str, int] | None = None) -> None:
        self.called: list[str] = []
        self.statuses = statuses or {}

    def __call__(self, module: str, arguments: Sequence[str]) -> int:
        name = module.removeprefix("training.")
        self.called.append(name)
        status = self.statuses.get(name, 0)
        if status == 0:
            for path in arguments:
                Path(path).write_text("made")
        return status


@pytest.fixture
def stages(tmp_path: Path) -> list[Stage]:
    """A chain of three: one -> two -> three."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    return [
        Stage("one", (("a", str(one)),), (), (one,)),
        Stage("two", (("b", str(two)),), (one,), (two,)),
        Stage("three", (("c", str(three)),), (two,), (three,)),
    ]


def made(stages: Sequence[Stage], tmp_path: Path, **statuses: int) -> list[str]:
    programs = Programs(statuses)
    make(stages, Times(tmp_path / "times.json"), programs)
    return programs.called


def test_what_is_there_is_passed_over(stages: list[Stage], tmp_path: Path) -> None:
    assert made(stages, tmp_path) == ["a", "b", "c"]
    assert made(stages, tmp_path) == []
    (tmp_path / "three").unlink()
    assert made(stages, tmp_path) == ["c"]


def test_what_is_older_than_its_sources_is_made_again(stages: list[Stage], tmp_path: Path) -> None:
    made(stages, tmp_path)
    for hours, name in enumerate(("three", "one", "two")):
        age(tmp_path / name, hours)
    assert [stage.state() for stage in stages] == ["done", "outdated", "done"]
    # What is made again is newer than what is made of it.
    assert made(stages, tmp_path) == ["b", "c"]


def test_a_failure_ends_it_and_is_named(stages: list[Stage], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="two: exit status 1 of b"):
        made(stages, tmp_path, b=1)
    assert made(stages, tmp_path) == ["b", "c"]


def test_what_a_stage_is_made_from_has_to_be_there(stages: list[Stage], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"three: .*/two is not there: run the stages before it"):
        made(stages[2:], tmp_path)


def test_a_stage_that_makes_nothing_is_noticed(tmp_path: Path) -> None:
    stage = Stage("idle", (("a",),), (), (tmp_path / "never",))
    with pytest.raises(SystemExit, match="idle: its commands ended well, but it is missing still"):
        made([stage], tmp_path)


def test_runs_go_on_until_their_budget_is_used(tmp_path: Path) -> None:
    run = tmp_path / "base"
    corpus = tmp_path / "corpus"
    corpus.write_text("text")
    stage = Stage("base", (("base",),), (corpus,), (run / CHECKPOINT_NAME,), run=run)
    assert stage.state() == "missing"
    write_checkpoint(run, tokens=50, budget=100)
    # A run that was begun goes on, whatever has changed since.
    age(run / CHECKPOINT_NAME, 1)
    assert stage.state() == "begun"
    with pytest.raises(SystemExit) as stopped:
        made([stage], tmp_path, base=3)
    assert stopped.value.code == 3
    write_checkpoint(run, tokens=101, budget=100)
    assert stage.state() == "done"
    age(run / CHECKPOINT_NAME, 1)
    with pytest.raises(SystemExit, match=r"is older than corpus: remove that folder .* or touch"):
        made([stage], tmp_path)


def test_times_add_up_over_runs_and_count_steps_made_elsewhere(tmp_path: Path) -> None:
    times = Times(tmp_path / "times.json")
    times.add("one", 1.5)
    times.add("one", 2.0)
    assert times.read()["stages"] == {"one": 3.5}
    assert "CPUs" in times.read()["machine"]
    run = tmp_path / "base"
    write_checkpoint(run, tokens=1, budget=1, counted_s=70.0)
    stages = [
        Stage("one", (), (), ()),
        Stage("base", (), (), (run / CHECKPOINT_NAME,), run=run),
    ]
    assert seconds_of(stages, times) == {"one": 3.5, "base": 70.0}
    times.add("base", 90.0)
    assert seconds_of(stages, times)["base"] == 90.0


def test_only_names_stages_and_groups(tmp_path: Path) -> None:
    stages = plan(tmp_path, tmp_path)
    assert [stage.name for stage in chosen(stages, ["moe"])] == ["moe"]
    assert [stage.name for stage in chosen(stages, ["card"])] == [f"card-{run}" for run in MEMBERS]
    assert chosen(stages, []) == stages
    with pytest.raises(ValueError, match="--only mo: no such stage; there are base"):
        chosen(stages, ["mo"])


def test_the_plan_makes_everything_before_it_is_used(tmp_path: Path) -> None:
    root = tmp_path / "root"
    stages = plan(tmp_path / "work", root)
    there: set[Path] = {PACKAGES_FILE}
    for stage in stages:
        assert set(stage.made_from) <= there, stage.name
        there |= set(stage.made)
        for module, *_ in stage.commands:
            assert (ROOT / "training" / f"{module.replace('.', '/')}.py").is_file()
    assert {root / member.card for member in MEMBERS.values()} <= there
    assert len({stage.name for stage in stages}) == len(stages)


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training.family", "--work", str(tmp_path / "work")]
    done = subprocess.run(
        [*command, "--dry-run", "--json"], cwd=ROOT, capture_output=True, check=True, timeout=120
    )
    report = json.loads(done.stdout)
    assert report["total_seconds"] == 0
    assert [entry["stage"] for entry in report["stages"]] == [
        stage.name for stage in plan(tmp_path, tmp_path)
    ]
    # The last two, provenance and place, write into the repository, where an earlier run's may be.
    assert {entry["state"] for entry in report["stages"][:-2]} == {"missing"}
    assert not (tmp_path / "work").exists()


def test_packages_are_known_by_name_and_version(tmp_path: Path) -> None:
    assert not packages_are_there(tmp_path)
    pinned = [line for line in PACKAGES_FILE.read_text().split("\n") if "==" in line]
    assert len(pinned) > 100
    for line in pinned:
        name, _, version = line.partition("==")
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        # Names are written in several ways, which mean the same.
        written = name.replace("-", ".").title()
        (info / "METADATA").write_text(f"Name: {written}\nVersion: {version}\n")
    assert packages_are_there(tmp_path)
    (info / "METADATA").write_text("Name: other\nVersion: 1\n")
    assert not packages_are_there(tmp_path)


def write_exports(work: Path) -> None:
    (work / "cards").mkdir(parents=True)
    for run, member in MEMBERS.items():
        (work / "cards" / f"{member.name}.md").write_text(f"# {member.name}\n")
        placing.exported(work, run).mkdir(parents=True)
        if member.kind == "model":
            placing.exported_gguf(work, run).write_bytes(b"GGUF")
        for name in member.folder_files:
            (placing.exported(work, run) / name).write_text(name)


def test_members_are_placed_where_they_belong(tmp_path: Path) -> None:
    work, root = tmp_path / "work", tmp_path / "root"
    write_exports(work)
    placing.place(work, root)
    placed = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert placed == {
        "src/headrace/embedded/CARD.md",
        "src/headrace/embedded/headrace-base-q8_0.gguf",
        "models/headrace-draft/CARD.md",
        "models/headrace-draft/headrace-draft-q8_0.gguf",
        "models/headrace-head/CARD.md",
        "models/headrace-head/config.json",
        "models/headrace-head/model.safetensors",
        "models/headrace-mtp/CARD.md",
        "models/headrace-mtp/config.json",
        "models/headrace-mtp/model.safetensors",
        "models/headrace-moe/CARD.md",
        "models/headrace-moe/headrace-moe-q8_0.gguf",
        "models/headrace-typed/CARD.md",
        "models/headrace-typed/adapter_config.json",
        "models/headrace-typed/adapter_model.safetensors",
        "models/headrace-terse/CARD.md",
        "models/headrace-terse/adapter_config.json",
        "models/headrace-terse/adapter_model.safetensors",
    }


def test_members_are_placed_one_by_one_and_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, root = tmp_path / "work", tmp_path / "root"
    write_exports(work)
    placing.place(work, root, ["moe"])
    assert {path.name for path in root.rglob("*") if path.is_file()} == {
        "CARD.md",
        "headrace-moe-q8_0.gguf",
    }
    n_bytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    monkeypatch.setattr(placing, "MAX_OTHER_BYTES", n_bytes)
    with pytest.raises(ValueError, match="the others together"):
        placing.place(work, root, ["typed"])


@pytest.mark.parametrize(
    ("run", "what"),
    [("base", "the base"), ("mtp", "the heads together"), ("moe", "the others together")],
)
def test_what_is_too_large_is_not_placed(
    run: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, root = tmp_path / "work", tmp_path / "root"
    write_exports(work)
    monkeypatch.setattr(placing, "MAX_BASE_BYTES", 200)
    monkeypatch.setattr(placing, "MAX_HEADS_BYTES", 200)
    monkeypatch.setattr(placing, "MAX_OTHER_BYTES", 300)
    member = MEMBERS[run]
    large = work / "export" / member.gguf.name
    if member.folder_files:
        large = placing.exported(work, run) / member.folder_files[0]
    large.write_bytes(b"GGUF" * 100)
    with pytest.raises(ValueError, match=f"{what}: .* make the model smaller"):
        placing.place(work, root)
    assert not root.exists()


def test_provenance_counts_files_by_licence_and_split() -> None:
    def files(split: str, *sizes: int) -> list[dict[str, object]]:
        return [{"path": f"{n}.py", "n_bytes": n, "sha256": "0", "split": split} for n in sizes]

    packages = [
        {"name": "b", "version": "2", "licence": "MIT", "files": files("train", 1000, 500)},
        {
            "name": "a",
            "version": "1",
            "licence": "PSF-2.0",
            "files": [*files("train", 7), *files("heldout", 8)],
        },
        {"name": "c", "version": "3", "licence": "MIT", "files": []},
    ]
    raw = json.dumps({"packages": packages}).encode()
    assert [part[3:] for part in parts(json.loads(raw))] == [
        ("heldout", 1, 8),
        ("train", 1, 7),
        ("train", 2, 1500),
    ]
    text = page(raw)
    assert "| MIT | 1 | 2 | 1,500 |" in text
    assert "| a | 1 | PSF-2.0 | heldout | 1 | 8 |" in text
    assert "Apache-2.0" in text


def test_blocks_hold_any_text_and_tables_any_cell() -> None:
    assert block("a ``` b", "python") == "````python\na ``` b\n````"
    assert block("x\n") == "```\nx\n```"
    assert table(("n", "what"), [(1234, "a|b")]) == (
        "| n | what |\n| ---: | --- |\n| 1,234 | a\\|b |"
    )


@pytest.mark.torch
def test_the_whole_family_is_made_of_toys(tmp_path: Path) -> None:
    """Every stage of `make models`, one after another, by the programs themselves."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    work = tmp_path / "work"
    command = [sys.executable, "-m", "training.family", "--smoke", "--work", str(work)]
    done = subprocess.run(
        [*command, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SMOKE_LIMIT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert {entry["state"] for entry in report["stages"]} == {"done"}
    assert report["total_seconds"] > 0
    root = work / "repository"
    for run, member in MEMBERS.items():
        card = (root / member.card).read_text()
        assert card.startswith(f"# {member.name}\n")
        assert "## Limits" in card and str(tmp_path) not in card
        if member.kind == "model":
            checkpoint = open_checkpoint(root / member.gguf)
            assert set(checkpoint.eos_token_ids) == {0, 2}, run
    for name in ("head", "mtp"):
        head = open_head_folder(root / MEMBERS[name].place)
        assert head.config["draft_vocab_size"] == 512
    assert "starlette" in (root / "models" / "PROVENANCE.md").read_text()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0 and "==" not in again.stderr
