"""Caches that were left half made, damaged, or closed to this user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import FetchError
from headrace.weights.store import removal as removal_module
from headrace.weights.store.hub_cache import CachedRevision, cache_folder, repo_folder
from headrace.weights.store.inventory import stored_models
from headrace.weights.store.removal import plan_removal
from headrace.weights.store.resolve import locate_model

COMMIT = "0" * 40


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "xdg"),
            "OLLAMA_MODELS": str(tmp_path / "ollama")}  # fmt: skip


def _snapshot(environ: dict[str, str], repo: str) -> Path:
    folder = repo_folder(cache_folder(environ), repo) / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def test_what_an_unfinished_fetch_left_can_be_removed(environ: dict[str, str]) -> None:
    folder = repo_folder(cache_folder(environ), "org/part")
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "abc.headrace.incomplete").write_bytes(b"12345")
    with pytest.raises(FetchError, match="org/part:Q8_0: org/part is not in"):
        plan_removal("org/part:Q8_0", environ)
    removal = plan_removal("org/part", environ)
    assert removal.freed_bytes == 5
    assert removal.what == "what an unfinished fetch of org/part left"
    removal.execute()
    assert not folder.exists()


def test_a_link_in_a_circle_is_listed_with_the_reason(environ: dict[str, str]) -> None:
    (_snapshot(environ, "org/loop") / "x-Q8_0.gguf").symlink_to("x-Q8_0.gguf")
    [model] = [model for model in stored_models(environ) if model.source == "hf"]
    assert model.name == f"org/loop:Q8_0@{COMMIT}"
    assert model.broken is not None


def test_a_cache_that_cannot_be_gone_through_names_the_file(environ: dict[str, str]) -> None:
    (_snapshot(environ, "org/good") / "x-Q8_0.gguf").write_bytes(b"GGUF")
    refs = repo_folder(cache_folder(environ), "org/bad") / "refs"
    (refs.parent / "snapshots").mkdir(parents=True)
    refs.mkdir()
    (refs / "main").symlink_to("main")
    with pytest.raises(FetchError, match="refs/main: Too many levels of symbolic links; mend or"):
        plan_removal("org/good", environ)


def test_a_removal_that_fails_is_told(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo_folder(cache_folder(environ), "org/part").mkdir(parents=True)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(removal_module.shutil, "rmtree", refuse)
    with pytest.raises(FetchError, match="models--org--part cannot be removed: Permission denied"):
        plan_removal("org/part", environ).execute()


def test_a_folder_closed_to_this_user_holds_nothing(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _snapshot(environ, "org/shut")
    (folder / "x-Q8_0.gguf").write_bytes(b"GGUF")

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    # Root may read everything, and tests often run as root.
    monkeypatch.setattr(Path, "is_file", refuse)
    assert CachedRevision("org/shut", COMMIT, (), folder).files() == []
    with pytest.raises(FetchError, match="org/shut: not in"):
        locate_model("hf://org/shut", environ)


def test_names_that_are_no_text_are_not_the_hubs(environ: dict[str, str]) -> None:
    folder = _snapshot(environ, "org/odd")
    for name in (b"\xff.gguf", b"good-F16.gguf", b"a\nb.gguf"):
        (folder / os.fsdecode(name)).write_bytes(b"GGUF")
    names = [model.name for model in stored_models(environ) if model.source == "hf"]
    assert names == [f"org/odd:F16@{COMMIT}"]
