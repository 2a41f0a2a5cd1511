"""Fetching from a hub: what is taken, what is kept, what goes wrong and how it is said."""

from __future__ import annotations

import logging
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FetchError
from headrace.weights.open import open_checkpoint
from headrace.weights.store import fetch as fetch_module
from headrace.weights.store import hub_client
from headrace.weights.store.fetch import Fetched, FetchProgress, fetch_model
from headrace.weights.store.hub_cache import cache_folder, locate
from headrace.weights.store.hub_client import HubClient
from headrace.weights.store.model_name import HubModel, hub_model
from headrace.weights.store.resolve import fetch, locate_model, obtain_model
from tests.tiny import write_tiny_gguf, write_tiny_hf
from tests.weights.store.mock_hub import MockHub


def _ignore(_: FetchProgress) -> None:
    pass


def _fetch(name: str, environ: dict[str, str]) -> Fetched:
    model = hub_model(name)
    assert model is not None
    return fetch(model, environ, _ignore)


@pytest.fixture
def tiny(hub: MockHub, tmp_path: Path) -> str:
    folder = write_tiny_hf(tmp_path / "made")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "consolidated.safetensors").write_bytes(b"the same weights again")
    (folder / "README.md").write_text("words")
    return hub.add_folder("org/tiny", folder)


@pytest.fixture
def gguf(hub: MockHub, tmp_path: Path) -> dict[str, bytes]:
    contents = {
        kind: write_tiny_gguf(tmp_path / "made", codec=kind).read_bytes()
        for kind in ("F32", "Q8_0")
    }
    files = {f"tiny-{kind}.gguf": content for kind, content in contents.items()}
    files["big-Q4_K_M-00001-of-00002.gguf"] = b"one"
    files["big-Q4_K_M-00002-of-00002.gguf"] = b"two"
    files["mmproj-F16.gguf"] = b"a projector"
    hub.add("org/tiny-GGUF", files)
    return files


def test_a_safetensors_repository_comes_without_pickles(
    hub: MockHub, tiny: str, environ: dict[str, str]
) -> None:
    seen: list[FetchProgress] = []
    model = HubModel("org/tiny")
    fetched = fetch(model, environ, seen.append)
    assert open_checkpoint(fetched.path).config["model_type"] == "llama"
    assert fetched.commit == tiny
    names = {path.name for path in fetched.path.iterdir()}
    assert names == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "model.safetensors",
    }  # fmt: skip
    done = [at for at in seen if at.state == "done"]
    assert len(done) == fetched.num_files == 5
    assert done[-1].done_bytes == done[-1].total_bytes == fetched.total_bytes
    assert all(one.done_bytes <= two.done_bytes for one, two in pairwise(seen))
    asked = len(hub.requests)
    assert obtain_model("org/tiny", environ, _ignore).path == fetched.path
    assert len(hub.requests) == asked


def test_a_second_pull_fetches_nothing_and_a_new_commit_only_what_changed(
    hub: MockHub, tiny: str, environ: dict[str, str]
) -> None:
    first = _fetch("org/tiny", environ)
    before = len(hub.fetched())
    again = _fetch("org/tiny", environ)
    assert again.fetched_bytes == 0
    assert len(hub.fetched()) == before
    files = dict(hub.repos["org/tiny"].commits[tiny]) | {"generation_config.json": b"{}"}
    hub.add("org/tiny", files)
    newer = _fetch("org/tiny", environ)
    assert newer.fetched_bytes == 2
    assert newer.path != first.path
    assert locate(cache_folder(environ), HubModel("org/tiny")) == newer.path
    assert locate(cache_folder(environ), HubModel("org/tiny", tiny[:8])) == first.path


def test_parts_are_those_the_index_lists(
    hub: MockHub, tmp_path: Path, environ: dict[str, str]
) -> None:
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", '
    index += b'"b": "model-00002-of-00002.safetensors"}}'
    files = {
        "config.json": b"{}", "model.safetensors.index.json": index,
        "model-00001-of-00002.safetensors": b"1", "model-00002-of-00002.safetensors": b"2",
        "consolidated.safetensors": b"3",
    }  # fmt: skip
    hub.add("org/parts", files)
    fetched = _fetch("org/parts", environ)
    names = {path.name for path in fetched.path.iterdir()}
    assert names == files.keys() - {"consolidated.safetensors"}
    del files["model-00002-of-00002.safetensors"]
    hub.add("org/parts", files)
    with pytest.raises(FetchError, match=r"index\.json lists 'model-00002-of-00002\.safetensors'"):
        _fetch("org/parts", environ)


def test_a_gguf_model_is_chosen_by_kind_or_file(
    gguf: dict[str, bytes], environ: dict[str, str]
) -> None:
    by_kind = _fetch("org/tiny-GGUF:q8_0", environ)
    assert by_kind.path.read_bytes() == gguf["tiny-Q8_0.gguf"]
    assert by_kind.num_files == 1
    by_file = _fetch("hf://org/tiny-GGUF/tiny-F32.gguf", environ)
    assert by_file.path.read_bytes() == gguf["tiny-F32.gguf"]
    split = _fetch("org/tiny-GGUF:Q4_K_M", environ)
    assert split.num_files == 2
    assert split.path.name == "big-Q4_K_M-00001-of-00002.gguf"
    assert (split.path.parent / "big-Q4_K_M-00002-of-00002.gguf").read_bytes() == b"two"


def test_a_choice_that_is_open_or_empty_lists_what_there_is(
    gguf: dict[str, bytes], environ: dict[str, str]
) -> None:
    with pytest.raises(FetchError, match=r"several models.*there is Q4_K_M, F32, Q8_0"):
        _fetch("org/tiny-GGUF", environ)
    with pytest.raises(FetchError, match="holds no Q5_K_M; there is Q4_K_M, F32, Q8_0"):
        _fetch("org/tiny-GGUF:Q5_K_M", environ)
    _fetch("org/tiny-GGUF:F32", environ)
    # The only one of the repository that is here needs no name and no network.
    assert locate_model("org/tiny-GGUF", environ).path.name == "tiny-F32.gguf"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b"x", "config.json": b"{}"}, "only pytorch_model.bin; pickles"),
        ({"README.md": b"x"}, "no safetensors and no GGUF; there is README.md"),
        ({"model.safetensors": b"x"}, "safetensors but no config.json"),
        ({"adapter_model.safetensors": b"x", "config.json": b"{}"}, "there is adapter_model"),
    ],
)
def test_a_repository_without_a_model_is_refused_before_anything_is_fetched(
    files: dict[str, bytes], message: str, hub: MockHub, environ: dict[str, str]
) -> None:
    hub.add("org/none", files)
    with pytest.raises(FetchError, match=message):
        _fetch("org/none", environ)
    assert hub.fetched() == []


def test_a_connection_that_breaks_is_taken_up_again(
    hub: MockHub,
    gguf: dict[str, bytes],
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    hub.cut["tiny-F32.gguf"] = [5000, 9000]
    fetched = _fetch("org/tiny-GGUF:F32", environ)
    assert fetched.path.read_bytes() == gguf["tiny-F32.gguf"]
    ranges = [headers.get("range") for _, path, headers in hub.requests if "/cdn/" in path]
    assert ranges == [None, "bytes=5000-", "bytes=9000-"]
    assert caplog.text.count("Trying to resume download") == 2
    assert "/cdn/" in caplog.text
    assert "signature" not in caplog.text


def test_a_large_file_goes_on_where_an_earlier_run_stopped(
    hub: MockHub, gguf: dict[str, bytes], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr(hub_client, "RESUME_FROM_BYTES", 1000)
    model = HubModel("org/tiny-GGUF", quant="F32")

    def interrupt(at: FetchProgress) -> None:
        if at.file_bytes > 7000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(model, environ, interrupt)
    with pytest.raises(FetchError, match="not in"):
        locate(cache_folder(environ), model)
    seen: list[FetchProgress] = []
    fetched = fetch(model, environ, seen.append)
    assert fetched.path.read_bytes() == gguf["tiny-F32.gguf"]
    ranges = [headers.get("range") for _, path, headers in hub.requests if "/cdn/" in path]
    assert ranges == [None, "bytes=7000-"]
    assert seen[-1].done_bytes == fetched.total_bytes
    assert not list((fetched.path.parents[2] / "blobs").glob("*.incomplete"))


@pytest.mark.parametrize("resume_from", [1000, 1 << 30])
def test_bytes_that_are_not_the_hubs_are_thrown_away(
    resume_from: int,
    hub: MockHub,
    gguf: dict[str, bytes],
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_client, "RESUME_FROM_BYTES", resume_from)
    right = gguf["tiny-F32.gguf"]
    hub.lies["tiny-F32.gguf"] = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(FetchError, match=r"tiny-F32\.gguf came damaged"):
        _fetch("org/tiny-GGUF:F32", environ)
    hub.lies.clear()
    assert _fetch("org/tiny-GGUF:F32", environ).path.read_bytes() == right


def test_too_small_a_disk_is_said_before_anything_comes(
    hub: MockHub, gguf: dict[str, bytes], environ: dict[str, str]
) -> None:
    client = HubClient(cache_folder(environ), hub.url)
    size = len(gguf["tiny-F32.gguf"])
    with pytest.raises(FetchError, match=rf"{size} bytes .* has 1000 .* free"):
        fetch_model(
            HubModel("org/tiny-GGUF", quant="F32"), client, _ignore, free_bytes=lambda _: 1000
        )
    assert hub.fetched() == []
    assert fetch_module.free_bytes_at(cache_folder(environ) / "not" / "there") > 0


def test_refusals_say_what_helps(
    hub: MockHub, tiny: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FetchError, match=f"no repository org/absent at {hub.url}.*HF_TOKEN"):
        _fetch("org/absent", environ)
    with pytest.raises(FetchError, match="has no revision 'v9'"):
        _fetch("org/tiny@v9", environ)
    repo = hub.repos["org/tiny"]
    repo.gated, repo.token = True, "hf_secret"
    with pytest.raises(FetchError, match=f"gated; accept its licence at {hub.url}/org/tiny"):
        _fetch("org/tiny", environ)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert _fetch("org/tiny", environ).num_files == 5
    told = [path for _, path, headers in hub.requests if "authorization" in headers]
    assert any("/resolve/" in path for path in told)
    assert not any("/cdn/" in path for path in told)


def test_a_large_file_over_http_tells_the_storage_host_no_token(
    hub: MockHub, gguf: dict[str, bytes], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_client, "RESUME_FROM_BYTES", 1)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.repos["org/tiny-GGUF"].token = "hf_secret"
    _fetch("org/tiny-GGUF:F32", environ)
    stored = [headers for _, path, headers in hub.requests if "/cdn/" in path]
    assert stored
    assert not any("authorization" in headers for headers in stored)


def test_a_hub_that_is_down_or_away_is_named(
    hub: MockHub, tiny: str, gguf: dict[str, bytes], environ: dict[str, str]
) -> None:
    hub.fail["/api/models"] = 503
    with pytest.raises(FetchError, match=f"{hub.url} answered 503; try again later"):
        _fetch("org/tiny", environ)
    hub.fail.clear()
    _fetch("org/tiny-GGUF:F32", environ)
    environ = environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    with pytest.raises(FetchError) as raised:
        obtain_model("org/tiny-GGUF:Q8_0", environ, _ignore)
    said = str(raised.value)
    assert "http://127.0.0.1:9 cannot be reached (127.0.0.1 refused the connection)" in said
    assert "of org/tiny-GGUF this disk has F32@main" in said
    assert "no file or folder org/tiny-GGUF:Q8_0 here" in said


@pytest.mark.parametrize("by", ["flag", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nobody(by: str, hub: MockHub, tiny: str, environ: dict[str, str]) -> None:
    if by != "flag":
        environ = environ | {by: "1"}
    with pytest.raises(FetchError, match="headrace pull org/tiny fetches it"):
        obtain_model("org/tiny", environ, _ignore, offline=by == "flag")
    assert hub.requests == []


def test_an_incomplete_download_of_another_tool_is_completed(
    hub: MockHub, tiny: str, environ: dict[str, str]
) -> None:
    from huggingface_hub import hf_hub_download

    options: dict[str, Any] = {"cache_dir": cache_folder(environ), "endpoint": hub.url}
    hf_hub_download("org/tiny", "model.safetensors", **options)
    hf_hub_download("org/tiny", "config.json", **options)
    with pytest.raises(FetchError, match="its tokenizer is not in the cache"):
        locate_model("org/tiny", environ)
    located = obtain_model("org/tiny", environ, _ignore)
    assert (located.path / "tokenizer.json").is_file()
    assert sum("/cdn/" in path for path in hub.fetched()) == 1


def test_a_damaged_cache_is_mended_by_a_pull(
    tiny: str, environ: dict[str, str], tmp_path: Path
) -> None:
    fetched = _fetch("org/tiny", environ)
    shutil.rmtree(fetched.path.parents[1] / "blobs")
    with pytest.raises(FetchError):
        locate_model("org/tiny", environ)
    assert _fetch("org/tiny", environ).fetched_bytes == fetched.total_bytes
    assert locate_model("org/tiny", environ).path.samefile(fetched.path)


def test_a_hostile_listing_stays_in_its_folder(
    hub: MockHub, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub_client, "RESUME_FROM_BYTES", 1)
    hub.add("org/evil", {"../../../x-Q8_0.gguf": b"x", "/y-F16.gguf": b"y", "z-F32.gguf": b"z"})
    with pytest.raises(FetchError, match=r"there is F32$"):
        _fetch("org/evil:Q8_0", environ)
    hub.digest_prefix = "../../../../"
    assert _fetch("org/evil:F32", environ).path.read_bytes() == b"z"
    assert {path.name for path in tmp_path.iterdir()} == {"hf"}
    hub.repos["org/evil"].refs["main"] = "../../../../c"
    hub.repos["org/evil"].commits["../../../../c"] = {"z-F32.gguf": b"z"}
    with pytest.raises(FetchError, match="gave no commit of org/evil"):
        _fetch("org/evil:F32", environ)
