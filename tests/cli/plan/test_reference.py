"""`headrace plan reference` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.catalog import Catalog
from headrace.cli.plan.group import plan
from headrace.cli.plan.tables.reference import ask
from headrace.errors import HeadraceError
from headrace.plan.reference.topics import TOPICS


def run(*words: str, columns: str | None = None) -> Result:
    return CliRunner(env={"COLUMNS": columns}).invoke(plan, ["reference", *words])


def test_without_a_topic_the_topics_are_listed() -> None:
    done = run()
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in TOPICS)


def test_a_topic_is_sorted_and_filtered_and_names_its_sources() -> None:
    done = run("hardware", "--sort", "-bandwidth", "--filter", "h100")
    assert done.exit_code == 0, done.output
    at = [done.output.index(name) for name in (" h100-sxm", " h100-pcie")]
    assert at == sorted(at) and "rtx-4090" not in done.output
    assert "3.35 TB/s" in done.output and "Sources\n  [1] " in done.output


def test_a_narrow_terminal_has_all_that_a_wide_one_has() -> None:
    for topic in ("techniques", "contradictions"):
        done = run(topic, "--filter", "speculative", columns="80")
        assert done.exit_code == 0, done.output
        assert max(map(len, done.output.splitlines())) <= 80
    done = run("techniques", "--filter", "speculative-decoding", columns="80")
    assert "needs:" in done.output and "not when:" in done.output
    done = run("prices", "--filter", "opus 4.6", columns="80")
    assert "columns that do not fit:" in done.output


@pytest.mark.long
def test_json_has_facts_with_source_and_date() -> None:
    (found,) = json.loads(run("metrics", "--json").output)
    assert found["topic"] == "metrics"
    line = found["tables"][0]["lines"][0]
    (fact,) = line["cells"]["rule"]["facts"].values()
    assert fact["source"] and fact["as_of"] and fact["confidence"]
    assert len(json.loads(run("--json").output)) == len(TOPICS)


def test_the_page_is_written(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    done = run("gateways", "--html", str(path))
    assert done.exit_code == 0, done.output
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    done = run("gateways", "--html", str(tmp_path / "none" / "page.html"))
    assert isinstance(done.exception, HeadraceError)


@pytest.mark.long
def test_a_tree_is_walked_by_choices() -> None:
    done = run("trees", "runtime-by-use", "--choose", "app", "--choose", "production")
    assert "vllm: vLLM (runtime)" in done.output and "2026-03-01" in done.output
    done = run("trees", "runtime-by-use", "--choose", "app")
    assert "2  production (--choose production)" in done.output
    assert "just exploring" in run("trees", "runtime-by-use").output
    walked = json.loads(run("trees", "runtime-by-use", "--choose", "edge", "--json").output)
    assert [one["id"] for one in walked["takes"]] == ["llama.cpp"]


def test_a_tree_asks_goes_back_and_stops() -> None:
    import click

    known = Catalog.load()

    @click.command()
    def walk_it() -> None:
        ask(known, known.decisions["runtime-by-use"], ())

    done = CliRunner().invoke(walk_it, input="2\nb\n9\napp\n1\n")
    assert done.exit_code == 0, done.output
    assert "'9' is not an answer" in done.output and "ollama: Ollama" in done.output
    assert "Disputed C56" in done.output
    for stopped in ("\n", ""):
        done = CliRunner().invoke(walk_it, input=stopped)
        assert done.exit_code == 0 and "Take" not in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hardwear"], "did you mean 'hardware'"),
        (["hardware", "--sort", "bandwith"], "did you mean 'bandwidth'"),
        (["hardware", "--filter", "nothing-like-it"], "use fewer words"),
        (["trees", "runtime-by-us"], "did you mean"),
        (["trees", "runtime-by-use", "--choose", "none"], "there are: exploring"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, HeadraceError) and told in str(done.exception)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sort", "name"], "--sort goes with a TOPIC"),
        (["trees", "--choose", "app"], "name one"),
        (["hardware", "h100-sxm"], "headrace catalog show h100-sxm"),
        (["trees", "runtime-by-use", "--filter", "x"], "cannot be used with a TREE"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], told: str) -> None:
    done = run(*words)
    assert done.exit_code == 2 and told in " ".join(done.output.split())
