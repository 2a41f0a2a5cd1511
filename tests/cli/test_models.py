"""generate, chat and show over a tiny model: what people and machines get to see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from tests.tiny import write_tiny_gguf, write_tiny_hf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("model"), codec="Q8_0"))


def _invoke(*arguments: str, stdin: str = "") -> str:
    result = CliRunner().invoke(cli, list(arguments), input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


GREEDY = ("--temperature", "0", "--max-tokens", "12", "--threads", "1")


def test_a_stream_and_json_give_the_same_text(model: str) -> None:
    streamed = _invoke("generate", model, "-p", "ab", *GREEDY)
    [line] = _invoke("generate", model, "-p", "ab", *GREEDY, "--json").splitlines()
    reply = json.loads(line)
    assert streamed == f"ab{reply['text']}\n"
    assert len(reply["token_ids"]) == 12
    assert reply["finish_reason"] == "length"
    assert reply["prompt"] == "ab"


def test_several_prompts_are_one_line_each_in_order(model: str) -> None:
    lines = _invoke("generate", model, "-p", "ab", "-p", "cd", *GREEDY, "--json").splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == ["ab", "cd"]


def test_the_prompt_may_come_from_stdin_and_a_seed_repeats(model: str) -> None:
    flags = ("--seed", "7", "--max-tokens", "12", "--threads", "1", "--json")
    first, again = (json.loads(_invoke("generate", model, *flags, stdin="xyz")) for _ in range(2))
    assert first["prompt"] == "xyz"
    assert first["token_ids"] == again["token_ids"]
    other = json.loads(_invoke("generate", model, "--seed", "8", *flags[2:], stdin="xyz"))
    assert other["token_ids"] != first["token_ids"]


def test_a_chat_reuses_what_it_has_computed(model: str) -> None:
    stdin = "hello there, this is a first message\nand a second\n/clear\nhello\n"
    output = _invoke("chat", model, *GREEDY, "--json", stdin=stdin)
    first, second, third = (json.loads(line) for line in output.splitlines())
    assert first["cached_tokens"] == 0
    assert second["prompt_tokens"] > first["prompt_tokens"] + first["completion_tokens"]
    assert second["cached_tokens"] > 0
    assert third["prompt_tokens"] < first["prompt_tokens"]


def test_show_says_the_same_of_both_containers(tmp_path: Path) -> None:
    gguf = write_tiny_gguf(tmp_path, family="llama", codec="F32")
    folder = write_tiny_hf(tmp_path, family="llama", codec="F32")
    of_gguf, of_folder = (
        json.loads(_invoke("show", str(path), "--json", "--tensors")) for path in (gguf, folder)
    )
    assert of_gguf["conventions"]["rope_layout"] == "interleaved"
    assert of_folder["conventions"]["rope_layout"] == "half"
    assert of_gguf["parameters"] == of_folder["parameters"]

    def names(facts: dict[str, list[dict[str, str]]]) -> list[str]:
        return sorted(tensor["name"] for tensor in facts["tensors"])

    assert names(of_gguf) == names(of_folder)
    text = _invoke("show", str(gguf), "--template")
    assert "<|im_start|>" in text
    assert "hidden_size" in text


def test_unknown_settings_and_models_are_named(model: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["generate", model, "--top-p", "2"])
    assert result.exit_code == 2
    assert "--top-p" in result.output
    config = tmp_path / "settings.yaml"
    config.write_text("port: 1\nprot: 2\n")
    result = CliRunner().invoke(cli, ["generate", model, "--config", str(config), "-p", "a"])
    assert "unknown setting 'prot'" in str(result.exception)


def test_a_chat_goes_on_when_a_message_is_too_long(model: str) -> None:
    stdin = "hello\n" + "x" * 400 + "\nhello again\n"
    arguments = ["chat", model, *GREEDY, "--max-model-len", "128", "--json"]
    result = CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "maximum context length is 128 tokens" in result.stderr
