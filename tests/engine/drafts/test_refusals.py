"""What `--speculative-config` names and cannot be used: refused before anything is served, with the
flag, what is wrong, and what can be used instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.load import load_engine
from headrace.errors import HeadraceError
from tests.tiny import tiny_checkpoint, write_tiny_gguf, write_tiny_hf
from tests.tiny_heads import (
    dflash_config,
    eagle3_config,
    medusa_weights,
    mtp_checkpoint,
    write_dflash,
    write_eagle3,
    write_medusa,
    write_mtp_folder,
)

MODEL = dict(tiny_checkpoint("qwen3").config)
EAGLE3, DFLASH = eagle3_config(MODEL), dflash_config(MODEL)
OWN_IDS = EAGLE3["draft_vocab_size"]
INSTEAD = "Use one that was made for this model, or method ngram or suffix, which need none"
NAN = np.full(64, np.nan, np.float32)

Written = Callable[[Path], Path]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hf(tmp_path_factory.mktemp("target"), "qwen3")


def refused(target: Path, spec: dict[str, Any], **settings: Any) -> str:
    """What the start of an engine with this setting says."""
    config = EngineConfig(
        model=str(target), speculative_config=json.dumps(spec), num_gpu_blocks_override=32,
        max_model_len=256, max_num_batched_tokens=64, threads=1, **settings,
    )  # fmt: skip
    with pytest.raises(HeadraceError) as caught:
        load_engine(config)
    return str(caught.value)


@dataclass(frozen=True)
class Folder:
    """A head whose folder has another config.json than its weights, or files that are damaged."""

    write: Written
    config: dict[str, Any] | None = None
    keep_bytes: int | None = None

    def __call__(self, path: Path) -> Path:
        """Write it."""
        self.write(path)
        if self.config is not None:
            (path / "config.json").write_text(json.dumps(self.config))
        if self.keep_bytes is not None:
            (weights,) = path.glob("*.safetensors")
            weights.write_bytes(weights.read_bytes()[: self.keep_bytes])
        return path


def eagle3(**change: Any) -> Folder:
    return Folder(lambda path: write_eagle3(path, EAGLE3), {**EAGLE3, **change})


def dflash(**change: Any) -> Folder:
    return Folder(lambda path: write_dflash(path, DFLASH), {**DFLASH, **change})


def medusa(**change: Any) -> Folder:
    weights = medusa_weights(64, 288, 3, 1)
    return Folder(lambda path: write_medusa(path, {"medusa_num_heads": 3, **change}, weights))


def mtp(config: dict[str, Any] | None = None, **change: Any) -> Folder:
    layers = mtp_checkpoint("qwen3", "F32")
    stated = None if config is None else {**MODEL, **config}
    return Folder(lambda path: write_mtp_folder(path, layers, config=stated, **change))


def files(**contents: bytes) -> Folder:
    def write(path: Path) -> Path:
        for name, content in contents.items():
            (path / name.replace("_dot_", ".")).write_bytes(content)
        return path

    return Folder(write)


HEADS: dict[str, tuple[Written, str | None, str]] = {
    "another vocabulary": (eagle3(vocab_size=999), None, "vocab_size is 999, and the model's is"),
    "a vocabulary as text": (eagle3(vocab_size="288"), None, "vocab_size is '288'; it must be a"),
    "another width": (eagle3(hidden_size=32), None, "the model's is 64 wide where the head's"),
    "other features": (eagle3(target_hidden_size=128), None, "128 values, and the model's"),
    "no layers": (eagle3(num_hidden_layers=0), None, "num_hidden_layers = 0 is not implemented"),
    "head_dim 0": (eagle3(head_dim=0), None, "head_dim is 0; it must be at least 1"),
    "head_dim -4": (eagle3(head_dim=-4), None, "head_dim is -4; it must be at least 1"),
    "no heads": (eagle3(num_attention_heads=0), None, "num_attention_heads is 0; it must be at"),
    "a key": (eagle3(strange=1), None, "load with --ignore-config-keys strange"),
    "layers beyond": (eagle3(eagle_aux_hidden_state_layer_ids=[0, 1, 99]), None, "the model has 2"),
    "d2t beyond": (
        Folder(lambda path: write_eagle3(path, EAGLE3, offsets=np.full(OWN_IDS, 500))), None,
        f"tensor d2t names token {OWN_IDS + 499}, and the model has 288",
    ),
    "d2t short": (eagle3(draft_vocab_size=7), None, "d2t has shape [144], draft_vocab_size is 7"),
    "NaN": (
        Folder(lambda path: write_eagle3(path, EAGLE3, **{"norm.weight": NAN})), None,
        "model.norm.weight holds NaN or infinity; the head is damaged, fetch it again",
    ),
    "a shape": (
        Folder(lambda path: write_eagle3(path, EAGLE3, **{"fc.weight": np.zeros((64, 64), "f4")})),
        None, "tensor model.fc.weight has shape [64, 64], the config asks for [64, 192]",
    ),
    "cut short": (
        Folder(lambda path: write_eagle3(path, EAGLE3), keep_bytes=9000), None,
        "it is damaged or was cut short; fetch it again",
    ),
    "no bytes": (
        Folder(lambda path: write_eagle3(path, EAGLE3), keep_bytes=0), None, "the file is empty",
    ),
    "bad JSON": (files(config_dot_json=b"{"), None, "config.json: not valid JSON"),
    "nothing": (files(), "eagle3", "has no config.json; a folder with config.json and safetensors"),
    "nothing, no method": (files(), None, "holds neither config.json nor a .gguf file of a model"),
    "nothing for mtp": (files(), "mtp", "no safetensors file; model.safetensors or"),
    "a pickle": (
        files(config_dot_json=json.dumps(EAGLE3).encode(), pytorch_model_dot_bin=b"PK\3\4"), None,
        "pytorch_model.bin is a pickle and is not read; convert it to safetensors: safetensors.",
    ),
    "a block of none": (dflash(block_size=0), None, "block_size is 0; it must be at least 1"),
    "a mask beyond": (
        dflash(dflash_config={"mask_token_id": 999, "target_layer_ids": [0, 1]}), None,
        "mask_token_id = 999 is not implemented for this family; supported: an id below 288",
    ),
    "dflash head_dim 0": (dflash(head_dim=0), None, "head_dim is 0; it must be at least 1"),
    "no medusa heads": (medusa(medusa_num_heads=0), None, "medusa_num_heads is 0; it must be at"),
    "another medusa": (medusa(vocab_size=999), None, "vocab_size is 999, and the model's is"),
    "mtp of another": (mtp({"hidden_size": 32}), "mtp", "hidden_size is 32, and the model's is 64"),
    "mtp vocabulary": (mtp({"vocab_size": 999}), "mtp", "vocab_size is 999, and the model's is"),
    "mtp head_dim 0": (mtp({"head_dim": 0}), "mtp", "head_dim is 0; it must be at least 1"),
    "mtp of a Llama": (mtp({"model_type": "llama"}), "mtp", "model_type 'llama', and the model is"),
    "mtp NaN": (
        mtp(**{"mtp.fc.weight": np.full((64, 128), np.nan, np.float32)}), "mtp",
        "holds NaN or infinity; the head is damaged, fetch it again",
    ),
    "a model without its layers": (
        lambda path: write_tiny_hf(path, "qwen3"), "mtp",
        "has no tensors of model.mtp.layers.0.*, a layer for further tokens; use mtp with model",
    ),
}  # fmt: skip
"""How it is written, the method that is named, and what is said."""


@pytest.mark.parametrize("case", HEADS)
def test_a_head_that_cannot_be_used_is_refused_by_name(
    case: str, target: Path, tmp_path: Path
) -> None:
    write, method, words = HEADS[case]
    path = write(tmp_path)
    said = refused(target, {"model": str(path)} | ({} if method is None else {"method": method}))
    assert said.startswith("--speculative-config: ")
    assert words in said and str(path) in said
    assert INSTEAD in said or "method ngram or suffix, which need no weights" in said


def test_a_key_of_a_head_may_be_passed_over(target: Path, tmp_path: Path) -> None:
    """As the error says; what is wrong besides is what is said then."""
    path = eagle3(strange=1, head_dim=0)(tmp_path)
    said = refused(target, {"model": str(path)}, ignore_config_keys=("strange",))
    assert "strange" not in said and "head_dim is 0" in said


def test_a_draft_model_that_cannot_be_used_is_refused_by_name(target: Path, tmp_path: Path) -> None:
    path = write_tiny_hf(tmp_path, "llama")
    stated = json.loads((path / "config.json").read_text())
    for key in ("num_hidden_layers", "head_dim", "hidden_size"):
        (path / "config.json").write_text(json.dumps({**stated, key: 0}))
        said = refused(target, {"model": str(path)})
        assert said.startswith(f"--speculative-config: the draft model {path} cannot be used: ")
        assert f"config key {key} is 0; it must be at least 1. {INSTEAD}" in said
    (path / "config.json").write_text(json.dumps(stated))
    weights = path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + np.float32(np.nan).tobytes())
    said = refused(target, {"model": str(path)})
    assert "the draft model does not work" in said and "NaN" in said and "use another one" in said
    weights.write_bytes(whole[:-100])
    assert "was cut short; fetch it again" in refused(target, {"model": str(path)})
    weights.write_bytes(whole)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    ids["A"], ids["B"] = ids["B"], ids["A"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    said = refused(target, {"model": str(path)})
    assert "2 of 260 ids mean something else" in said and "method ngram or suffix" in said


def test_what_is_no_folder_of_a_head(target: Path, tmp_path: Path) -> None:
    pickle = tmp_path / "medusa_lm_head.pt"
    pickle.write_bytes(b"PK\3\4")
    gguf = write_tiny_gguf(tmp_path, "llama")
    for path, words in (
        (pickle, "is a pickle and is not read; convert it to safetensors"),
        (gguf, "a folder with config.json and safetensors is required"),
        (tmp_path / "none", "no such file or folder; a folder with config.json and safetensors"),
    ):
        said = refused(target, {"method": "medusa", "model": str(path)})
        assert said.startswith("--speculative-config: ") and f"{path}" in said and words in said
    assert "is a pickle and is not read" in refused(target, {"model": str(pickle)})
