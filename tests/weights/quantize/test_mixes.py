"""The kinds of mixes against what llama-quantize chose, as recorded in mixes.json."""

from __future__ import annotations

import json

import pytest

from headrace.errors import ConfigError
from headrace.weights.codecs import get_codec
from headrace.weights.quantize.mixes import MIXES
from headrace.weights.quantize.plan import kinds_of, mix_of, override_of, shape_of
from headrace.weights.quantize.roles import may_be_quantised
from tests.weights.quantize.shapes import CASES, FACTS, NO_TYPE, NOT_RECORDED, by_part


def kinds(case_name: str, mix: str, *overrides: str, pure: bool = False) -> dict[str, str]:
    case = CASES[case_name]
    sources = case.sources()
    shape = shape_of(case.metadata(), sources, has_importance=False)
    read = [override_of(text) for text in overrides]
    chosen = kinds_of(sources, MIXES[mix], shape, read, pure=pure)
    return {name: codec.name for name, codec in chosen.items()}


@pytest.mark.parametrize("case_name", CASES)
def test_every_tensor_gets_the_kind_that_llama_quantize_gives_it(case_name: str) -> None:
    facts = json.loads(FACTS.read_text(encoding="utf-8"))[case_name]
    assert facts.keys() == MIXES.keys() - {NO_TYPE, *NOT_RECORDED.get(case_name, ())}
    for mix, expected in facts.items():
        assert by_part(kinds(case_name, mix)) == expected, mix


def test_an_override_decides_over_the_mix_and_the_first_that_fits_over_others() -> None:
    plain = kinds("llama-32-gqa", "Q4_K_M")
    changed = kinds(
        "llama-32-gqa", "Q4_K_M", r"blk\.3\.ffn_down=Q8_0", "ffn_down=Q5_K", "norm=Q8_0"
    )
    assert changed["blk.3.ffn_down.weight"] == "Q8_0"
    assert changed["blk.4.ffn_down.weight"] == "Q5_K"
    others = [name for name in plain if "ffn_down" not in name]
    assert {name: plain[name] for name in others} == {name: changed[name] for name in others}


def test_a_pure_mix_has_its_kind_everywhere() -> None:
    pure = kinds("llama-32-gqa", "Q4_K_M", pure=True)
    case = CASES["llama-32-gqa"]
    for source in case.sources():
        wanted = "Q4_K" if may_be_quantised(source.name, source.shape) else "F32"
        assert pure[source.name] == wanted


def test_importance_changes_the_first_down_projections_of_some_mixes() -> None:
    case = CASES["llama-32-gqa"]
    sources = case.sources()
    shape = shape_of(case.metadata(), sources, has_importance=True)
    for mix, first in (("Q4_0", "Q4_1"), ("Q5_0", "Q5_1"), ("IQ4_XS", "IQ4_XS")):
        chosen = kinds_of(sources, MIXES[mix], shape)
        assert chosen["blk.0.ffn_down.weight"] is get_codec(first)
        assert chosen["blk.31.ffn_down.weight"] is get_codec(mix)


def test_names_of_mixes_may_be_short_and_of_any_case() -> None:
    assert mix_of("q4_k") is MIXES["Q4_K_M"]
    assert mix_of("iq4_xs") is MIXES["IQ4_XS"]
    with pytest.raises(ConfigError, match="type 'Q7_K' is unknown; known are F32, F16"):
        mix_of("Q7_K")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ffn_down", "is not PATTERN=KIND"),
        ("=Q8_0", "is not PATTERN=KIND"),
        ("ffn_down=Q9", "'Q9' is not a kind that can be made; these are: F32"),
        ("ffn_down=F8_E4M3", "not a kind that can be made"),
        ("ffn_(down=Q8_0", "is not a regular expression"),
    ],
)
def test_an_override_that_means_nothing_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override_of(text)
