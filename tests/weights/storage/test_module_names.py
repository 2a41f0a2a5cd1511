"""Lists of modules: names, wildcards and expressions, as Python's own matchers see them."""

from __future__ import annotations

import fnmatch
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UnsupportedModelError
from headrace.weights.storage.module_names import (
    MAX_LENGTH,
    MAX_NAMES,
    MAX_PATTERN_CHARACTERS,
    FirstMatch,
    ModuleNames,
)
from headrace.weights.storage.storage import Storage, WeightFormat


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


_NAMES = st.sampled_from(["a", "b.1", "a.b", "re:.*b", "re:a", "a*", "*.1", "re:.*[1x]$"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(_NAMES, max_size=3), max_size=4), _MODULES)
def test_the_first_of_several_lists_is_the_first_that_has_the_module(
    lists: list[list[str]], module: str
) -> None:
    modules = [ModuleNames(names) for names in lists]
    expected = next((at for at, names in enumerate(modules) if names.covers(module)), None)
    assert FirstMatch(modules).first(module) == expected


def test_patterns_together_have_a_limit() -> None:
    name = "re:" + ".*a" * 100
    with pytest.raises(UnsupportedModelError, match=f"at most {MAX_PATTERN_CHARACTERS}"):
        ModuleNames([name] * 2000)
    half = ModuleNames([name] * 60)
    with pytest.raises(UnsupportedModelError, match=f"at most {MAX_PATTERN_CHARACTERS}"):
        FirstMatch([half, half])


def test_patterns_that_need_too_much_work_stop_by_that() -> None:
    """Each set of states is new: the length of a name, and what stands where in it."""
    names = ModuleNames([f"re:(a|b|.)*{'.' * at}c{'(a|b)' * 60}" for at in range(1, 90)])
    begun = time.process_time()
    with pytest.raises(UnsupportedModelError, match="too long to match"):
        for number in range(4000):
            names.covers(f"{number:b}".replace("0", "c").replace("1", "a") * 6)
    assert time.process_time() - begun < 10


def test_a_format_for_each_of_many_modules_is_found_at_once() -> None:
    eight = WeightFormat("int", 8, "channel")
    groups = tuple((ModuleNames([f"model.layers.{n}.mlp"]), eight) for n in range(20_000))
    storage = Storage("auto-round", None, groups)
    begun = time.process_time()
    for number in range(2000):
        assert storage.format_of(f"model.layers.{number}.mlp.up_proj") is eight
        assert storage.format_of(f"model.layers.{number}.self_attn") is None
    assert time.process_time() - begun < 0.4


def test_a_list_has_limits() -> None:
    with pytest.raises(UnsupportedModelError, match=f"{MAX_LENGTH} characters"):
        ModuleNames(["a" * (MAX_LENGTH + 1)])
    with pytest.raises(UnsupportedModelError, match=f"at most {MAX_NAMES}"):
        ModuleNames(["a"] * (MAX_NAMES + 1))
