"""docs/words.md: what it replaces does not spread, and class docstrings say what the class is."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs import docstrings, loop_variables, other_texts, words
from tests.docs.pages import ROOT, SOURCE


@dataclass(frozen=True, slots=True)
class Left:
    """Names and phrases that docs/words.md replaces and the sources or pages still have."""

    names: Mapping[str, int]
    places: Sequence[words.Place]


@pytest.fixture(scope="session")
def left(sources: Mapping[Path, ast.Module]) -> Left:
    return Left(words.counted_names(sources), words.places(sources))


def test_names_that_words_replaces_only_get_fewer(left: Left) -> None:
    listed = words.read_numbers(words.NAMES_LEFT)
    assert words.grown(left.names, listed) == {}, "new names that docs/words.md replaces"
    gone = words.grown(listed, left.names)
    assert gone == {}, "no longer in the sources: run `python -m tests.docs.words --write`"


def test_phrases_that_words_replaces_only_get_fewer(left: Left) -> None:
    listed = words.read_numbers(words.PHRASES_LEFT)
    more = words.grown(words.counted_phrases(left.places), listed)
    new = [str(place) for place in left.places if words.room_of(place.path) in more]
    assert more == {}, "phrases that docs/words.md replaces:\n" + "\n".join(new)


@pytest.mark.parametrize("file", [words.NAMES_LEFT, words.PHRASES_LEFT], ids=lambda file: file.name)
def test_the_lists_are_sorted(file: Path) -> None:
    numbers = words.read_numbers(file)
    assert list(numbers) == sorted(numbers)
    assert 0 not in numbers.values()


def test_every_phrase_is_on_the_page() -> None:
    assert words.documented_phrases() == [phrase.name for phrase in words.PHRASES]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n: 'two' is no whole number", ["is no X"]),
        ("there is no folder x; it is no longer read", []),
        ("leave --rate away", ["leave away"]),
        ("the server tells its usage", ["tell, told"]),
        ("the model that was asked", ["asked"]),
        ("what was said", ["said"]),
        ("keys of one's own", ["one's own"]),
        ("is started anew", ["anew"]),
        ("the URL is none, and there are none", ["is none", "is none"]),
        ("and besides the id", ["besides"]),
        ("would wait for ever", ["for ever"]),
        ("a field that nobody knows", ["nobody"]),
        ("models that are to be had", ["to be had"]),
        ("gives it back", ["give back"]),
        ("the key stands in the file", ["stands in"]),
        ("a token is not to be empty", ["is not to be"]),
        ("All replies. Not checked are ids", ["Kept are X"]),
        ("The server reports usage and cached tokens; omit --rate for all of them.", []),
    ],
)
def test_phrases_are_found(text: str, found: list[str]) -> None:
    assert [name for _, name, _ in words.phrases_in(text)] == found


def test_strings_that_users_meet_are_read_and_others_are_not() -> None:
    tree = ast.parse(
        '''
"""A module that was asked."""
class Config:
    """A class that was asked."""
    rate: int
    """The rate asked for."""
@cli.command()
def bench(rate):
    """Help that was asked."""
    raise ConfigError(f"rate: {rate} is no number" " at all")
def other():
    """A function that was asked."""
'''
    )
    assert sorted(text for _, text in words.texts(tree)) == [
        "Help that was asked.",
        "The rate asked for.",
        "rate: … is no number at all",
    ]


def test_strings_of_scripts_are_read_and_comments_and_names_of_styles_are_not() -> None:
    script = r"""
// Nobody was asked.
import { told } from "./told.js";
const who = key.team || "nobody"; /* nobody */
note(`${count(n)} of ${all ? "told" : `${x} asked`} were said`);
h("p", { class: "told", title: 'one\'s own' }, text.replace(/"/g, "is \"none\""));
document.getElementById("said").textContent = "// a URL";
"""
    assert sorted(other_texts.script_texts(script)) == [
        (4, "nobody"),
        (5, "told"),
        (5, "… asked"),
        (5, "… of … were said"),
        (6, r"is \"none\""),
        (6, r"one\'s own"),
        (6, "p"),
        (7, "// a URL"),
    ]


def test_text_of_html_is_read_and_its_marks_are_not() -> None:
    page = (
        '<p id="said" class="told">\nIt is <b>said</b></p><img alt="a told story" src="asked.png">'
    )
    found = other_texts.html_texts(page)
    assert [(line, text) for line, text in found if text.strip()] == [
        (1, "\nIt is "),
        (2, "said"),
        (2, "a told story"),
    ]


def test_of_the_changelog_what_is_not_released_is_read() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0\n\n- Old.\n"
    assert other_texts.unreleased(changelog) == "\n\n\n\n- New.\n"


def test_files_that_are_not_python_are_read() -> None:
    read = {path for path, _, _ in other_texts.other_texts()}
    assert {
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "docs" / "gateway.md",
        ROOT / "benchmarks" / "README.md",
        ROOT / "benchmarks" / "figures" / "peers.md",
        ROOT / "training" / "README.md",
        ROOT / "deploy" / "README.md",
        ROOT / "deploy" / "grafana" / "headrace-gateway.json",
        ROOT / "deploy" / "prometheus" / "headrace-gateway.rules.yml",
        SOURCE / "server" / "pages" / "docs" / "app.js",
        SOURCE / "gateway" / "admin" / "page" / "index.html",
    } <= read
    assert ROOT / "docs" / "words.md" not in read


@pytest.mark.parametrize(
    "name",
    ["asked", "told_ids", "making", "who", "Told", "PassedScrub", "Reloading", "Way", "Settled"],
)
def test_names_that_say_nothing_are_refused(name: str) -> None:
    bad = words.is_class_named_badly(name) or words.is_module_named_badly(name)
    assert bad


@pytest.mark.parametrize(
    "name",
    ["Scheduler", "RoutingQuery", "GatewaySettings", "Embedding", "SharedPrefix", "RateLimit"],
)
def test_names_of_the_field_are_not(name: str) -> None:
    assert not words.is_class_named_badly(name)


@pytest.mark.parametrize(
    "name", ["scheduler", "routing", "shared_prefix", "embedding", "string_array"]
)
def test_modules_named_by_nouns_are_not(name: str) -> None:
    assert not words.is_module_named_badly(name)


def test_a_number_that_grows_is_found() -> None:
    assert words.grown({"plan": 3, "cli": 1}, {"plan": 2, "cli": 1}) == {"plan": (2, 3)}
    assert words.grown({"new": 1}, {}) == {"new": (0, 1)}


def test_a_list_that_is_written_again_only_gets_shorter(tmp_path: Path) -> None:
    file = tmp_path / "left.txt"
    assert words.write_numbers(file, {"plan": 1}) == 0
    assert words.write_numbers(file, {}) == 0
    assert words.write_numbers(file, {"plan": 1}) == 1
    assert words.read_numbers(file) == {}


def test_docstrings_of_another_form_only_get_fewer(sources: Mapping[Path, ast.Module]) -> None:
    new = docstrings.new_offenders(list(docstrings.offenders(sources)))
    assert new == [], "docstrings of classes (CONTRIBUTING.md, Style):\n" + "\n".join(new)


def test_the_list_of_docstrings_is_sorted() -> None:
    numbers = words.read_numbers(docstrings.DOCSTRINGS_LEFT)
    assert list(numbers) == sorted(numbers)
    assert 0 not in numbers.values()


@pytest.mark.parametrize(
    ("docstring", "reason"),
    [
        ("A unit of work. rate: per second.", None),
        ("Limits of one client. Raises ConfigError for a value out of range.", None),
        ("A price. rate: per second. limit: at most.", None),
        ("rate: per second.", "begins with the field rate"),
        ("`rate`: per second.", "begins with the field rate"),
        ("rate, limit: both of them.", "begins with the field rate"),
        ("limit of what is sent.", "begins with the field limit"),
        ("elsewhere: of no field.", "begins with the field elsewhere"),
        ("Of a stream.", "begins with Of, not with what the class is"),
        ("What is known of a call.", "begins with What, not with what the class is"),
        ("Told to a client.", "begins with Told, not with what the class is"),
        ("Between two readings.", "begins with Between, not with what the class is"),
        ("More than a client may send.", "begins with More, not with what the class is"),
        ("See Counters.end.", "begins with See, not with what the class is"),
        ("Collects prices.", "begins with Collects, not with what the class is"),
        ("Give it the prices in order.", "begins with Give, not with what the class is"),
        ("Runs a plan once.", "begins with Runs, not with what the class is"),
        ("Answers `request`.", "begins with Answers, not with what the class is"),
        ("Runs of a plan.", None),
        ("Changes to a price; whatever is omitted stays.", None),
        (
            "A price. rate, limit: both of\nthem. `unit`: a word.",
            "describes limit, rate, unit in the paragraph, not by strings under the fields",
        ),
    ],
)
def test_forms_are_told_apart(docstring: str, reason: str | None) -> None:
    source = f'class Price:\n    """{docstring}"""\n    rate: int\n    limit: int\n    unit: str\n'
    [node] = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert docstrings.reason(node) == reason


def test_a_room_with_more_than_the_list_allows_is_listed_whole() -> None:
    tree = ast.parse('class Price:\n    """Of a token."""\nclass Rate:\n    """A rate."""\n')
    path = SOURCE / "unheard" / "price.py"
    found = list(docstrings.offenders({path: tree}))
    assert words.counted_by_room(found) == {"unheard": 1}
    assert docstrings.new_offenders(found) == [
        "src/headrace/unheard/price.py:1: class Price: begins with Of, not with what the class is"
    ]


@pytest.fixture(scope="session")
def variables(sources: Mapping[Path, ast.Module]) -> list[loop_variables.LoopVariable]:
    return list(loop_variables.loop_variables(sources))


def test_loop_variables_that_words_replaces_only_get_fewer(
    variables: list[loop_variables.LoopVariable],
) -> None:
    new = loop_variables.new_loop_variables(variables)
    assert new == [], "loop variables are the noun (docs/words.md):\n" + "\n".join(new)


def test_the_list_of_loop_variables_is_sorted() -> None:
    numbers = words.read_numbers(loop_variables.LOOP_VARIABLES_LEFT)
    assert list(numbers) == sorted(numbers)
    assert 0 not in numbers.values()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("for one in targets: pass", ["one"]),
        ("for place, (one, told) in rows: pass", ["one", "told"]),
        ("async def f():\n    async for said in lines: pass", ["said"]),
        ("[asked.id for asked in requests]", ["asked"]),
        ("{one: 1 for row in rows for one in row}", ["one"]),
        ("for target in targets: one = target", []),
        ("for row[one] in rows: pass", []),
        ("one = [target for target in one]", []),
    ],
)
def test_loop_variables_are_found(source: str, names: list[str]) -> None:
    tree = ast.parse(source)
    found = loop_variables.loop_variables({SOURCE / "plan" / "price.py": tree})
    assert sorted(variable.name for variable in found) == names


def test_a_room_with_more_loop_variables_than_the_list_allows_is_listed() -> None:
    path = SOURCE / "unheard" / "price.py"
    found = list(loop_variables.loop_variables({path: ast.parse("[one for one in prices]")}))
    assert words.counted_by_room(found) == {"unheard": 1}
    assert loop_variables.new_loop_variables(found) == [
        "src/headrace/unheard/price.py:1: for one in"
    ]
