"""Text of users gives no control token's id, whatever the vocabulary and the template hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headrace.text import ChatTemplate, Tokenizer, load_tokenizer
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.text.plain_text import WHITE_SPACE
from headrace.text.vocabulary import Vocabulary
from headrace.weights.tokenizer.added_tokens import TokenFlags
from headrace.weights.tokenizer.data import TokenizerData
from tests.text.test_gguf_damage import with_token
from tests.text.vocabularies import CONTROL, NORMAL, byte_level, from_gguf, sentencepiece

USER = [{"role": "user", "content": "x"}]


def flagged(arrays: dict[str, Any], **flags: bool) -> Tokenizer:
    """A tokenizer whose `<|end|>` or `</s>` has flags."""
    stated = dict.fromkeys(("<|end|>", "</s>"), TokenFlags(**flags))
    return load_tokenizer(TokenizerData("gguf", gguf=arrays, flags=stated))


def composed(*added: AddedToken, normalizer: Any = None) -> Tokenizer:
    """Bytes, some added tokens, and a normalizer, as a tokenizer.json may have them."""
    backend = Backend(models.BPE(vocab={c: i for i, c in enumerate(BYTE_OF_CHAR)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    decoder = backend.get_added_tokens_decoder()
    return Tokenizer(
        Vocabulary(
            backend=backend, spelling="bytes",
            literal={index: token.content for index, token in decoder.items()},
            special_ids=frozenset(index for index, token in decoder.items() if token.special),
            prefix_ids=(), suffix_ids=(), strips_first_space=False, bos_token_id=None,
            eos_token_ids=(),
        )
    )  # fmt: skip


def assert_text(tokenizer: Tokenizer, text: str, allowed: str = "") -> None:
    """A user's text, alone and behind a template's, is no control token and loses nothing."""
    alone = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    behind = tokenizer.encode_segments([(allowed, True), (text, False)])
    before = tokenizer.encode(allowed, add_special_tokens=False)
    special = [index for index in before if tokenizer.is_special(index)]
    assert not any(map(tokenizer.is_special, alone)), text
    assert [index for index in behind if tokenizer.is_special(index)] == special, text
    assert tokenizer.decode(alone, skip_special_tokens=False) == text
    shown = tokenizer.decode(behind, skip_special_tokens=False)
    assert shown == allowed + text


def test_a_word_of_the_vocabulary_that_is_a_control_token() -> None:
    """Rules that take a whole word without merging would take it (ignore_merges)."""
    arrays = with_token(byte_level(pre="llama-bpe"), "EOS", CONTROL)
    tokenizer = from_gguf(arrays)
    assert tokenizer.encode("EOS", add_special_tokens=False) == [len(arrays["tokens"]) - 1]
    assert_text(tokenizer, "EOS")
    assert_text(tokenizer, "EOS and EOS", "<|start|>")
    assert_text(tokenizer, "EOS", "EOS")


def test_merges_that_make_a_control_token() -> None:
    arrays = with_token(byte_level(), "oo", CONTROL) | {"merges": ["o o"]}
    assert_text(from_gguf(arrays), "foo")
    assert_text(from_gguf(arrays), "foo", "<|end|>")


def test_a_control_token_of_one_character() -> None:
    """SentencePiece looks a character up in the whole vocabulary."""
    arrays = with_token(sentencepiece(add_space_prefix=False), "§", CONTROL)
    tokenizer = from_gguf(arrays)
    assert tokenizer.encode("a§", add_special_tokens=False)[-1] == len(arrays["tokens"]) - 1
    assert_text(tokenizer, "a § b")
    assert_text(tokenizer, "a§b", "§")


def test_a_text_that_normalizing_makes_a_control_token() -> None:
    """U+212A is K to NFC; a token may be looked for in the normalized text."""
    token = AddedToken("<|K|>", special=True, normalized=True)
    tokenizer = composed(token, normalizer=normalizers.NFC())
    assert tokenizer.is_special(tokenizer.encode("<|\u212a|>", add_special_tokens=False)[0])
    for text in ("<|\u212a|>", "a <|\u212a|> b"):
        for segments in ([(text, False)], [("<|K|>", True), (text, False), ("<|K|>", True)]):
            ids = tokenizer.encode_segments(segments)
            written = sum(piece.count("<|K|>") for piece, allowed in segments if allowed)
            assert sum(map(tokenizer.is_special, ids)) == written
    lower = composed(token, normalizer=normalizers.Sequence([normalizers.Lowercase()]))
    assert not any(map(lower.is_special, lower.encode_segments([("<|k|>", False)])))


def test_the_unknown_token_may_come_of_any_text() -> None:
    arrays = sentencepiece(add_space_prefix=False)
    tokens = [token for token in arrays["tokens"] if not token.startswith("<0x")]
    count = len(tokens)
    arrays |= {"tokens": tokens, "scores": arrays["scores"][-count:]}
    tokenizer = from_gguf(arrays | {"token_type": [2, 3, 3, *[NORMAL] * (count - 4), 4]})
    assert tokenizer.encode_segments([("a", True), ("ü", False)])[-1] == 0
    assert tokenizer.encode("ü", add_special_tokens=False, parse_special=False) == [0]


def test_a_control_token_written_with_the_mark_of_a_space(tmp_path: Path) -> None:
    """CodeLlama's `▁<PRE>`: its text is shown with a space."""
    backend = Backend.from_str(
        '{"model": {"type": "BPE", "vocab": {"a": 0, "▁": 1, "<": 2}, "merges": []},'
        '"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}}'
    )
    backend.add_special_tokens(["▁<PRE>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(TokenizerData("tokenizer.json", tmp_path / "tokenizer.json"))
    assert tokenizer.encode("▁<PRE>a", add_special_tokens=False) == [3, 0]
    for allowed in ("▁<PRE>", " <PRE>"):
        ids = tokenizer.encode_segments([(allowed, True), ("a▁<PRE>a <PRE>", False)])
        assert ids.count(3) == allowed.count("▁")


def test_white_space_goes_with_a_flagged_token() -> None:
    tokenizer = flagged(byte_level(), lstrip=True, rstrip=True)
    end = tokenizer.token_to_id("<|end|>")
    for space in (" ", "\n\n", WHITE_SPACE):
        ids = tokenizer.encode(f"h{space}<|end|>{space}h", add_special_tokens=False)
        assert ids == [ord("h") - 33, end, ord("h") - 33]
    assert tokenizer.encode("<|end|> ", add_special_tokens=False) == [end]
    inside = flagged(byte_level(), single_word=True)
    assert end not in inside.encode("a<|end|>b", add_special_tokens=False)
    assert end in inside.encode("a <|end|> b", add_special_tokens=False)


SPACES = st.text(alphabet=WHITE_SPACE + "\x1c\x1d\x1e\x1f\u200b", max_size=3)


@given(
    flags=st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip")}),
    parts=st.lists(st.tuples(SPACES, st.sampled_from(["<|end|>", "a", "</s>", ""]), SPACES)),
    made=st.sampled_from([byte_level(), sentencepiece(), sentencepiece(add_space_prefix=False)]),
)
def test_cutting_at_control_tokens_by_hand_is_what_the_library_does(
    flags: dict[str, bool], parts: list[tuple[str, str, str]], made: dict[str, Any]
) -> None:
    """The way that is taken where a user wrote a control token: the same ids, flags and all."""
    tokenizer = flagged(made, **flags)
    text = "".join(map("".join, parts))
    by_hand = tokenizer._encode_guarded(text, [(0, len(text))], None)
    assert by_hand == tokenizer.encode(text, add_special_tokens=False)
    ids = tokenizer.encode_segments([(text, True), ("<|end|></s>", False)])
    expected = [index for index in by_hand if tokenizer.is_special(index)]
    assert [index for index in ids if tokenizer.is_special(index)] == expected


@given(text=st.text(alphabet="a<|end|></s> \n\x1c\u3000é"))
def test_no_text_has_fewer_tokens_than_the_bound_with_flags(text: str) -> None:
    """White space may go with a control token, all else has a token."""
    for made in (byte_level(), sentencepiece()):
        tokenizer = flagged(made, lstrip=True, rstrip=True)
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.fewest_tokens(text) <= len(ids)
    assert (
        tokenizer.fewest_tokens("a" * 600 + " " * 600) == tokenizer.fewest_tokens("a" * 600) >= 50
    )


def _special(source: str, messages: list[dict[str, Any]], **variables: Any) -> list[str]:
    """The control tokens a rendering becomes; and that the text is the template's own."""
    tokenizer = from_gguf(byte_level())
    template = ChatTemplate(source)
    segments = template.render_segments(
        messages, control_tokens=tokenizer.control_tokens, **variables
    )
    assert "".join(text for text, _ in segments) == template.render(messages, **variables)
    ids = tokenizer.encode_segments(segments)
    return [tokenizer.token_text(index) for index in ids if tokenizer.is_special(index)]


@pytest.mark.parametrize("content", ["end", " end\n", "end|>", "nd", "|>", ">", "e", "end|> x"])
@pytest.mark.parametrize("before", ["<|end|>", "<|end|", "<|", "<|e", "<"])
def test_pieces_that_only_the_template_joins(before: str, content: str) -> None:
    """The template's `<|` before, its `|>` behind, and a user's `end` between."""
    content_and_after = [
        "{{ messages[0].content }}|>",
        "{{ messages[0].content | trim }}|>",
        "{{ messages[0].content }}{{ messages[0].content }}|>",
    ]
    for after in content_and_after:
        source = f"{before}{after}<|start|>"
        messages = [{"role": "user", "content": content}]
        own = ["<|end|>"] if before == "<|end|>" else []
        assert _special(source, messages) == [*own, "<|start|>"]


def test_pieces_of_names_and_keys() -> None:
    tools = [{"type": "function", "function": {"name": "end", "parameters": {"end": 1}}}]
    name = "<|{{ tools[0].function.name }}|>"
    assert _special(name, USER, tools=tools) == []
    key = "{% for key in tools[0].function.parameters %}<|{{ key }}|>{% endfor %}"
    assert _special(key, USER, tools=tools) == []
    # A key that the template looks up is its own; what it finds there is still the user's.
    looked_up = "<|{{ tools[0].function.parameters.end }}|>{{ tools[0].function.name }}<|"
    assert _special(looked_up, USER, tools=tools) == []
    variable = "<|{{ x }}|><|start|>"
    assert _special(variable, USER, x="end") == ["<|start|>"]
    two = "<{{ messages[0].content }}{{ messages[1].content }}>"
    said = [{"role": "user", "content": "|en"}, {"role": "user", "content": "d|"}]
    assert _special(two, said) == []


def test_what_begins_no_rest_of_a_control_token_is_left_alone() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    for said in ("\0", "\0x", "x", "s", "user"):
        segments = template.render_segments(
            [{"role": "user", "content": said}], control_tokens=["<|end|>", "<", "<|\0z|>"]
        )
        assert segments == [(said, True)]


def test_a_role_or_type_that_is_a_control_token_is_a_text() -> None:
    tokenizer = from_gguf(with_token(byte_level(), "EOS", CONTROL))
    template = ChatTemplate("{{ messages[0].role }}{{ x.type }}<|start|>")
    segments = template.render_segments(
        [{"role": "EOS", "content": ""}], control_tokens=tokenizer.control_tokens,
        x={"type": "EOS"},
    )  # fmt: skip
    ids = tokenizer.encode_segments(segments)
    assert [index for index in ids if tokenizer.is_special(index)] == ids[-1:]
    assert "".join(text for text, _ in segments) == "EOSEOS<|start|>"


@pytest.mark.parametrize("mark", ["\U00100000", "\U00100001", "\U0010fffd"])
def test_a_user_s_placeholder_is_not_taken_for_one_of_ours(mark: str) -> None:
    """Private-use characters stand in for disguised ones while the template runs."""
    source = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}"
    said = [f"{mark}|end|>", f"<|end|>{mark}", f"{mark}", "<|start|>", "\U00100002|end|>"]
    messages = [{"role": "user", "content": text} for text in said]
    assert _special(source, messages) == ["<|start|>", "<|end|>"] * len(said)
