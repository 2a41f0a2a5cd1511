"""The model family as files: which lie where, how large they are, and what their headers say.

The limits are those the family is made to: rows that any GGUF codec can hold (its blocks have up
to 256 values), heads of 64, a context of 2,048 tokens or more, and a wheel that stays small.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from headrace.embedded import EMBEDDED_NAME, embedded_model
from headrace.weights.gguf.file import GGUFFile, read_gguf
from training.members import MEMBERS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "headrace"
EMBEDDED = PACKAGE / "embedded" / f"{EMBEDDED_NAME}-q8_0.gguf"
MODELS = ROOT / "models"
MOST_COPIED_BYTES = 1 << 18
MADE = {"build", "dist", "__pycache__", ".git", ".hypothesis", ".mypy_cache", ".ruff_cache"}
BLOCK_VALUES = 256
"""Values of the longest block a GGUF codec has."""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _parameters(file: GGUFFile) -> int:
    return sum(tensor.num_values for tensor in file.tensors.values())


def test_the_package_has_one_model_and_it_is_small() -> None:
    weights = [path for path in _files(PACKAGE) if path.suffix in (".gguf", ".safetensors")]
    assert weights == [EMBEDDED] == [embedded_model()]
    assert EMBEDDED.stat().st_size <= 15_000_000
    file = read_gguf(EMBEDDED)
    assert file.metadata["general.name"] == EMBEDDED_NAME
    assert file.metadata["general.architecture"] == "qwen3"
    assert _parameters(file) <= 14_000_000


def test_its_card_is_of_this_file() -> None:
    card = EMBEDDED.with_name("CARD.md").read_text(encoding="utf-8")
    assert card.startswith(f"# {EMBEDDED_NAME}\n")
    assert f"{_parameters(read_gguf(EMBEDDED)):,}" in card
    assert f"{EMBEDDED.stat().st_size:,}" in card


@pytest.mark.parametrize("run", MEMBERS)
def test_a_member_stands_in_its_place_with_its_card(run: str) -> None:
    if not MODELS.is_dir():
        pytest.skip("models/ is not here: it is in the repository, in no sdist and no wheel")
    member = MEMBERS[run]
    card = (ROOT / member.card).read_text(encoding="utf-8")
    assert card.startswith(f"# {member.name}\n")
    path = ROOT / member.gguf
    if member.folder_files:
        path = ROOT / member.place / member.folder_files[0]
    assert f"| {path.name} | {path.stat().st_size:,} |" in card


@pytest.mark.parametrize(
    "path", [EMBEDDED, *sorted(MODELS.rglob("*.gguf"))], ids=lambda path: path.stem
)
def test_every_model_fits_every_codec_and_knows_the_family_s_tokens(path: Path) -> None:
    file = read_gguf(path)
    rows = {name: tensor.shape[-1] for name, tensor in file.tensors.items() if tensor.shape[1:]}
    assert len(rows) > 10
    assert {name: row for name, row in rows.items() if row % BLOCK_VALUES} == {}
    family = file.metadata["general.architecture"]
    assert file.metadata[f"{family}.attention.key_length"] == 64
    assert file.metadata[f"{family}.context_length"] >= 2048
    tokens = list(file.metadata["tokenizer.ggml.tokens"])
    assert len(tokens) == 8192
    ends = {tokens[file.metadata[f"tokenizer.ggml.{name}_token_id"]] for name in ("eos", "eot")}
    assert ends == {"<|im_end|>", "<|endoftext|>"}
    special = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<think>", "</think>"}
    assert special <= set(tokens[:32])
    template = file.metadata["tokenizer.chat_template"]
    assert "<|im_start|>" in template and "enable_thinking" in template


def test_models_beside_the_package_are_small_together() -> None:
    if not MODELS.is_dir():
        pytest.skip("models/ is not here: it is in the repository, in no sdist and no wheel")
    heads = [ROOT / member.place for member in MEMBERS.values() if member.kind == "head"]
    n_bytes_heads = sum(path.stat().st_size for head in heads for path in _files(head))
    assert len(heads) == 2 and n_bytes_heads <= 6_000_000
    assert sum(path.stat().st_size for path in _files(MODELS)) - n_bytes_heads <= 30_000_000


def test_packages_are_made_of_the_source_folder_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = project["tool"]["scikit-build"]
    assert build["wheel"]["packages"] == ["src/headrace"]
    assert "/models/" in build["sdist"]["exclude"]
    for name in project["project"]["license-files"]:
        assert (ROOT / name).is_file()


def _sources(tree: Path) -> Path:
    """The project without its environments and builds: which of a hundred thousand files to leave
    out is what took the time. Large ones are empty."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [one for one in folders if one not in MADE and not one.startswith(".venv")]
        target = tree / Path(folder).relative_to(ROOT)
        target.mkdir(parents=True)
        for name in names:
            source = Path(folder) / name
            if source.stat().st_size > MOST_COPIED_BYTES:
                (target / name).touch()
            else:
                shutil.copyfile(source, target / name)
    return tree


@pytest.mark.process
def test_the_sdist_has_one_model(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core", reason="an sdist is made by scikit-build-core")
    program = (
        "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    )
    tree = _sources(tmp_path / "tree")
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=tree, check=True, capture_output=True
    )
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    assert [name for name in names if name.startswith("models/")] == []
    assert [name for name in names if name.endswith(".gguf")] == [str(EMBEDDED.relative_to(ROOT))]
    assert "src/headrace/models/families/qwen3.py" in names
