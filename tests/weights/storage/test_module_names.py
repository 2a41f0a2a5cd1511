"""Lists of modules: names, wildcards and expressions, as Python's own matchers see them."""

from __future__ import annotations

import fnmatch
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UnsupportedModelError
from headrace.weights.storage.module_names import MAX_LENGTH, MAX_NAMES, ModuleNames


def covered(name: str, *modules: str) -> list[bool]:
    names = ModuleNames([name])
    return [names.covers(module) for module in modules]


def test_a_name_is_whole_parts_of_a_path() -> None:
    assert covered("lm_head", "lm_head", "language_model.lm_head", "lm_heads") == [
        True, True, False,
    ]  # fmt: skip
    assert covered("model.layers.1.mlp", "model.layers.1.mlp.gate", "model.layers.11.mlp") == [
        True, False,
    ]  # fmt: skip
    assert covered("mlp.gate", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj") == [
        True, False,
    ]  # fmt: skip


def test_wildcards_match_a_path_or_that_of_a_module_around_it() -> None:
    assert covered("model.layers.0*", "model.layers.0.mlp.up_proj", "model.layers.10.mlp") == [
        True, False,
    ]  # fmt: skip
    assert covered("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj") == [True]
    assert covered("*.attn.*", "layers.0.attn.wq", "layers.0.attn") == [True, False]
    assert covered("layer?.[!ab]x", "layer1.cx", "layer1.ax", "layer12.cx") == [True, False, False]


def test_expressions_match_from_the_start() -> None:
    dense = r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"
    assert covered(dense, "model.layers.0.mlp.up_proj", "model.layers.0.mlp.experts.0.up_proj") == [
        True, False,
    ]  # fmt: skip
    assert covered(r"re:model\.layers\.(0|1)\.", "model.layers.1.mlp", "x.model.layers.1.mlp") == [
        True, False,
    ]  # fmt: skip
    assert covered(r"re:.*lm_head$", "a.lm_head", "a.lm_head.b") == [True, False]
    assert covered(r"re:^[a-c\d]+\w?\.x", "ab1_.x", "abz!.x", "d.x") == [True, False, False]


_ATOMS = st.sampled_from(["a", "b", r"\.", ".", "[ab]", "[^a]", r"\d", "(a|b)", "(?:ab|a)"])
_PARTS = st.tuples(_ATOMS, st.sampled_from(["", "*", "+", "?"])).map("".join)
_EXPRESSIONS = st.lists(st.lists(_PARTS, max_size=5).map("".join), min_size=1, max_size=3).map(
    "|".join
)
_MODULES = st.text("ab.1x", max_size=12)


@settings(max_examples=150, deadline=None)
@given(_EXPRESSIONS, _MODULES)
def test_expressions_match_what_pythons_match(expression: str, module: str) -> None:
    assert covered(f"re:{expression}", module) == [re.match(expression, module) is not None]


@settings(max_examples=100, deadline=None)
@given(
    st.text("ab.*?", min_size=1, max_size=8).filter(lambda text: set(text) & set("*?")), _MODULES
)
def test_wildcards_match_what_fnmatch_does(pattern: str, module: str) -> None:
    around = [module[:at] for at, sign in enumerate(module) if sign == "."]
    expected = any(fnmatch.fnmatchcase(path, pattern) for path in [module, *around])
    assert covered(pattern, module) == [expected]


def test_what_makes_a_backtracking_matcher_slow_is_matched_in_linear_time() -> None:
    begun = time.process_time()
    assert covered(r"re:(a+)+(a+)+(a|a)*b", "a" * 500) == [False]
    assert covered(r"re:.*a.*a.*a.*a.*b", "a" * 500) == [False]
    assert time.process_time() - begun < 0.4


@pytest.mark.parametrize(
    "expression", ["(a", "a)", "[a", "*a", "a{2,3}", r"\b", "a$|b", "x$y", "(" * 40, "a\\"]
)
def test_an_expression_that_is_not_understood_stops_by_its_text(expression: str) -> None:
    with pytest.raises(UnsupportedModelError, match="not understood") as caught:
        ModuleNames([f"re:{expression}"])
    assert "re:" in str(caught.value) and len(str(caught.value)) < 400


def test_a_list_has_limits() -> None:
    with pytest.raises(UnsupportedModelError, match=f"{MAX_LENGTH} characters"):
        ModuleNames(["a" * (MAX_LENGTH + 1)])
    with pytest.raises(UnsupportedModelError, match=f"at most {MAX_NAMES}"):
        ModuleNames(["a"] * (MAX_NAMES + 1))
