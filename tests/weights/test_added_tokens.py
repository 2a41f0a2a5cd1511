"""Flags of added tokens: which files state them, which family has them where a file cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.text import load_tokenizer
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.tokenizer import tokenizer_of_gguf
from headrace.weights.open import open_checkpoint
from headrace.weights.tokenizer.added_tokens import NO_FLAGS, TokenFlags, flag_rule
from headrace.weights.tokenizer.hf_tokenizer import tokenizer_arrays
from headrace.weights.tokenizer.sentencepiece_model import stated_flags

from .builders import hf_arrays, write_gguf_with_library, write_hf
from .test_hf_tokenizer import spm_json
from .test_sentencepiece_model import CONTROL, PIECES, model, written

STRIPS = TokenFlags(rstrip=True)
PHI3 = {"<s>", "<|assistant|>", "<|end|>", "<|placeholder1|>", "<|placeholder6|>"}


@pytest.mark.parametrize("name", ["Phi-3-mini-4k-instruct", "PHI3", "my-phi-3.5-merge"])
def test_a_family_is_known_by_its_name(name: str) -> None:
    rule = flag_rule("llama", name, {"<s>", "</s>"})
    assert rule is not None
    assert (rule.of("<|user|>"), rule.of("</s>")) == (STRIPS, STRIPS)
    assert {rule.of(text) for text in ("<unk>", "<s>", "<|endoftext|>")} == {NO_FLAGS}
    assert flag_rule("gpt2", name, PHI3) is None, "Phi-3 mini and medium have SentencePiece"


@pytest.mark.parametrize("name", ["Phi 3 Mini 4k Instruct", "LLaMA v2", ""])
def test_a_family_is_known_by_its_tokens(name: str) -> None:
    rule = flag_rule("llama", name, PHI3)
    assert rule is not None and rule.of("<|end|>") == STRIPS
    assert flag_rule("llama", name, PHI3 - {"<|placeholder6|>"}) is None
    assert flag_rule("gemma4", name, PHI3) is None


def test_one_token_of_a_family_may_have_a_flag() -> None:
    rule = flag_rule("gpt2", "Modern-BERT base", {"[MASK]"})
    assert rule is not None
    assert (rule.of("[MASK]"), rule.of("[SEP]")) == (TokenFlags(lstrip=True), NO_FLAGS)


@pytest.mark.parametrize(
    ("name", "known"), [("Phi-3", "Phi-3"), (["Phi-3"], ""), (3, ""), (None, "")]
)
def test_the_name_of_a_file_is_a_string(tmp_path: Path, name: Any, known: str) -> None:
    extra = {} if name is None else {"general.name": name}
    path = write_gguf_with_library(tmp_path / "m.gguf", hf_arrays(), extra=extra)
    data = tokenizer_of_gguf(read_gguf(path).metadata)
    assert (data.model_name, data.flags) == (known, None)


def _config(**flags: bool) -> dict[str, Any]:
    entry = {"content": "<|user|>", "special": True, **flags}
    return {"added_tokens_decoder": {"265": entry, "x": "y", "266": {"content": "<x>"}}}


def test_a_folder_states_flags() -> None:
    flags = stated_flags(_config(lstrip=True, single_word=True, normalized=True))
    assert flags == {"<|user|>": TokenFlags(lstrip=True, single_word=True), "<x>": NO_FLAGS}
    assert stated_flags({}) is None
    assert stated_flags({"added_tokens_decoder": []}) is None
    assert stated_flags(_config(rstrip="yes")) == {"<|user|>": NO_FLAGS, "<x>": NO_FLAGS}  # type: ignore[arg-type]


@pytest.mark.parametrize("rstrip", [True, False])
def test_a_folder_with_tokenizer_model_has_the_flags_of_its_config(
    tmp_path: Path, rstrip: bool
) -> None:
    """What it states is what counts, also where its tokens are those of a family with flags."""
    write_hf(tmp_path, {"x": np.zeros((2, 2), np.float32)}, {"eos_token_id": 2, "vocab_size": 271})
    written(
        tmp_path, model([*PIECES, *((token, 0.0, CONTROL) for token in sorted(PHI3 - {"<s>"}))])
    )
    config = {
        "added_tokens_decoder": {
            "265": {"content": "<|assistant|>", "special": True, "rstrip": rstrip}
        }
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(open_checkpoint(tmp_path).tokenizer)
    ids = tokenizer.encode("<|assistant|> hi", add_special_tokens=False)
    assert (ids == [265, 260]) is rstrip


def test_flags_that_a_reader_knows_are_not_lost_in_a_conversion() -> None:
    tokens = [token for token, _, _ in PIECES] + sorted(PHI3 - {"<s>"})
    kinds = [kind for _, _, kind in PIECES] + [CONTROL] * (len(PHI3) - 1)
    scores = [score for _, score, _ in PIECES] + [0.0] * (len(PHI3) - 1)
    data = spm_json(tokens, scores, kinds)

    def notes() -> str:
        return " ".join(tokenizer_arrays(data, {}, len(tokens), (2,)).notes)

    assert "flag rstrip of </s>, <|assistant|>, <|end|>" in notes(), "a reader would take them"
    for entry in data["added_tokens"]:
        entry["rstrip"] = entry["content"] not in ("<unk>", "<s>")
    assert "flag" not in notes()
    data["added_tokens"][-1]["lstrip"] = True
    assert notes() == "flag lstrip of <|placeholder6|> cannot be stated in GGUF"
