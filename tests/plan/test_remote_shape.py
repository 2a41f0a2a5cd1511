"""Models of the hub that are not on this disk: what is fetched of them, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.errors import CheckpointError, FetchError
from headrace.plan.model.find_model import shape_named
from headrace.plan.model.model_shape import shape_of_checkpoint
from headrace.weights.store import hub_headers
from tests.tiny import write_tiny_hf
from tests.weights.store.conftest import environ, hub
from tests.weights.store.mock_hub import MockHub

__all__ = ["environ", "hub"]

CATALOG = Catalog.load()


def test_a_folder_of_the_hub_is_planned_from_its_headers(
    hub: MockHub, environ: dict[str, str], tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path)
    hub.add_folder("some/tiny", folder)
    shape, here = shape_named(CATALOG, "some/tiny", environ), shape_of_checkpoint(folder)
    assert shape.total_weight_bytes == here.total_weight_bytes
    assert shape.weight_bytes == here.weight_bytes
    assert shape.parameters == here.parameters
    assert shape.attention == here.attention and shape.hidden_size == here.hidden_size
    assert shape.source == "safetensors header"
    assert shape.origin.startswith(f"{hub.url}/some/tiny at ")
    assert any("only headers" in note for note in shape.notes)
    fetched = {path.rpartition("/")[2] for path in hub.fetched()}
    assert fetched == {"config.json", "model.safetensors"}
    assert not (Path(environ["HF_HOME"])).exists()


def test_no_weight_of_a_gguf_file_is_fetched(
    hub: MockHub, environ: dict[str, str], shared_assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared_assets / "models" / "llama-2-tiny-random" / "llama-2-tiny-random.gguf"
    monkeypatch.setattr(hub_headers, "_FIRST_GGUF_BYTES", 4096)
    hub.add("some/gguf", {"tiny-F16.gguf": path.read_bytes()})
    shape, here = shape_named(CATALOG, "hf://some/gguf:F16", environ), shape_of_checkpoint(path)
    assert shape.weight_bytes == here.weight_bytes and shape.parameters == here.parameters
    asked = [
        headers["range"] for _, path, headers in hub.requests if "/cdn/" in path
    ]  # fmt: skip
    assert asked[0] == "bytes=0-4095" and len(asked) > 2
    assert int(asked[-1].rpartition("-")[2]) < path.stat().st_size


def test_parts_are_found_by_the_index_and_kinds_are_those_of_the_headers(
    hub: MockHub, environ: dict[str, str]
) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 32,
    }  # fmt: skip
    embedding = {"model.embed_tokens.weight": ("BF16", [32, 8], 512)}
    rest = {"model.layers.0.mlp.up_proj.weight": ("F8_E4M3", [16, 8], 128)}
    index = {"weight_map": {**dict.fromkeys(embedding, "a.safetensors"),
                            **dict.fromkeys(rest, "b.safetensors")}}  # fmt: skip
    hub.add(
        "big/model",
        {
            "config.json": json.dumps(config).encode(),
            "model.safetensors.index.json": json.dumps(index).encode(),
            "a.safetensors": safetensors(embedding),
            "b.safetensors": safetensors(rest),
        },
    )
    shape = shape_named(CATALOG, "big/model", environ)
    assert shape.weight_bytes == {"BF16": 512, "F8_E4M3": 128}
    assert shape.parameters.embedding == 256 and shape.parameters.ffn == 128
    assert shape.tied_embeddings


def test_the_token_goes_to_the_hub_alone(
    hub: MockHub, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_hf(tmp_path)
    hub.add_folder("some/private", folder)
    hub.repos["some/private"].token = "hf_secret"
    with pytest.raises(FetchError, match="HF_TOKEN"):
        shape_named(CATALOG, "some/private", environ)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    shape = shape_named(CATALOG, "some/private", environ)
    assert "hf_secret" not in repr(shape)
    stored = [headers for _, path, headers in hub.requests if "/cdn/" in path]
    assert stored and not any("authorization" in headers for headers in stored)


def test_what_cannot_be_had_names_the_host_and_what_to_do(
    hub: MockHub, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FetchError, match=r"no repository some/nothing at http://127\.0\.0\.1"):
        shape_named(CATALOG, "some/nothing", environ)
    with pytest.raises(FetchError, match=r"did you mean .*qwen3-8b"):
        shape_named(CATALOG, "Qwen/Qwen3-9B", environ)
    nobody = {**environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:9 cannot be reached.*catalog list model"):
        shape_named(CATALOG, "some/model", nobody)
    with pytest.raises(FetchError, match=r"HF_HUB_OFFLINE is set: unset it.*config\.json"):
        shape_named(CATALOG, "some/model", {**environ, "HF_HUB_OFFLINE": "1"})


def test_headers_that_are_none_are_refused(hub: MockHub, environ: dict[str, str]) -> None:
    config = b'{"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}'
    hub.add("bad/header", {"config.json": config, "model.safetensors": b"\xff" * 64})
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        shape_named(CATALOG, "bad/header", environ)
    hub.add("bad/entry", {"config.json": config, "model.safetensors": framed(b'{"a": {}}')})
    with pytest.raises(CheckpointError, match="dtype, shape and data_offsets"):
        shape_named(CATALOG, "bad/entry", environ)
    hub.add("bad/config", {"config.json": b"[", "model.safetensors": framed(b"{}")})
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        shape_named(CATALOG, "bad/config", environ)
    hub.add("bad/gguf", {"a-F16.gguf": b"GGUF" + b"\x00" * 60})
    with pytest.raises(CheckpointError):
        shape_named(CATALOG, "bad/gguf", environ)


def test_a_model_of_the_catalog_needs_no_network(hub: MockHub, environ: dict[str, str]) -> None:
    assert shape_named(CATALOG, "Qwen/Qwen3-8B", environ).source == "catalog"
    assert not hub.requests


def framed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return framed(json.dumps(header).encode()) + bytes(at)
