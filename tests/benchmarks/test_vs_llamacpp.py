"""What is aimed at beside llama.cpp and ik_llama.cpp."""

from __future__ import annotations

import pytest

from benchmarks.beside import Aim
from benchmarks.vs_llamacpp import aim_of
from headrace.bench.against.cases import CASES

STREAMS = ("streams-8", "streams-32")
EVERYWHERE: dict[str, Aim] = {"prefill-4096": 4.0, "decode-at-16384": 2.5}


def aims(peer: str, kind: str) -> dict[str, Aim]:
    """Those of every case that has one."""
    found = {name: aim_of(peer, kind, case) for name, case in CASES.items()}
    return {name: aim for name, aim in found.items() if aim is not None}


@pytest.mark.parametrize(
    ("kinds", "of_kind"),
    [
        (("Q8_0",), {"prefill-512": 4.0, **dict.fromkeys(STREAMS, 4.5)}),
        (("Q4_0",), {"prefill-512": 4.0, "decode": 1.6}),
        (("Q4_K",), {"prefill-512": 3.0, "decode": 1.6, **dict.fromkeys(STREAMS, 3.5)}),
        (
            ("Q2_K", "Q3_K", "Q5_K", "Q6_K"),
            {"prefill-512": 3.0, **dict.fromkeys(STREAMS, 3.5)},
        ),
        (("Q4_1", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"), {"decode": 1.6}),
        (("BF16",), dict.fromkeys(("prefill-512", "decode", *STREAMS), "share")),
        (("F16", "F32", "Q5_0", "IQ3_S", "any-name"), {}),
    ],
)
def test_aims_beside_llamacpp(kinds: tuple[str, ...], of_kind: dict[str, Aim]) -> None:
    for kind in kinds:
        assert aims("llama", kind) == EVERYWHERE | of_kind


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "BF16"])
def test_aims_beside_ik_llamacpp(kind: str) -> None:
    prefill = dict.fromkeys(("prefill-512", "prefill-4096", "prefill-8192"), 1.2)
    decode = dict.fromkeys(("decode", "decode-at-4096", "decode-at-16384"), 1.1)
    assert aims("ik", kind) == prefill | decode | dict.fromkeys(STREAMS, 1.5)
