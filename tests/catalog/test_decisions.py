"""Decision trees: every way ends, ends name rows that are there, and what is no tree is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.catalog import Catalog
from headrace.catalog.rows import KINDS
from headrace.catalog.rows.decision import Condition
from headrace.cli.main import cli
from headrace.errors import CatalogError

# What `when` may ask, as the headers of the files explain it.
FIELDS = {
    "task", "scale", "device", "class", "architecture", "devices", "context", "latency", "private",
    "edge",
}  # fmt: skip
ONE = """
[defaults]
source = "quick-reference"
as_of = 2026-03-01
confidence = "medium"

[[decision]]
id = "mine"
name = "Mine"
topic = "runtime"
about = "a choice"
nodes.start = "Which?"
nodes.more = "And then?"
options."start.a" = "this"
takes."start.a" = ["vllm"]
because."start.a" = "so"
when."start.a" = "task=code|agent, private=yes"
options."start.b" = "that"
leads_to."start.b" = "more"
options."more.c" = "the rest"
takes."more.c" = { value = ["ollama"], disputed_by = ["C56"] }
because."more.c" = "as well"
"""


@pytest.fixture(scope="module")
def known() -> Catalog:
    return Catalog.load()


def mine(folder: Path, text: str) -> Catalog:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return Catalog.load([folder])


def test_every_end_names_rows_and_says_why(known: Catalog) -> None:
    ids = {row.id for kind in KINDS if kind != "decision" for row in known.table(kind)}
    for decision in known.decisions:
        assert decision.paths
        for path in decision.paths:
            end = path[-1]
            assert end.takes and end.because, f"{decision.id} {end.id}"
            assert set(end.takes) <= ids, f"{decision.id} {end.id}: {set(end.takes) - ids}"
        for option in (one for node in decision.tree.values() for one in node.options):
            assert {one.field for one in option.when} <= FIELDS, f"{decision.id} {option.id}"


def test_every_node_is_on_a_way(known: Catalog) -> None:
    for decision in known.decisions:
        on_ways = {option.id for path in decision.paths for option in path}
        assert on_ways == set(decision.options), decision.id


def test_what_the_documents_disagree_on_is_flagged(known: Catalog) -> None:
    of = {
        (decision.id, contradiction)
        for decision in known.decisions
        for contradiction in decision.disputed_by
    }
    assert of >= {
        ("runtime-by-use", "C56"), ("stack-by-scale", "C57"), ("gguf-kind-by-task", "C47"),
        ("quantization-by-scenario", "C46"), ("host-or-api", "C44"), ("h100-or-a100", "C43"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "answers", "takes"),
    [
        ("runtime-by-use", {"edge": "yes"}, [("llama.cpp",)]),
        ("runtime-by-use", {"edge": "no", "scale": "many"}, [("vllm",)]),
        ("stack-by-scale", {"edge": "yes", "device": "cpu"}, [("llama.cpp", "gguf")]),
        ("gguf-kind-by-task", {"task": "code"}, [("q5-k-m", "q8-0")]),
        ("quantization-by-hardware", {"class": "server", "architecture": "hopper"}, [("fp8",)]),
        ("gateway-by-need", {"task": "chat"}, []),
        ("runtime-by-use", {}, []),
    ],
)
def test_a_program_can_walk_them(
    known: Catalog, decision: str, answers: dict[str, str], takes: list[tuple[str, ...]]
) -> None:
    assert [path[-1].takes for path in known.decisions[decision].ends(answers)] == takes


def test_a_tree_of_ones_own(tmp_path: Path) -> None:
    decision = mine(tmp_path, ONE).decisions["mine"]
    assert decision.root.question == "Which?"
    assert [option.id for option in decision.root.options] == ["start.a", "start.b"]
    assert decision.root.options[0].when == (
        Condition("task", ("code", "agent")),
        Condition("private", ("yes",)),
    )
    assert [[one.id for one in path] for path in decision.paths] == [
        ["start.a"],
        ["start.b", "more.c"],
    ]
    assert decision.paths[1][-1].disputed_by == ("C56",)


def test_one_answer_can_be_overridden(tmp_path: Path) -> None:
    text = (
        '[[decision]]\nid = "runtime-by-use"\nname = "Which runtime"\nsource = "quick-reference"\n'
        'as_of = 2026-03-01\nconfidence = "medium"\ntakes."start.edge" = ["executorch"]\n'
    )
    decision = mine(tmp_path, text).decisions["runtime-by-use"]
    assert decision.takes["start.edge"] == ("executorch",)
    assert decision.takes["start.several-gpus"] == ("vllm",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('takes."start.a" = ["vllm"]\n', "", "'start.a' needs exactly one of leads_to and takes"),
        ('because."start.a" = "so"\n', "", "'start.a' ends without a reason"),
        ('leads_to."start.b" = "more"', 'leads_to."start.b" = "none"', "led to by 0 options"),
        ('leads_to."start.b" = "more"', 'leads_to."start.b" = "start"', "led to by"),
        ('nodes.more = "And then?"\n', "", "belongs to no node"),
        ('options."more.c" = "the rest"\n', "", "takes 'more.c' belongs to no option"),
        ("task=code|agent", "task", "write it as"),
        ('nodes.start = "Which?"\nnodes.more = "And then?"\n', "", "has no node"),
        ('topic = "runtime"', 'topic = "colour"', "one of runtime, gateway"),
    ],
)
def test_what_is_no_tree_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert ONE.count(old) == 1
    with pytest.raises(CatalogError) as caught:
        mine(tmp_path, ONE.replace(old, new)).decisions["mine"]
    assert said in str(caught.value)
    assert "mine" in str(caught.value)


def test_a_circle_is_told(tmp_path: Path) -> None:
    text = ONE + (
        'nodes.x = "x?"\nnodes.y = "y?"\noptions."x.y" = "y"\nleads_to."x.y" = "y"\n'
        'options."y.x" = "x"\nleads_to."y.x" = "x"\n'
    )
    with pytest.raises(CatalogError, match="node 'x' is not reached from 'start'"):
        mine(tmp_path, text).decisions["mine"]


def test_shown_as_a_tree() -> None:
    said = CliRunner().invoke(cli, ["catalog", "show", "Which stack"]).output
    assert "Is there a GPU?" in said
    assert "the CPU only: llama.cpp, gguf" in said
    assert "disputed: C57" in said and "Disputed" in said
