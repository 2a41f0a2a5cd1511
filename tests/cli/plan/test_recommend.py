"""`headrace plan recommend` as it is typed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from headrace.cli.counting import counting
from headrace.cli.plan.group import plan
from headrace.errors import HeadraceError

FEW = ("--model", "qwen3-32b", "--hardware", "h100-sxm", "--on", "2026-11-22")


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, ["recommend", "--task", "chat", *words])


def test_json_has_all() -> None:
    done = run(*FEW, "--rate", "3", "--budget", "9000", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["question"]["slo"] == ["ttft:500ms", "tpot:50ms"]
    options = {one["id"]: one for one in found["options"]}
    assert {one["option"] for one in found["ranked"]} <= set(options)
    assert set(found["alternatives"]) == {"cheapest", "fastest", "best"}
    first = options[found["ranked"][0]["option"]]
    assert first["commands"] and first["quantities"] and first["quality"]["proxy"]
    assert found["looked_at"] >= found["left"] > 0
    figures = [one["id"] for one in found["quantities"]]
    assert len(figures) == len(set(figures))


def test_tables_have_ends_commands_and_rules() -> None:
    said = run(*FEW, "--private", "--rate", "3").output
    for word in ("largest", "vllm serve Qwen/Qwen3-32B", "rule-private", "ruled out, by rule",
                 "in flight (Little)", "note: size is"):  # fmt: skip
        assert word in said


def test_progress_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*FEW, "--json").stderr == ""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    with counting("models") as progress:
        progress(1, 2)
    assert "models" in shown.getvalue()


@pytest.mark.long
def test_nothing_left_says_what_would_do() -> None:
    said = run(*FEW, "--private", "--slo", "tpot:2").output
    assert "nothing here fits; closest is " in said
    assert "; it fits with --slo 'tpot:" in " ".join(said.split())
    assert "possible with: --slo 'tpot:" in said


def test_bad_input_is_told() -> None:
    for words, told in (
        (("--slo", "itl:5"), "METRIC:MS"),
        (("--rate", "0"), "rate is 0"),
        (("--model", "qwen3-9b"), "no model"),
        (("--hardware", "h101"), "no hardware"),
        (("--headroom", "2"), "headroom is 2"),
    ):
        done = run(*words)
        assert isinstance(done.exception, HeadraceError), done.output
        assert told in str(done.exception)
    assert run("--sort", "price").exit_code == 2


@pytest.mark.long
def test_this_machine_is_its_cards(with_cards: Callable[..., dict[str, str]]) -> None:
    env = with_cards(*["NVIDIA H100 80GB HBM3, 81559"] * 2)
    words = ["recommend", "--task", "chat", "--model", "qwen3-32b", "--on", "2026-11-22",
             "--private", "--json", "--no-keep", "--hardware", "this"]  # fmt: skip
    done = CliRunner().invoke(plan, [*words, "--rate", "1"], env=env)
    assert done.exit_code == 0, done.output
    assert "this machine has 2 x NVIDIA H100 SXM 80 GB; --hardware cpu" in done.stderr
    options = json.loads(done.stdout)["options"]
    assert options
    for one in options:
        assert one["machines"]["hardware"] == "this-h100-sxm" and one["paid"] == "there already"
        assert one["machines"]["devices_of_a_replica"] * one["machines"]["replicas"] <= 2
    many = CliRunner().invoke(plan, [*words, "--rate", "200"], env=env)
    found = json.loads(many.stdout)
    assert found["left"] == 0  # no more than two are here
    assert any("more than 2" in one["examples"][0] for one in found["ruled_out"])
