"""`headrace plan lint` as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.plan.group import plan
from headrace.plan.lint.checks import CHECKS
from headrace.plan.lint.engine_setup import RUNTIMES


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, ["lint", *words])


def test_findings_are_printed_with_evidence_and_exit_with_1() -> None:
    done = run("--only", "L-kernels", "--", "vllm", "serve", "m", "--enforce-eager")
    assert done.exit_code == 1
    for word in ("warning L-kernels", "--enforce-eager: on (command line)", "remedy:", "qg-961"):
        assert word in done.output


def test_fail_on_error_lets_warnings_pass() -> None:
    words = ("--only", "L-kernels", "--", "vllm", "serve", "m", "--enforce-eager")
    assert run("--fail-on", "error", *words).exit_code == 0


def test_clean_is_0() -> None:
    done = run("--only", "L-kernels", "--", "vllm", "serve", "m")
    assert done.exit_code == 0 and "1 checks found nothing" in done.output


def test_what_is_lacking_is_listed_and_no_finding() -> None:
    done = run("--only", "L-batch1", "--json", "--", "vllm", "serve", "m", "--max-num-seqs", "1")
    found = json.loads(done.output)
    assert done.exit_code == 0 and found["findings"] == [] and found["clean"] == []
    assert found["not_checked"][0]["id"] == "L-batch1"
    assert "--hardware" in found["not_checked"][0]["needs"]


def test_json_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("model: m\ngpu-memory-utilization: 0.99\nload-format: auto\n")
    found = json.loads(run(str(path), "--json").output)
    one = next(one for one in found["findings"] if one["id"] == "L-memory-share")
    assert one["evidence"][0] == {
        "name": "--gpu-memory-utilization", "value": 0.99, "unit": "share", "where": f"{path}:2",
    }  # fmt: skip
    assert one["severity"] == "warning" and "qg-975" in one["sources"]


def test_this_machine_has_memory() -> None:
    done = run("--hardware", "this", "--only", "L-tp-missing,L-batch1", "--json", "--",
               "llama-server", "-m", "qwen3-0.6b", "-np", "1")  # fmt: skip
    found = json.loads(done.output)
    assert [one["id"] for one in found["not_checked"]] == ["L-batch1"]


def test_this_machine_is_its_cards(with_cards: Callable[..., dict[str, str]]) -> None:
    env = with_cards("NVIDIA H100 80GB HBM3, 81559")
    words = ["lint", "--only", "L-batch1", "--json", "--hardware"]
    engine = ["--", "vllm", "serve", "qwen3-8b", "--max-num-seqs", "1"]
    done = CliRunner().invoke(plan, [*words, "this", *engine], env=env)
    assert [one["id"] for one in json.loads(done.stdout)["findings"]] == ["L-batch1"]
    assert "this machine has 1 x NVIDIA H100 SXM" in done.stderr
    cpu = json.loads(CliRunner().invoke(plan, [*words, "cpu", *engine], env=env).stdout)
    assert [one["id"] for one in cpu["not_checked"]] == ["L-batch1"]
    many = CliRunner().invoke(plan, [*words, "this", "--count", "2", *engine], env=env)
    assert many.exit_code == 2 and "this machine has 1" in many.output


@pytest.mark.long
def test_the_list() -> None:
    assert all(one.id in run("--list").output for one in CHECKS)
    assert [one["id"] for one in json.loads(run("--list", "--json").output)] == [
        one.id for one in CHECKS
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name a config, a run"),
        (("nothing.yaml",), "not a file, a folder"),
        (("--only", "L-prefx", "nothing.yaml"), "did you mean L-prefix"),
        (("--hardware", "h101", "--", "vllm", "serve", "m"), "did you mean"),
        (("--model", "llama-3.1-7b", "--", "vllm", "serve", "m"), "did you mean"),
        (("--prompts", "nothing.jsonl"), "No such file"),
    ],
)
def test_bad_input_is_2(words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert done.exit_code == 2 and told in done.output


def test_the_options_name_every_runtime() -> None:
    option = next(one for one in plan.commands["lint"].params if one.name == "runtime")
    assert tuple(option.type.choices) == RUNTIMES  # type: ignore[attr-defined]
