"""`headrace quantize --format` as it is typed; llm-compressor is stood in for where it begins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.cli.quantize_folder import DEFAULT_WINDOWS
from headrace.cli.written_model import made_beside
from headrace.errors import ConfigError, HeadraceError
from headrace.eval.mixes.order import TARGET_WINDOWS
from headrace.weights.compress import library
from headrace.weights.compress.formats import FORMATS
from headrace.weights.compress.library import Job
from headrace.weights.open import open_checkpoint
from tests.models.fp8_folders import LAYOUTS, Folders, write_fp8
from tests.tiny import write_tiny_gguf

TEXT = "What is read is what matters. " * 60


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["quantize", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    place = tmp_path_factory.mktemp("folders")
    return write_fp8(place, "llama", LAYOUTS["compressed channel"], layers=1)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, folders: Folders) -> list[Job]:
    """What is asked of the library, which always makes the same folder."""
    asked: list[Job] = []

    def run_job(job: Job, work: Path, python: Path) -> str:
        asked.append(job)
        shutil.copytree(folders.fp8, job.out)
        return "llm-compressor 0"

    monkeypatch.setattr(library, "run_job", run_job)
    monkeypatch.setattr(library, "check_installed", lambda python: None)
    return asked


def test_a_folder_is_made_and_described(jobs: list[Job], folders: Folders, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second = run(str(folders.plain), str(out), "--format", "FP8").output.splitlines()
    assert first.startswith(f"{out}: fp8, ") and first.endswith("s by llm-compressor 0")
    assert "F8_E4M3" in second
    assert jobs[0].source == str(folders.plain) and jobs[0].windows == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(ConfigError, match="exists already; --force replaces it"):
        run(str(folders.plain), str(out), "--format", "fp8")
    (out / "of the old one").touch()
    told = json.loads(
        run(str(folders.plain), str(out), "--format", "fp8", "--force", "--json").output
    )
    assert told["format"] == "fp8" and told["path"] == str(out)
    assert not (out / "of the old one").exists()


def test_a_file_is_converted_first(jobs: list[Job], tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path, "llama", "Q8_0", layers=1))
    (tmp_path / "made").mkdir()
    out = str(tmp_path / "made" / "out")
    with pytest.raises(ConfigError, match=r"is Q8_0 already.*give --allow-requantize"):
        run(model, out, "--format", "fp8")
    assert not jobs
    run(model, out, "--format", "fp8", "--allow-requantize")
    (job,) = jobs
    assert Path(job.source).is_relative_to(tmp_path / "made") and not Path(job.source).exists()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["out"]


def test_a_text_is_read_by_formats_that_need_one(
    jobs: list[Job], folders: Folders, tmp_path: Path
) -> None:
    text, out = tmp_path / "text.txt", str(tmp_path / "out")
    text.write_text(TEXT, encoding="utf-8")
    options = ["--text", str(text), "--context", "16", "--threads", "1"]
    run(str(folders.plain), out, "--format", "fp8-static", *options)
    assert len(jobs[0].windows) == min(DEFAULT_WINDOWS, len(jobs[0].windows)) > 16
    assert {len(window) for window in jobs[0].windows} == {16}
    run(str(folders.plain), out, "--format", "fp8-static", *options, "--windows", "3", "--force")
    assert len(jobs[1].windows) == 3 and jobs[1].windows == jobs[0].windows[:3]
    for name, layout in FORMATS.items():
        words = ["--format", name, "--force"]
        if layout.reads_text:
            with pytest.raises(ConfigError, match="made while the model reads: name a UTF-8 file"):
                run(str(folders.plain), out, *words)
        else:
            with pytest.raises(ConfigError, match=f"--text: {name} is made without a text"):
                run(str(folders.plain), out, *words, *options)


def test_a_failure_leaves_the_old_folder(
    monkeypatch: pytest.MonkeyPatch, jobs: list[Job], folders: Folders, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(str(folders.plain), str(out), "--format", "fp8")
    before = open_checkpoint(out).nbytes

    def fails(job: Job, work: Path, python: Path) -> str:
        shutil.copytree(folders.fp8, job.out)
        raise HeadraceError("it ended")

    monkeypatch.setattr(library, "run_job", fails)
    with pytest.raises(HeadraceError, match="it ended"):
        run(str(folders.plain), str(out), "--format", "fp8", "--force")
    assert open_checkpoint(out).nbytes == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_left_is_removed_and_what_another_makes_stays(
    jobs: list[Job], folders: Folders, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    killed, other = tmp_path / ".out.part.abc_1234", tmp_path / ".out.more.part.abc_1234"
    for folder in (killed, other):
        (folder / "out.work").mkdir(parents=True)
        (folder / "out.work" / "job.json").touch()
    with made_beside(out) as living:
        run(str(folders.plain), str(out), "--format", "fp8")
        assert not killed.exists() and living.parent.is_dir()
        assert {path.name for path in tmp_path.iterdir()} == {
            "out", other.name, living.parent.name,
        }  # fmt: skip
        living.mkdir()
    assert {path.name for path in tmp_path.iterdir()} == {"out", other.name}


def test_what_does_not_go_together_is_named(folders: Folders, tmp_path: Path) -> None:
    source, out = str(folders.plain), str(tmp_path / "out")
    for arguments, message in (
        (["--format", "int3"], "--format 'int3' is not made; these are: fp8,"),
        (["--format", "fp8", "--type", "Q8_0"], "--type and --format exclude each other"),
        (["--format", "fp8", "--pure"], "--pure: --format makes all matrices"),
        (["--format", "fp8", "--imatrix", "i"], "--imatrix: --format makes"),
        (["--format", "fp8", "--tensor-type", "a=Q8_0", "--dry-run"], "--tensor-type, --dry-run:"),
        (["--type", "Q8_0", "--group-size", "32"], "--group-size: --type measures nothing"),
        (["--target-kl", "1", "--compressor", "p"], "--compressor: they belong to --format"),
        (["--format", "w4a16"], "not a multiple of the group's 128; give --group-size"),
        (["--format", "nvfp4a16", "--group-size", "32"], "groups of NVFP4A16 are what they are"),
        (["--format", "fp8", "--compressor", "/none/python"], "--compressor /none/python: No such"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(source, out, *arguments)
    with pytest.raises(ConfigError, match=r"--format writes a folder; a name without \.gguf"):
        run(source, f"{out}.gguf", "--format", "fp8")
    with pytest.raises(ConfigError, match="is the source itself; name another place"):
        run(source, source, "--format", "fp8", "--force")
    with pytest.raises(ConfigError, match="already, and quantising it again adds"):
        run(str(folders.fp8), out, "--format", "fp8")
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_format() -> None:
    shown = run("--help").output.partition("--format LAYOUT")[2].partition("--group-size")[0]
    assert all(name in " ".join(shown.split()) for name in FORMATS)


def test_the_help_states_the_windows_of_targets_and_of_formats() -> None:
    shown = " ".join(run("--help").output.partition("--windows")[2].split())
    stated = f"[default: {TARGET_WINDOWS} for targets, {DEFAULT_WINDOWS} for formats]"
    assert shown.partition("--curve-points")[0].count("default") == 1 and stated in shown
