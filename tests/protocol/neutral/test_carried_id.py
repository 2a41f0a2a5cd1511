"""A tool call's id brings its signature back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.neutral.carried_id import pack, unpack
from headrace.protocol.neutral.part import Signature

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
_SIGNATURES = st.builds(Signature, st.sampled_from(("gemini", "openai", "mistral")), _TEXT)


@given(_TEXT, st.none() | _SIGNATURES)
def test_what_was_packed_comes_out(id: str, signature: Signature | None) -> None:
    assert unpack(pack(id, signature)) == (id, signature)


@given(_TEXT, _SIGNATURES)
def test_a_carried_id_is_one_for_anthropic(id: str, signature: Signature) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", pack(id, signature))


@given(_TEXT)
def test_an_id_without_a_signature_stays_as_it_is(id: str) -> None:
    assert pack(id, None) == id
    assert unpack(id) == (id, None)


def test_an_id_that_looks_like_a_carried_one_is_left_alone() -> None:
    real = pack("call_1", Signature("gemini", "c2lnbmVk"))
    damaged = [
        "hrsig-",
        "hrsig-AAAA",
        "hrsig-" + "A" * 64,
        "hrsig-ä",
        real[:-1],
        real + "A",
        real + "=",
        real.replace("hrsig-", "hrsig_"),
        real[:20] + ("B" if real[20] == "A" else "A") + real[21:],
    ]
    for id in damaged:
        assert unpack(id) == (id, None), id


def test_a_carried_id_of_another_gateway_is_an_id() -> None:
    theirs = pack("call_1", Signature("gemini", "s"))
    ours = pack(theirs, None)
    assert ours != theirs
    assert unpack(ours) == (theirs, None)
    assert unpack(pack(theirs, Signature("openai", "t"))) == (theirs, Signature("openai", "t"))
