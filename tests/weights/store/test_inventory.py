"""What is on this disk: resolved, listed and removed. No test here may reach the hub."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from headrace.embedded import embedded_model
from headrace.errors import FetchError
from headrace.weights.store.entry import StoredModel, read_facts
from headrace.weights.store.hub_cache import cache_folder, repo_folder
from headrace.weights.store.inventory import stored_models
from headrace.weights.store.ollama_store import ollama_folders
from headrace.weights.store.removal import plan_removal
from headrace.weights.store.resolve import locate_model
from tests.tiny import write_tiny_gguf, write_tiny_hf
from tests.weights.store.ollama import MODEL, write_ollama

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "HF_HOME": str(tmp_path / "hf"),
        "OLLAMA_MODELS": str(tmp_path / "ollama"),
        "XDG_CACHE_HOME": str(tmp_path / "xdg"),
    }


@pytest.fixture
def gguf(tmp_path: Path) -> bytes:
    return write_tiny_gguf(tmp_path / "made", codec="Q8_0").read_bytes()


def _cache(
    environ: dict[str, str], repo: str, files: dict[str, bytes], *, commit: str = COMMIT,
    ref: str | None = "main",
) -> Path:  # fmt: skip
    """A revision in the cache, as huggingface_hub lays it out; gives its folder."""
    root = repo_folder(cache_folder(environ), repo)
    snapshot = root / "snapshots" / commit
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        blob = root / "blobs" / f"{hash(content) & 0xFFFFFFFF:08x}"
        blob.write_bytes(content)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    if ref is not None:
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / ref).write_text(commit)
    return snapshot


def _folder(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in write_tiny_hf(tmp_path / "made").iterdir()}


def _listed(environ: dict[str, str]) -> dict[str, StoredModel]:
    return {model.name: model for model in stored_models(environ) if model.source != "embedded"}


def test_every_source_is_listed_with_what_its_headers_say(
    environ: dict[str, str], tmp_path: Path, gguf: bytes
) -> None:
    texts = _folder(tmp_path)
    snapshot = _cache(environ, "org/tiny", texts)
    _cache(environ, "org/tiny-GGUF", {"x-Q8_0.gguf": gguf, "y.gguf": gguf, "z-F16.gguf": b"GGUF"})
    _cache(environ, "org/tiny", texts, commit=OTHER, ref=None)
    _cache(environ, "org/tokens", {"tokenizer.json": b"{}"})
    write_ollama(tmp_path / "ollama", "tiny", {MODEL: gguf}, tag="q8")
    models = _listed(environ)
    assert models.keys() == {
        "org/tiny", f"org/tiny@{OTHER}", "org/tiny-GGUF:Q8_0", "org/tiny-GGUF:F16",
        "org/tiny-GGUF/y.gguf", "tiny:q8",
    }  # fmt: skip
    folder, file, ollama = models["org/tiny"], models["org/tiny-GGUF:Q8_0"], models["tiny:q8"]
    assert (folder.source, folder.format, folder.codec) == ("hf", "safetensors", "F32")
    assert (folder.family, folder.broken, folder.path) == ("llama", None, snapshot)
    assert folder.size_bytes == sum(map(len, texts.values()))
    assert abs(folder.modified_s - time.time()) < 600
    assert (file.format, file.codec, file.parameters) == ("gguf", "Q8_0", folder.parameters)
    assert (ollama.source, ollama.size_bytes, ollama.family) == ("ollama", len(gguf), "llama")
    assert "damaged" in str(models["org/tiny-GGUF:F16"].broken)
    for name, model in models.items():
        if not model.broken:
            assert locate_model(name, environ).path == model.path


def test_what_is_incomplete_or_damaged_is_listed_with_the_reason(
    environ: dict[str, str], tmp_path: Path, gguf: bytes
) -> None:
    texts = _folder(tmp_path)
    gone = _cache(environ, "org/gone", texts)
    (gone / "model.safetensors").resolve().unlink()
    no_config = {name: content for name, content in texts.items() if name != "config.json"}
    _cache(environ, "org/half", no_config)
    _cache(environ, "org/split", {"x-Q8_0-00001-of-00002.gguf": gguf})
    _cache(environ, "org/bad", texts | {"config.json": b"{"}, ref=None)
    store = tmp_path / "ollama"
    write_ollama(store, "lost", {MODEL: b"GGUF"})
    shutil.rmtree(store / "blobs")
    write_ollama(store, "cut", {MODEL: gguf[:-64]})
    write_ollama(store, "none", {"application/vnd.ollama.image.tensor": b"x"})
    write_ollama(store, "lora", {MODEL: gguf, "application/vnd.ollama.image.adapter": b"x"})
    write_ollama(store, "notes", {MODEL: gguf}).write_text("not json")
    reasons = {name: model.broken for name, model in _listed(environ).items()}
    for name, part in {
        "org/gone": "no safetensors",
        "org/half": "no config.json",
        "org/split:Q8_0": "only 1 of 2 pieces",
        f"org/bad@{COMMIT}": "not valid JSON",
        "lost:latest": "gone from Ollama's store; ollama pull lost:latest",
        "cut:latest": "fetch it again",
        "none:latest": "0 layers are GGUF models",
        "lora:latest": "adapter",
        "notes:latest": "manifest is damaged",
    }.items():
        assert part in str(reasons[name]), name
    assert len(reasons) == 9
    for name in ("lost", "none", "lora", "notes"):
        with pytest.raises(FetchError):
            locate_model(name, environ)


def test_headers_are_read_once(
    environ: dict[str, str], gguf: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(100):
        _cache(environ, f"org/m{number}", {"x-Q8_0.gguf": gguf})
    first = _listed(environ)
    read: list[str] = []

    def counted(entry: StoredModel) -> StoredModel:
        read.append(entry.name)
        return read_facts(entry)

    monkeypatch.setattr("headrace.weights.store.facts_file.read_facts", counted)
    assert _listed(environ) == first
    assert read == []
    snapshot = _cache(environ, "org/m7", {"y-Q4_0.gguf": gguf + b"\0" * 64})
    blob = (snapshot / "x-Q8_0.gguf").resolve()
    blob.write_bytes(b"damaged")
    # A broken one is read every time: it may have been mended, and the reason has to be right.
    for _ in range(2):
        assert _listed(environ)["org/m7:Q8_0"].broken
    assert read == ["org/m7:Q8_0", "org/m7:Q4_0", "org/m7:Q8_0"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": "0", "facts": {}}', b"\xff"])
def test_a_file_of_facts_that_is_no_use_is_not_used(
    content: bytes, environ: dict[str, str], gguf: bytes, tmp_path: Path
) -> None:
    _cache(environ, "org/m", {"x-Q8_0.gguf": gguf})
    expected = _listed(environ)
    path = tmp_path / "xdg" / "headrace" / "models.json"
    good = path.read_bytes()
    path.write_bytes(content)
    assert _listed(environ) == expected
    assert path.read_bytes() == good
    path.unlink()
    path.mkdir()
    assert _listed(environ) == expected


def test_a_path_that_exists_wins_and_says_so(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gguf: bytes
) -> None:
    _cache(environ, "org/name", {"x-Q8_0.gguf": gguf})
    monkeypatch.chdir(tmp_path)
    assert locate_model("org/name", environ).source == "hub"
    (tmp_path / "org" / "name").mkdir(parents=True)
    located = locate_model("org/name", environ)
    assert (located.source, located.path) == ("path", Path("org/name"))
    assert "hf://org/name" in str(located.note)
    assert locate_model("hf://org/name", environ).source == "hub"
    (tmp_path / "tiny").write_bytes(gguf)
    write_ollama(tmp_path / "ollama", "tiny", {MODEL: gguf})
    assert locate_model("tiny", environ).source == "path"
    assert locate_model("ollama://tiny", environ).source == "ollama"


def test_the_embedded_model_has_a_name(environ: dict[str, str]) -> None:
    located = locate_model("headrace-base", environ)
    assert (located.source, located.path) == ("embedded", embedded_model())


def test_names_nobody_has_say_where_was_looked(environ: dict[str, str]) -> None:
    with pytest.raises(FetchError, match="no such file or folder here and no qwen:latest in Ollam"):
        locate_model("qwen", environ)
    for path in ("model.gguf", "dir/model.gguf", "./org/name"):
        assert locate_model(path, environ).path == Path(path)


def test_what_ollama_adds_to_a_model_is_told(
    environ: dict[str, str], tmp_path: Path, gguf: bytes
) -> None:
    layers = {MODEL: gguf, "application/vnd.ollama.image.template": b"{{ .Prompt }}"}
    layers["application/vnd.ollama.image.license"] = b"words"
    write_ollama(tmp_path / "ollama", "mine", layers, base="registry.ollama.ai/me")
    located = locate_model("ollama://me/mine", environ)
    assert located.name == "me/mine:latest"
    assert "template not used" in str(located.note)


def test_where_caches_are(tmp_path: Path) -> None:
    base = {"XDG_CACHE_HOME": "/xdg"}
    assert cache_folder(base) == Path("/xdg/huggingface/hub")
    assert cache_folder(base | {"HF_HOME": "/home"}) == Path("/home/hub")
    assert cache_folder(base | {"HF_HOME": "/home", "HF_HUB_CACHE": "/hub"}) == Path("/hub")
    assert ollama_folders({})[0] == Path("~/.ollama/models").expanduser()
    assert ollama_folders({"OLLAMA_MODELS": "/o"}) == [Path("/o")]


def test_removing_frees_only_what_nothing_else_uses(
    environ: dict[str, str], tmp_path: Path, gguf: bytes
) -> None:
    texts = _folder(tmp_path)
    _cache(environ, "org/tiny", texts)
    _cache(environ, "org/tiny", texts | {"config.json": b"{}"}, commit=OTHER, ref="old")
    weights = len(texts["model.safetensors"])
    old = plan_removal("org/tiny@old", environ)
    assert old.freed_bytes == 2
    old.execute()
    assert _listed(environ).keys() == {"org/tiny"}
    rest = plan_removal("org/tiny", environ)
    assert rest.freed_bytes >= weights
    rest.execute()
    assert _listed(environ) == {}
    assert not repo_folder(cache_folder(environ), "org/tiny").exists()


def test_one_gguf_model_goes_and_the_others_stay(environ: dict[str, str], gguf: bytes) -> None:
    other = gguf + b"\0" * 64
    _cache(environ, "org/g", {"x-Q8_0.gguf": gguf, "x-F16.gguf": other, "copy-F32.gguf": gguf})
    removal = plan_removal("org/g:Q8_0", environ)
    assert removal.freed_bytes == 0  # its bytes are another model's too
    removal.execute()
    removal = plan_removal("org/g:F16", environ)
    assert removal.freed_bytes == len(other)
    removal.execute()
    assert _listed(environ).keys() == {"org/g:F32"}
    plan_removal("org/g/copy-F32.gguf", environ).execute()
    assert not repo_folder(cache_folder(environ), "org/g").exists() or not _listed(environ)


def test_what_is_not_the_caches_is_left_alone(
    environ: dict[str, str], tmp_path: Path, gguf: bytes
) -> None:
    write_ollama(tmp_path / "ollama", "tiny", {MODEL: gguf})
    path = tmp_path / "mine.gguf"
    path.write_bytes(gguf)
    damaged = _cache(environ, "org/gone", {"x-Q8_0.gguf": gguf})
    (damaged / "x-Q8_0.gguf").resolve().unlink()
    for name, message in {
        "tiny": "ollama rm tiny:latest",
        "ollama://tiny": "ollama rm tiny:latest",
        str(path): "is your own file or folder",
        "headrace-base": "ships in the package",
        "org/absent": "org/absent is not in",
        "org/gone": "is damaged; headrace pull mends it",
    }.items():
        with pytest.raises(FetchError, match=message):
            plan_removal(name, environ)
    assert path.is_file()
    assert _listed(environ)["tiny:latest"].broken is None
