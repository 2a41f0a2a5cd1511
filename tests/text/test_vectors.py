"""Real vocabularies against ids recorded from the models' own tokenizers.

Every set of vectors among the assets is named here: with the vocabulary it is checked with, or with
the reason why it is not. docs/text.md has the same list.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.errors import UnsupportedModelError
from headrace.text import ChatTemplate
from headrace.weights.tokenizer.sentencepiece_model import sentencepiece_entries
from tests.text.assets import MISTRAL, mistral, vocabulary
from tests.text.vocabularies import from_gguf, from_json, gguf_arrays

DOCS = Path(__file__).resolve().parents[2] / "docs" / "text.md"
SEPARATOR = "\n__ggml_vocab_test__\n"
# Of ggml-vocab; command-r has vectors and no vocabulary, baichuan and gpt-neox the reverse.
LLAMA_CPP = ["gpt-2", "llama-bpe", "qwen2", "refact", "mpt", "deepseek-coder", "llama-spm"]


class Checked(NamedTuple):
    """vocabulary: the one they are checked with. framed: with what begins and ends a text.
    around: ids a post-processor puts around, which the vocabulary's files do not say."""

    vocabulary: str
    framed: bool = True
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


CHECKED: dict[str, tuple[Checked, ...]] = {
    "Xenova/gpt2": tuple(map(Checked, ("gpt-2", "gpt-2 files", "gpt-2 ranks"))),
    "openai-community/gpt2": (Checked("gpt-2"),),
    "tiiuae/falcon-rw-1b": (Checked("gpt-2"),),
    "onnx-community/whisper-tiny.en": (
        Checked("whisper", around=((50257, 50362), (50256,))),
    ),
    "Xenova/gpt-4o": (Checked("gpt-4o"),),
    "Xenova/llama-tokenizer": (Checked("llama-spm"), Checked("llama2 model")),
    "Xenova/llama3-tokenizer": (Checked("llama-bpe", framed=False), Checked("llama3 ranks")),
    "Xenova/deepseek-coder-1.3b-instruct": (Checked("deepseek-coder"),),
}  # fmt: skip


def _llama_cpp(assets: Path, name: str) -> list[tuple[str, list[int]]]:
    base = assets / "tokenizers" / "ggml-vocab" / f"ggml-vocab-{name}.gguf"
    texts = base.with_suffix(".gguf.inp").read_text(encoding="utf-8").split(SEPARATOR)
    lines = base.with_suffix(".gguf.out").read_text(encoding="utf-8").split("\n")
    expected = [[int(token_id) for token_id in line.split()] for line in lines]
    return list(zip(texts, expected, strict=True))


@cache
def _hugging_face(assets: Path) -> dict[str, dict[str, Any]]:
    path = assets / "tokenizers" / "hf-vectors" / "tokenization-vectors.json"
    vectors: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return vectors


@pytest.mark.long
@pytest.mark.parametrize("name", LLAMA_CPP)
def test_llama_cpp_vectors(shared_assets: Path, name: str) -> None:
    cases = _llama_cpp(shared_assets, name)
    tokenizer = vocabulary(shared_assets, name)
    assert len(cases) > 40
    for text, ids in cases:
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == ids
        assert tokenizer.decode(ids) == text


@pytest.mark.long
@pytest.mark.parametrize(
    ("vectors", "how"), [(name, how) for name, hows in CHECKED.items() for how in hows]
)
def test_transformers_vectors(shared_assets: Path, vectors: str, how: Checked) -> None:
    cases = _hugging_face(shared_assets)[vectors]
    tokenizer = vocabulary(shared_assets, how.vocabulary)
    before, after = how.around
    assert len(cases) >= 15
    for case_name, case in cases.items():
        ids = tokenizer.encode(case["text"], add_special_tokens=how.framed)
        assert [*before, *ids, *after] == case["ids"], case_name
        # Recorded with transformers' clean-up of spaces before punctuation, which is not done here.
        if case_name != "PUNCTUATION" and how.around == ((), ()):
            text = tokenizer.decode(case["ids"], skip_special_tokens=False)
            assert text == case["decoded"], case_name


def test_every_set_of_vectors_is_accounted_for(shared_assets: Path) -> None:
    """docs/text.md names each: with the number of texts, or among those without a vocabulary."""
    documented = DOCS.read_text(encoding="utf-8")
    counts = {name: len(_llama_cpp(shared_assets, name)) for name in LLAMA_CPP}
    recorded = {
        path.name.split("ggml-vocab-")[1].removesuffix(".gguf.inp")
        for path in (shared_assets / "tokenizers" / "ggml-vocab").glob("*.inp")
    }
    assert recorded - set(LLAMA_CPP) == {"command-r"}
    vectors = _hugging_face(shared_assets)
    counts |= {name: len(vectors[name]) for name in CHECKED}
    for name, count in counts.items():
        assert re.search(rf"\| `{re.escape(name)}` \| {count} \|", documented), (name, count)
    unchecked = documented.partition("No vocabulary for these")[2].partition("\n\n")[0]
    for name in vectors.keys() - CHECKED.keys():
        assert f"`{name}`" in unchecked, name
    assert f"{len(vectors) - len(CHECKED)} of {len(vectors)}" in unchecked


def test_every_tokenizer_of_the_assets_is_accounted_for(shared_assets: Path) -> None:
    documented = DOCS.read_text(encoding="utf-8")
    for folder in sorted((shared_assets / "tokenizers").iterdir()):
        assert f"`{folder.name}" in documented, folder.name


def test_gpt_neox_from_gguf_and_from_its_tokenizer_json(shared_assets: Path) -> None:
    """The file is of a time when GGUF did not name the rule; it was converted before NFC."""
    path = shared_assets / "tokenizers" / "ggml-vocab" / "ggml-vocab-gpt-neox.gguf"
    built = from_gguf(gguf_arrays(path), pre="gpt-2")
    read = vocabulary(shared_assets, "gpt-neox json")
    for text in _texts(shared_assets):
        ids = read.encode(text, add_special_tokens=False)
        assert built.encode(text, add_special_tokens=False) == ids
        assert built.decode(ids) == read.decode(ids) == text


def test_baichuan_loses_nothing(shared_assets: Path) -> None:
    path = shared_assets / "tokenizers" / "ggml-vocab" / "ggml-vocab-baichuan.gguf"
    tokenizer = from_gguf(gguf_arrays(path))
    for text in _texts(shared_assets):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=True)) == text


# mistral-common reads the JSON text of a tool's result and, in version 2, joins results that follow
# one another, before it writes a prompt. A template cannot, and shows the text as a text.
_BEFORE_TEMPLATES = {
    (version, f"get_weather_{which}")
    for version in (2, 3)
    for which in ("full", "no_history", "no_system_prompt")
} | {(2, "parallel_calls")}


def _sample_ids(assets: Path, folder: Path, version: int, template: str, legacy: bool) -> list[int]:
    tokenizer = mistral(assets, version, legacy)
    sample = json.loads((folder / "sample.json").read_text(encoding="utf-8"))
    path = assets / "chat-templates" / "mistral" / "chat_templates" / f"{template}.jinja"
    segments = ChatTemplate.for_tokenizer(
        path.read_text(encoding="utf-8"), tokenizer
    ).render_segments(
        sample["messages"],
        tools=sample["tools"],
        control_tokens=tokenizer.control_tokens,
        add_generation_prompt=False,
    )
    return tokenizer.encode_segments(segments)


@pytest.mark.long
def test_requests_to_mistral_give_their_token_ids(shared_assets: Path) -> None:
    """tokenizer.model, template and encoding together, in both ways of placing spaces."""
    checked = []
    for folder in sorted((shared_assets / "chat-templates" / "mistral" / "samples").iterdir()):
        for path in sorted(folder.glob("tokens_v*.json")):
            version = int(path.stem.removeprefix("tokens_v"))
            expected = json.loads(path.read_text(encoding="utf-8"))["tokens"]
            decoded = mistral(shared_assets, version, True).decode(expected)
            text = (folder / f"text_v{version}.txt").read_text(encoding="utf-8")
            assert decoded.strip()[:9] in text.replace("▁", " ")
            # Without [INST] as a token, version 1 needs the spaces its other template writes.
            ways = [(f"v{version}_spm", False), *([(f"v{version}", True)] if version > 1 else [])]
            for template, legacy in ways:
                ids = _sample_ids(shared_assets, folder, version, template, legacy)
                same = (version, folder.name) not in _BEFORE_TEMPLATES
                assert (ids == expected) is same, (folder.name, template)
                if same:
                    checked.append((folder.name, template))
    assert len(checked) == 11


@pytest.mark.long
@pytest.mark.parametrize("version", sorted(MISTRAL))
def test_mistral_models_lose_nothing(shared_assets: Path, version: int) -> None:
    """Without `legacy` no space is put before one, as in transformers, so one is lost there."""
    for text in _texts(shared_assets):
        for legacy in (True, False):
            tokenizer = mistral(shared_assets, version, legacy)
            decoded = tokenizer.decode(tokenizer.encode(text, add_special_tokens=True))
            assert decoded == text if legacy else decoded in (text, text[1:])


def test_a_list_of_ranks_is_no_sentencepiece_model(shared_assets: Path) -> None:
    for name in ("llama3", "llama4"):
        with pytest.raises(UnsupportedModelError, match="tiktoken ranks"):
            sentencepiece_entries(shared_assets / "tokenizers" / name / "tokenizer.model", {})


@pytest.mark.long
def test_harmony_ids_decode_to_what_they_were_made_of(shared_assets: Path) -> None:
    path = shared_assets / "chat-templates" / "openai-harmony" / "test_simple_tool_call.txt"
    ids = [int(word) for word in path.read_text(encoding="utf-8").split()]
    tokenizer = vocabulary(shared_assets, "harmony")
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text.startswith("<|channel|>analysis<|message|>"), text
    assert tokenizer.encode(text, add_special_tokens=False) == ids


def test_stories260k(shared_assets: Path) -> None:
    folder = shared_assets / "models" / "stories260K"
    tokenizer = from_gguf(gguf_arrays(folder / "stories260K.gguf"))
    recorded = json.loads((folder / "reference-greedy.json").read_text(encoding="utf-8"))
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (2,)
    for case in recorded["stories260K"]:
        assert tokenizer.encode(case["prompt"], add_special_tokens=True) == case["prompt_ids"]
        whole = tokenizer.decode([*case["prompt_ids"], *case["ids"]])
        assert whole == (case["prompt"] + case["text"]).lstrip(" ")


def test_smollm_rule_equals_its_tokenizer_json(shared_assets: Path) -> None:
    path = shared_assets / "tokenizers" / "litert-hf" / "tokenizer.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    vocab = state["model"]["vocab"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    added = {token["id"] for token in state["added_tokens"]}
    tokens = sorted(vocab, key=vocab.__getitem__)
    built = from_gguf(
        {
            "model": "gpt2",
            "pre": "smollm",
            "tokens": tokens,
            "merges": merges,
            "token_type": [3 if token_id in added else 1 for token_id in range(len(tokens))],
        }
    )
    read = from_json(path)
    for text in (*_texts(shared_assets), "<|im_start|>user\n12345 x<|im_end|>"):
        ids = read.encode(text, add_special_tokens=False)
        assert built.encode(text, add_special_tokens=False) == ids
        assert built.decode(ids, skip_special_tokens=False) == text
        assert read.decode(ids, skip_special_tokens=False) == text
        assert built.decode(ids) == read.decode(ids)


def _texts(assets: Path) -> list[str]:
    path = assets / "tokenizers" / "ggml-vocab" / "ggml-vocab-gpt-2.gguf.inp"
    return path.read_text(encoding="utf-8").split(SEPARATOR)
