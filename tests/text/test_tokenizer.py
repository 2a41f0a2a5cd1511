"""Rules of tokenizers on vocabularies small enough to see."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from headrace.config import EngineConfig, ServerConfig
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.llm import LLM
from headrace.server.lifecycle.load import load_text
from headrace.text import Tokenizer, load_tokenizer
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.text.tokenizer_file import tokenizer_json_of
from headrace.weights.checkpoint import TokenizerData
from tests.text.vocabularies import byte_level, from_gguf, from_json, sentencepiece
from tests.tiny import tokenizer_json, write_tiny_gguf

BYTES = from_gguf(byte_level())
PIECES = from_gguf(sentencepiece())
START, END, LONGER_END, THINK = range(len(byte_level()["tokens"]) - 4, len(byte_level()["tokens"]))


def adds_bos(tokenizer: Tokenizer) -> bool:
    return tokenizer.encode("", add_special_tokens=True)[:1] == [tokenizer.bos_token_id]


def test_the_byte_alphabet_is_a_bijection() -> None:
    assert sorted(BYTE_OF_CHAR.values()) == list(range(256))
    assert BYTE_OF_CHAR["Ġ"] == 0x20
    assert BYTE_OF_CHAR["Ċ"] == 0x0A
    assert BYTE_OF_CHAR["ł"] == 0xA0


@given(text=st.text())
def test_decode_undoes_encode(text: str) -> None:
    for tokenizer, expected in ((BYTES, text), (PIECES, text.replace("\u2581", " "))):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        assert tokenizer.decode(ids) == expected


def test_special_tokens_are_parsed_unless_forbidden() -> None:
    text = "<|start|>hello<|end|><think>"
    hello = BYTES.token_to_id("hello")
    assert BYTES.encode(text, add_special_tokens=False) == [START, hello, END, THINK]
    plain = BYTES.encode(text, add_special_tokens=False, parse_special=False)
    assert START not in plain
    assert END not in plain
    assert plain[-1] == THINK, "user-defined tokens are always recognised"
    assert BYTES.decode(plain) == text
    assert BYTES.encode("<|end|>>", add_special_tokens=False) == [LONGER_END], "longest first"


def test_control_tokens_are_hidden_and_user_defined_ones_printed() -> None:
    ids = [START, THINK, END]
    assert BYTES.decode(ids) == "<think>"
    assert BYTES.decode(ids, skip_special_tokens=False) == "<|start|><think><|end|>"
    assert [BYTES.is_special(token_id) for token_id in ids] == [True, False, True]
    assert BYTES.control_tokens == ("<|start|>", "<|end|>>", "<|end|>")


def test_ends_of_text_are_control_tokens_whatever_the_file_says() -> None:
    assert from_gguf(byte_level(), eos_token_ids=(END, THINK)).is_special(THINK)


def test_tokens_give_bytes_and_text() -> None:
    e_acute = BYTES.token_to_id("Ã©")
    assert e_acute is not None
    assert BYTES.token_bytes(e_acute) == "é".encode()
    half = BYTES.token_to_id("Ã")
    assert half is not None
    assert BYTES.token_bytes(half) == b"\xc3"
    assert BYTES.token_text(half) == "\ufffd"
    assert PIECES.token_bytes(3 + 0xC3) == b"\xc3"
    assert PIECES.token_bytes(PIECES.token_to_id("▁ab") or 0) == b" ab"
    assert BYTES.token_bytes(10**6) == b""
    assert BYTES.token_bytes(-1) == b""
    assert BYTES.token_bytes(len(byte_level()["tokens"])) == b""


def test_beginning_and_end_of_text() -> None:
    assert BYTES.encode("hello", add_special_tokens=True) == [BYTES.token_to_id("hello")]
    assert not adds_bos(BYTES)
    framed = from_gguf(byte_level(add_bos_token=True, add_eos_token=True))
    assert adds_bos(framed)
    assert framed.encode("hello", add_special_tokens=True)[::2] == [START, END]
    assert adds_bos(PIECES), "SentencePiece vocabularies begin texts unless the file says no"
    assert PIECES.encode("a", add_special_tokens=True)[0] == 1
    assert not adds_bos(from_gguf(sentencepiece(add_bos_token=False)))
    assert adds_bos(from_gguf(byte_level(pre="llama-bpe")))
    assert (BYTES.bos_token, BYTES.eos_token) == ("<|start|>", "<|end|>")


def test_a_bos_of_the_template_and_one_of_the_encoder_are_noticed() -> None:
    tokenizer = from_gguf(byte_level(add_bos_token=True))
    rendered = [("<|start|>", True), ("hello", False)]
    assert tokenizer.has_double_bos(tokenizer.encode_segments(rendered, add_special_tokens=True))
    assert not tokenizer.has_double_bos(tokenizer.encode_segments(rendered))
    typed = [("hello", True), ("<|start|>", False)]
    assert not tokenizer.has_double_bos(tokenizer.encode_segments(typed, add_special_tokens=True))
    assert not tokenizer.has_double_bos([START, 5, START])
    assert not tokenizer.has_double_bos([])
    without = from_gguf(byte_level(bos_token_id=4294967295))
    assert not without.has_double_bos([START, START])


def test_ids_that_stand_for_none() -> None:
    arrays = byte_level(bos_token_id=4294967295, padding_token_id=4294967295)
    tokenizer = from_gguf(arrays, eos_token_ids=())
    assert tokenizer.bos_token_id is None
    assert "pad_token" not in tokenizer.named_tokens
    with pytest.raises(CheckpointError, match="bos_token_id is 999999"):
        from_gguf(byte_level(bos_token_id=999999))


def test_end_ids() -> None:
    assert BYTES.eos_token_ids == (END,)
    assert from_gguf(byte_level(eot_token_id=START)).eos_token_ids == (START, END)
    assert from_gguf(byte_level(), eos_token_ids=(7, 9)).eos_token_ids == (7, 9)


def test_sentencepiece_spaces() -> None:
    def pieces(text: str, tokenizer=PIECES) -> list[str]:  # type: ignore[no-untyped-def]
        ids = tokenizer.encode(text, add_special_tokens=False)
        return [tokenizer.token_text(token_id) for token_id in ids]

    assert pieces("ab") == [" ab"]
    assert pieces(" ab") == ["  ", "ab"]
    assert pieces("ab</s>ab") == [" ab", "</s>", " ab"], "after a special token as well"
    assert pieces("") == []
    bare = from_gguf(sentencepiece(add_space_prefix=False))
    assert pieces("ab", bare) == ["ab"]
    assert bare.decode(bare.encode(" ab", add_special_tokens=False)) == " ab"
    assert PIECES.decode(PIECES.encode(" ab", add_special_tokens=False)) == " ab"
    marked = PIECES.encode("</s>ab", add_special_tokens=False)
    assert PIECES.decode(marked, skip_special_tokens=False) == "</s> ab"


def _merge_by_score(text: str, arrays: dict[str, Any]) -> list[int]:
    """SentencePiece BPE as it is defined: join the best neighbours, the leftmost of equals."""
    normal = {p: i for i, p in enumerate(arrays["tokens"]) if arrays["token_type"][i] == 1}
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joints = [
            (-arrays["scores"][normal[left + right]], at)
            for at, (left, right) in enumerate(pairwise(symbols))
            if left + right in normal
        ]
        if not joints:
            break
        at = min(joints)[1]
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
    ids: list[int] = []
    for symbol in symbols:
        ids += [normal[symbol]] if symbol in normal else [3 + byte for byte in symbol.encode()]
    return ids


@settings(max_examples=200)
@given(text=st.text(alphabet="ab heloé,X\n"))
def test_sentencepiece_merges_by_score(text: str) -> None:
    expected = _merge_by_score(text, sentencepiece())
    assert PIECES.encode(text, add_special_tokens=False) == expected


@settings(max_examples=100)
@given(
    pieces=st.lists(st.text(alphabet="ab▁", min_size=2, max_size=5), max_size=12, unique=True),
    text=st.text(alphabet="ab ", max_size=16),
)
def test_sentencepiece_merges_by_score_in_any_vocabulary(pieces: list[str], text: str) -> None:
    plain = sentencepiece()
    tokens = [*plain["tokens"][:259], *pieces, *(p for p in "ab▁")]
    arrays = sentencepiece(
        tokens=tokens,
        scores=[-float(i) for i in range(len(tokens))],
        token_type=[*plain["token_type"][:259], *(1 for _ in tokens[259:])],
    )
    ids = from_gguf(arrays).encode(text, add_special_tokens=False)
    assert ids == _merge_by_score(text, arrays)


def test_ignore_merges_takes_whole_words() -> None:
    arrays = byte_level(tokens=[*byte_level()["tokens"], "abc"])
    arrays["token_type"] = [*arrays["token_type"], 1]
    whole = len(arrays["tokens"]) - 1
    assert from_gguf(arrays).encode("abc", add_special_tokens=False) != [whole]
    arrays["pre"] = "llama-bpe"
    assert from_gguf(arrays).encode("abc", add_special_tokens=False) == [whole]


def test_merges_the_vocabulary_lacks_are_left_out() -> None:
    arrays = byte_level(merges=[*byte_level()["merges"], "x y", "nonsense"])
    assert from_gguf(arrays).encode("hello xy", add_special_tokens=False) == BYTES.encode(
        "hello xy", add_special_tokens=False
    )


def test_merges_of_another_vocabulary() -> None:
    with pytest.raises(CheckpointError, match="none of the 2 joins tokens of this vocabulary"):
        from_gguf(byte_level(merges=["zz yy", "x nonsense"]))


def test_unknown_and_missing_pretokenizers() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre is 'bogus'.*--tokenizer-pre.*qwen2"):
        from_gguf(byte_level(pre="bogus"))
    with pytest.warns(UserWarning, match=r"tokenizer\.ggml\.pre is missing"):
        from_gguf(byte_level(pre=""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_gguf(byte_level(pre="bogus"), pre="gpt-2")
    with pytest.raises(UnsupportedModelError, match="--tokenizer-pre is 'wrong'"):
        from_gguf(byte_level(), pre="wrong")


def test_the_setting_named_by_the_error_reaches_the_tokenizer(tmp_path: Path) -> None:
    """In the server and in process; the engine has nothing to do with it."""
    path = str(write_tiny_gguf(tmp_path))
    cores = {"backend": "reference", "num_gpu_blocks_override": 8}
    for pre in ("wrong", "gpt-2"):
        config = EngineConfig(model=path, tokenizer_pre=pre)
        for load in (
            lambda: load_text(config, ServerConfig()),  # noqa: B023 (called in this turn)
            lambda: LLM(path, tokenizer_pre=pre, **cores),  # noqa: B023
        ):
            if pre == "gpt-2":
                assert load().tokenizer.encode("a b", add_special_tokens=False) == list(b"a b")
            else:
                with pytest.raises(UnsupportedModelError, match="--tokenizer-pre is 'wrong'"):
                    load()


def test_damaged_or_unsupported_files() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.model is 'bert'"):
        from_gguf(byte_level(model="bert"))
    with pytest.raises(CheckpointError, match="tokens is missing"):
        from_gguf({"model": "gpt2", "pre": "gpt-2"})
    with pytest.raises(CheckpointError, match="token_type has 2 entries"):
        from_gguf(byte_level(token_type=[1, 1]))
    with pytest.raises(CheckpointError, match="scores has 0 entries"):
        from_gguf(sentencepiece(scores=None))
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        load_tokenizer(TokenizerData("none"))


def test_lone_surrogates_count_as_replacement_characters() -> None:
    ids = BYTES.encode("a\ud83d b \ud83d\ude00", add_special_tokens=False)
    assert BYTES.decode(ids) == "a\ufffd b 😀"


@given(
    st.lists(
        st.tuples(st.sampled_from(["he", "llo ", "<|end|>", "<|", "end|>", ""]), st.just(True))
    )
)
def test_segments_that_allow_everything_are_the_joined_text(segments) -> None:  # type: ignore[no-untyped-def]
    joined = "".join(text for text, _ in segments)
    assert BYTES.encode_segments(segments) == BYTES.encode(joined, add_special_tokens=False)


def test_control_tokens_in_user_text_stay_text() -> None:
    segments = [("<|start|>", True), ("hi<|end|>", False), ("<|end|>", True)]
    ids = BYTES.encode_segments(segments)
    assert (ids[0], ids[-1]) == (START, END)
    assert END not in ids[1:-1]
    assert BYTES.decode(ids) == "hi<|end|>"
    # Put together from two users' texts, or from a user's and the template's.
    for pieces in ([("<|en", False), ("d|>", False)], [("<|en", True), ("d|>", False)]):
        assert END not in BYTES.encode_segments(pieces)
    # A longer control token that needs a user's character does not hide the shorter before it.
    assert BYTES.encode_segments([("<|end|>", True), (">", False)])[0] == END
    framed = from_gguf(sentencepiece())
    assert framed.encode_segments([("a", False)], add_special_tokens=True)[0] == 1


@given(st.text(alphabet="he lo<|end>é"))
def test_user_text_without_control_tokens_is_encoded_as_ever(text: str) -> None:
    if "<|end|>" not in text:
        segments = [("<|start|>", True), (text, False), ("<|start|>", True)]
        joined = f"<|start|>{text}<|start|>"
        assert BYTES.encode_segments(segments) == BYTES.encode(joined, add_special_tokens=False)


def _json_tokenizer(tmp_path: Path, **changes: object) -> Path:
    """A SentencePiece-style tokenizer.json as transformers writes it for Llama 2."""
    arrays = sentencepiece()
    vocab = {piece: token_id for token_id, piece in enumerate(arrays["tokens"])}
    merges = [("a", "a"), ("aa", "a"), ("a", "b"), ("▁", "ab"), ("▁", "▁")]
    backend = Backend(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    backend.enable_truncation(4)
    for name, value in changes.items():
        setattr(backend, name, value)
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    return path


def test_tokenizer_json(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": False}
    tokenizer = from_json(_json_tokenizer(tmp_path), config)
    ids = tokenizer.encode("ab ab é ab ab", add_special_tokens=True)
    assert ids[0] == 1, "what the post-processor does counts"
    assert ids[-1] == 2
    assert len(ids) > 4, "truncation stored in the file is off"
    assert tokenizer.decode(ids) == "ab ab é ab ab"
    assert tokenizer.eos_token_ids == (2,)
    assert tokenizer.strips_first_space
    # A prefix space for the beginning of a text only, also where control tokens are kept as text.
    joined = tokenizer.encode("ab</s>ab", add_special_tokens=False)
    assert [tokenizer.token_text(i) for i in joined] == [" ab", "</s>", "ab"]
    kept = tokenizer.encode_segments([("ab</s>ab", True), ("</s>", False)])
    assert kept[:3] == joined
    assert tokenizer.decode(kept) == "abab</s>"


@pytest.mark.parametrize("arrays", [byte_level(), sentencepiece()])
def test_a_file_made_of_arrays_reads_and_writes_as_they_do(
    arrays: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json_of(TokenizerData("gguf", gguf=arrays), ()), encoding="utf-8")
    made, known = from_json(path, {}), from_gguf(arrays)
    for text in ("ab ab", "\u00e9 \u4e16\n x", " ab"):
        ids = known.encode(text, add_special_tokens=False)
        assert made.encode(text, add_special_tokens=False) == ids
        assert made.decode(ids) == known.decode(ids) == text
        assert Backend.from_file(str(path)).decode(ids) == text, "what others read in the file"


def test_config_adds_bos_where_the_file_adds_nothing(tmp_path: Path) -> None:
    state = json.loads(_json_tokenizer(tmp_path).read_text(encoding="utf-8"))
    (tmp_path / "tokenizer.json").write_text(json.dumps({**state, "post_processor": None}))
    config = {"bos_token": "<s>", "add_bos_token": True}
    assert adds_bos(from_json(tmp_path / "tokenizer.json", config))
    assert not adds_bos(from_json(tmp_path / "tokenizer.json", {"bos_token": "<s>"}))


def test_special_tokens_only_the_config_names(tmp_path: Path) -> None:
    config = {"additional_special_tokens": ["<tool>", "absent"]}
    tokenizer = from_json(_json_tokenizer(tmp_path), config)
    tool = tokenizer.token_to_id("<tool>")
    assert tool is not None
    assert tokenizer.is_special(tool)
    assert tokenizer.encode("<tool>", add_special_tokens=False) == [tool]
    assert tokenizer.token_to_id("absent") is None


def test_flags_of_tokens_only_the_config_names(tmp_path: Path) -> None:
    """From added_tokens_decoder, else from the entry that names the token; not special is found,
    too, and printed."""
    path = _json_tokenizer(tmp_path)
    flagged = {"content": "<tool>", "rstrip": True, "special": True}
    configs: list[dict[str, Any]] = [
        {"additional_special_tokens": ["<tool>"], "added_tokens_decoder": {"7": flagged}},
        {"additional_special_tokens": [flagged]},
        {"eos_token": flagged},
        {"added_tokens_decoder": {"7": flagged}, "eos_token": {"content": "<tool>"}},
        {"added_tokens_decoder": {"7": {**flagged, "special": False}}},
    ]
    for config in configs:
        tokenizer = from_json(path, config)
        tool = tokenizer.token_to_id("<tool>")
        end = tokenizer.encode("<tool>a", add_special_tokens=False)[-1]
        assert tokenizer.encode("<tool> \n a", add_special_tokens=False) == [tool, end], config
        assert tokenizer.is_special(tool or 0) == (config is not configs[-1])
    for damaged in ([1], {"a": 1}, {"7": {"content": 5}}):
        from_json(path, {"added_tokens_decoder": damaged})


@pytest.mark.parametrize(
    ("token_id", "content"),
    [(4_000_000_000, "<gap>"), (259, "<a token has it>"), (5, "<a word has it>"), (300, "a")],
)
def test_added_tokens_with_ids_that_the_library_would_change(
    tmp_path: Path, token_id: int, content: str
) -> None:
    state = tokenizer_json()
    state["added_tokens"].append({**state["added_tokens"][0], "id": token_id, "content": content})
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=f"'{content}' has id {token_id}"):
        from_json(tmp_path / "tokenizer.json")


def test_undecodable_vocabularies_still_encode(tmp_path: Path) -> None:
    path = _json_tokenizer(tmp_path, decoder=decoders.WordPiece(), normalizer=normalizers.NFC())
    tokenizer = from_json(path)
    assert tokenizer.encode("ab", add_special_tokens=False)
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        tokenizer.decode([5])


def test_broken_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        from_json(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not a usable"):
        from_json(tmp_path / "tokenizer.json")
