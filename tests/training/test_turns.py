"""Conversations to train on: true to the corpus, clean, distinct, and rendered as served."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.text import ChatTemplate
from training.data.corpus import CONTROL_TEXT
from training.turns import conversations as turns
from training.turns.answers import ANSWERS
from training.turns.calls import FUNCTIONS, called
from training.turns.facts import Fact, first_example, read_facts
from training.turns.known import descriptions, examples, improved, recipes
from training.turns.running import FAMOUS, running_facts
from training.turns.smalltalk import outside_talk, personal_talk, unknown_talk
from training.turns.tables import read_table

PATHS = '''
def join(a, *p):
    """Join two or more pathname components, inserting '/' as needed."""
    path = a
    for b in p:
        path += "/" + b
    return path
'''
SHAPES = '''
class Square:
    """A square of a given side."""

    def __init__(self, side: float = 1.0) -> None:
        self.side = side

    def area(self) -> float:
        """Return the area of the square and keep it.

        >>> Square(2).area()
        4
        """
        self.kept = self.side**2
        return self.kept


def resized(square: Square, /, factor: float = 2, *, exact: bool = False) -> Square:
    """Return a square `factor` times as large.

    :param factor: how much larger
    """
    side = square.side * factor
    return Square(side)


def marked(text):
    """Return the text between <|im_start|> and its end."""
    first = text
    return first


def _hidden(value):
    """Return the value without change at all."""
    kept = value
    return kept
'''
WANTED = dict.fromkeys(turns.WANTED, 6)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packages of training and one that is held out."""
    init = "from .plane.shapes import Square, resized\n"
    rows = {
        "train": [
            ("python", "posixpath.py", PATHS),
            ("figures", "figures/__init__.py", init),
            ("figures", "figures/plane/shapes.py", SHAPES),
        ],
        "heldout": [("secrets", "apart/inner.py", SHAPES.replace("quare", "phere"))],
    }
    folder = tmp_path_factory.mktemp("corpus")
    for split, files in rows.items():
        lines = [json.dumps(dict(zip(("package", "path", "text"), f, strict=True))) for f in files]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _facts(corpus: Path) -> dict[str, Fact]:
    return {fact.full_name: fact for fact in read_facts(corpus, "train")}


def write_conversations(corpus: Path, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "WANTED", WANTED)
        patch.setattr(turns, "HELD_OUT_SHARE", 1.0)
        patch.setattr("sys.argv", ["turns", "--corpus", str(corpus), "--out", str(out)])
        turns.main()


@pytest.fixture(scope="module")
def written(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the conversations about the corpus, which tests read."""
    out = tmp_path_factory.mktemp("written")
    write_conversations(corpus, out)
    return out


def conversations_in(out: Path) -> dict[str, list[Any]]:
    return {
        split: [json.loads(line) for line in (out / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "heldout")
    }


def test_names_are_the_ones_users_write(corpus: Path) -> None:
    facts = _facts(corpus)
    assert facts["os.path.join"].asked
    assert facts["figures.Square.area"].asked
    assert facts["figures.resized"].kind == "function"
    assert not facts["figures.plane.shapes._hidden"].asked


def test_text_of_control_tokens_is_left_out(corpus: Path) -> None:
    assert not any("marked" in name for name in _facts(corpus))


def test_a_signature_is_the_whole_head(corpus: Path) -> None:
    facts = _facts(corpus)
    fact = facts["figures.resized"]
    wanted = "def resized(square: Square, /, factor: float = 2, *, exact: bool = False) -> Square:"
    assert fact.signature == wanted
    assert fact.arguments == ("square: Square", "factor: float = 2", "exact: bool = False")
    assert fact.returns == "Square"
    assert facts["figures.Square"].arguments == ("side: float = 1.0",)
    assert facts["figures.Square.area"].arguments == ()
    assert facts["os.path.join"].arguments == ("a", "*p")


def test_the_parts_of_a_source_make_the_whole(corpus: Path) -> None:
    fact = _facts(corpus)["os.path.join"]
    assert fact.source.startswith(fact.head + "\n")
    assert fact.head.endswith('as needed."""')
    bare = ast.parse(fact.bare).body[0]
    assert isinstance(bare, ast.FunctionDef)
    assert ast.get_docstring(bare) is None
    whole = ast.parse(fact.source).body[0]
    assert isinstance(whole, ast.FunctionDef)
    assert list(map(ast.dump, whole.body[1:])) == list(map(ast.dump, bare.body))


def test_an_example_is_the_docstrings_own() -> None:
    text = ">>> x = area(2)\n>>> x\n4\n"
    assert first_example(f"Return it.\n\n{text}", "area") == text.rstrip()
    assert first_example(">>> other(2)\n4\n", "area") == ""


def test_every_answer_states_the_fact(corpus: Path) -> None:
    fact, draw = _facts(corpus)["os.path.join"], random.Random(1)
    for _ in range(20):
        for kind in ("does", "signature", "arguments", "import", "module", "complete", "explain"):
            exchange = ANSWERS[kind](fact, draw)
            assert exchange is not None, kind
            assert "{" not in exchange.question
            expected = {
                "does": "two or more pathname components",
                "signature": "def join(a, *p)\n",
                "arguments": "`a` and `*p`",
                "import": "from os.path import join",
                "module": "`os.path`",
                "complete": fact.source,
                "explain": "two or more pathname components",
            }[kind]
            assert expected.lower() in exchange.answer.lower()


@pytest.mark.long
def test_running_facts_hold_what_is_best_known() -> None:
    names = {fact.full_name for fact in improved([], running_facts())}
    known = {
        name for name in FAMOUS if name.split(".")[0] in ("str", "list", "dict", "set", "math")
    }
    assert len(known) > 50
    assert known <= names


@pytest.mark.parametrize("name", sorted(examples()))
def test_an_example_written_by_hand_runs(name: str) -> None:
    module = name.split(".")[0]
    names = {} if hasattr(builtins, module) else {module: importlib.import_module(module)}
    test = doctest.DocTestParser().get_doctest(examples()[name] + "\n", names, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=lambda text: pytest.fail(text))


def test_what_is_written_by_hand_is_python() -> None:
    for name, kind, head, text in descriptions():
        statement = head if head.startswith("def ") else f"def {head}"
        function = ast.parse(f"{statement}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        assert function.name == name.split(".")[-1]
        assert kind in ("function", "method", "class")
        assert text.endswith(".")
    for task, code in recipes():
        assert not task.endswith(".")
        compile(code, task, "exec")


@pytest.mark.long
def test_the_same_corpus_gives_the_same_files(
    corpus: Path, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_conversations(corpus, tmp_path)
    made = conversations_in(tmp_path)
    for split in ("train", "heldout"):
        first, second = (folder / f"{split}.jsonl" for folder in (written, tmp_path))
        assert first.read_bytes() == second.read_bytes()
    assert f"train: {len(made['train'])} conversations" in capsys.readouterr().out
    kinds = {row["kind"] for row in made["train"]}
    others = {"outside", "greeting", "identity", "unknown", "called", "direct", "several", "recipe"}
    assert set(ANSWERS) | others == kinds


def what_the_model_is_given(row: dict[str, Any]) -> str:
    """Everything in a conversation that it did not say itself."""
    messages = [message for message in row["messages"] if message["role"] != "assistant"]
    return json.dumps([messages, row.get("tools")])


def test_conversations_are_distinct_and_apart(written: Path) -> None:
    made = conversations_in(written)
    for rows in made.values():
        given = [what_the_model_is_given(row) for row in rows]
        assert len(set(given)) == len(given)
        for row in rows:
            assert not CONTROL_TEXT.search(json.dumps(row["messages"]))
            assert row["messages"][-1]["role"] == "assistant"
            assert len(json.dumps(row["messages"])) <= turns.MAX_CHARACTERS
    about_heldout = [row for row in made["heldout"] if "phere" in json.dumps(row)]
    assert about_heldout
    assert not any("phere" in json.dumps(row) for row in made["train"])
    assert not any("Square" in json.dumps(row) for row in made["heldout"])


def test_small_talk_of_the_splits_differs() -> None:
    def asked(split: Any) -> set[str]:
        draw = random.Random(3)
        return {outside_talk(split, draw)[1][0]["content"].lower() for _ in range(1200)}

    train, heldout = asked("train"), asked("heldout")
    assert len(train) > 500
    sums = {text for text in heldout if any(sign in text for sign in "+*/=") or " - " in text}
    assert not (heldout - sums) & train


def test_who_it_is() -> None:
    draw = random.Random(2)
    said = {str(personal_talk("train", draw)[1][-1]["content"]) for _ in range(300)}
    assert any("headrace-base" in text for text in said)
    assert any("headrace project" in text for text in said)


def test_an_unknown_name_must_not_exist() -> None:
    draw = random.Random(1)
    kind, messages = unknown_talk(frozenset(), draw)
    assert kind == "unknown"
    name = str(messages[1]["content"]).split("`")[1]
    with pytest.raises(ValueError, match=name):
        unknown_talk(frozenset({name}), random.Random(1))


def test_a_call_fits_its_declaration(corpus: Path) -> None:
    facts, draw = list(_facts(corpus).values()), random.Random(4)
    seen = set()
    for _ in range(600):
        made = called(draw.choice(facts), draw)
        if made is None:
            continue
        messages, tools = made
        call = messages[1]["tool_calls"][0]["function"]
        declared = {tool["function"]["name"]: tool["function"] for tool in tools}
        properties = declared[call["name"]]["parameters"]["properties"]
        assert set(call["arguments"]) == set(properties)
        seen.add(call["name"])
    assert len(seen) > len(FUNCTIONS)


def test_a_table_begins_with_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.txt").write_text("# a note\nlost\n[section]\nkept\n")
    monkeypatch.setattr("training.turns.tables.FOLDER", tmp_path)
    with pytest.raises(ValueError, match="lost"):
        read_table("bad")


def test_the_files_are_read_as_the_template_writes_them(written: Path) -> None:
    rows = conversations_in(written)["train"]
    served = ChatTemplate(turns.CHAT_TEMPLATE_FILE.read_text())
    texts = turns.read_conversations(written, "train")
    assert texts == [
        served.render(row["messages"], tools=row.get("tools"), add_generation_prompt=False)
        for row in rows
    ]
