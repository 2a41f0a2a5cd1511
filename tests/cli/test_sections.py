"""Help in sections, and the flags of other servers."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.cli.sections import ELSEWHERE, HEADINGS, flag_of
from headrace.config import EngineConfig, ServerConfig, flags_of
from headrace.config.vllm.engine_args import ENGINE_ARGS
from headrace.config.vllm.server_args import SERVER_ARGS
from tests.docs.pages import page

SETTINGS = {flag.name: flag for config in (EngineConfig, ServerConfig) for flag in flags_of(config)}


def _sections(*command: str) -> dict[str, str]:
    """The help of a command by its headings."""
    text = CliRunner().invoke(cli, [*command, "--help"]).output
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(" "):
            current = sections.setdefault(line.removesuffix(":"), [])
        else:
            current.append(line)
    return {heading: "\n".join(lines) for heading, lines in sections.items()}


def test_every_heading_has_a_setting() -> None:
    assert set(HEADINGS) <= set(SETTINGS)


def test_settings_stand_under_their_headings() -> None:
    sections = _sections("serve")
    assert next(iter(sections)).startswith("Usage")
    assert list(sections)[1:-1] == ["Options", *HEADINGS.values()]
    assert "--config" in sections["Options"]
    assert "[MODEL]" not in sections["Options"]
    assert "--port" in sections["Address and TLS"]
    assert "--threads" in sections["Processor or device"]
    assert "--shutdown-timeout" in sections["Load and time"]
    everything = "\n".join(sections.values())
    for name, flag in SETTINGS.items():
        assert name == "model" or f" {flag.flag}" in everything
    assert "32k (32,000)" in list(sections)[-1], "what an INTEGER may look like"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--port", "'abc' is not an integer from 0 to 65535"),
        ("--max-num-seqs", "'abc' is not an integer (32768, 32k, 32K, 4G)"),
    ],
)
def test_examples_of_sizes_are_given_where_a_size_is_expected(flag: str, words: str) -> None:
    result = CliRunner().invoke(cli, ["serve", flag, "abc"])
    assert result.exit_code == 2
    assert " ".join(result.output.split()).endswith(f"{flag}': {words}")


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_sampling_has_a_heading(command: str) -> None:
    sections = _sections(command)
    assert "--temperature" in sections["Sampling"]
    assert "--stop" in sections["Sampling"]
    assert "--temperature" not in sections["Options"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("-m", "the model is an argument: headrace serve MODEL"),
        ("-np", "here it is --max-num-seqs"),
        ("-ngl", "all layers are computed on one device, which --device sets"),
        ("--hf-token", "the token of the hub is read from HF_TOKEN"),
        ("--max-seq-len-to-capture", "omit it; CUDA graphs are of fixed sizes (--enforce-eager"),
        ("-tp", "it is not there yet, so omit it; a model is computed by one process on one"),
        ("--trust-remote-code", "omit it; code that comes with a model is never run"),
        ("--root-path", "omit it; paths begin at /; let the proxy take its prefix off"),
    ],
)
def test_a_flag_of_another_server_is_refused_with_its_name_here(name: str, hint: str) -> None:
    result = CliRunner().invoke(cli, ["serve", name, "7"])
    assert result.exit_code == 2
    assert f"No such option {name!r}: {hint}" in " ".join(result.output.split())


def test_every_flag_of_another_server_is_refused_with_its_hint() -> None:
    assert isinstance(cli, click.Group)
    serve = cli.get_command(click.Context(cli), "serve")
    assert serve is not None
    assert len(ELSEWHERE) > 200
    for name, hint in ELSEWHERE.items():
        with pytest.raises(click.NoSuchOption) as raised:
            serve.make_context("serve", [name, "7"])
        filled = hint.format(command="serve")
        assert raised.value.format_message() == f"No such option {name!r}: {filled}.", name


def test_a_flag_without_a_counterpart_is_to_be_omitted_whatever_its_value() -> None:
    of_llama_server = {"--ubatch-size"}  # it has a name here
    for setting in (*ENGINE_ARGS.values(), *SERVER_ARGS.values()):
        for name in {flag_of(setting.name), *setting.flags} - of_llama_server:
            assert ("omit it; " in ELSEWHERE[name]) == (setting.status != "renamed"), name
    assert 'are refused too, with "omit it"' in page("compatibility.md")


def test_hints_name_flags_that_there_are() -> None:
    flags = [flag for flag in SETTINGS.values() if flag.name != "model"]
    known = {name for flag in flags for name in (flag.flag, *flag.aliases)}
    for name, hint in ELSEWHERE.items():
        assert name not in known
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", hint)) <= known, name


def test_other_unknown_flags_are_as_click_has_them() -> None:
    output = CliRunner().invoke(cli, ["serve", "--prot", "7"]).output
    assert "--port" in output
    assert "No such option '--prot'" in output
    # A value that looks like another server's flag is not what was wrong.
    output = CliRunner().invoke(cli, ["serve", "--prot", "-m"]).output
    assert "No such option '--prot'" in output


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("server", "Did you mean 'serve'?"), ("xyzzy", "The commands are: serve, chat")],
)
def test_an_unknown_command_gets_the_nearest(typed: str, hint: str) -> None:
    result = CliRunner().invoke(cli, [typed])
    assert result.exit_code == 2
    assert f"No such command {typed!r}. {hint}" in " ".join(result.output.split())


def test_a_group_without_a_command_prints_its_help() -> None:
    assert isinstance(cli, click.Group)
    assert "Commands:" in CliRunner().invoke(cli, []).output
