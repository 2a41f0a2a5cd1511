"""The command line: lazy, unabbreviated, with errors meant for people."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.__main__ import _engine_ahead
from headrace.cli import main as main_module
from headrace.cli.main import COMMANDS, cli
from headrace.cli.options import collect, settings
from headrace.config import EngineConfig, ServerConfig
from tests import tiny
from tests.tiny import write_tiny_gguf
from tests.waiting import wait_until


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from headrace.cli.main import cli\n"
        "try:\n    cli(['--help'], prog_name='headrace')\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'numpy', 'torch', 'tokenizers', 'starlette', 'zmq', 'rich', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "print([name for name in sys.modules if name.startswith('headrace.cli.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    heavy, commands = done.stdout.strip().splitlines()[-2:]
    assert heavy == "[]"
    assert commands == "['headrace.cli.interrupt', 'headrace.cli.streams', 'headrace.cli.main']"


@pytest.mark.parametrize(
    "words", [["show", "serve"], ["serve", "--help"], ["serve", "m.gguf", "-h"], ["--version"], []]
)
def test_no_engine_is_launched_for_what_serves_nothing(words: list[str]) -> None:
    assert _engine_ahead(words) is None


@pytest.mark.process
def test_an_engine_launched_ahead_ends_with_a_command_that_fails() -> None:
    mark = f"mark-{os.getpid()}-of-test"
    command = [sys.executable, "-m", "headrace", "serve", "--no-such-flag"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "MARK_OF_TEST": mark},
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("--no-such-flag")) == (2, 1)
    assert "Traceback" not in done.stderr

    def left() -> list[Path]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark.encode() in path.read_bytes():
                    found.append(path)
        return found

    wait_until(lambda: not left(), "the end of the engine's process")


@pytest.mark.parametrize(
    ("module", "moment"),
    [
        ("headrace.__main__", "headrace.cli.main"),
        ("headrace.__main__", "click"),
        ("headrace.__main__", "headrace.cli.show"),
        ("headrace.__main__", "headrace.weights"),
        ("headrace.cli.main", "headrace.cli.show"),
        ("headrace.cli.main", "headrace.weights"),
    ],
)
def test_an_interrupt_during_the_imports_is_quiet(module: str, moment: str) -> None:
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        f"from {module} import main\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['headrace', 'show', 'absent.gguf']\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def _commands() -> list[str]:
    """Every command, those of groups as "bench machine", of groups in them alike."""

    def within(name: str, command: click.Command | None) -> list[str]:
        inner = command.commands if isinstance(command, click.Group) else {}
        found = [deep for one in inner for deep in within(f"{name} {one}", inner[one])]
        return found or [name]

    context = click.Context(cli)
    return [one for name in COMMANDS for one in within(name, cli.get_command(context, name))]


@pytest.mark.parametrize("name", _commands())
def test_every_command_has_help_and_json(name: str) -> None:
    result = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert "--json" in result.output
    assert len(result.output.splitlines()) > 8


def _groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every group of commands at or below `command`."""
    if not isinstance(command, click.Group):
        return
    yield path
    with click.Context(command) as context:
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _groups(below, (*path, name))


def test_a_line_for_each_command_fits_in_the_help_of_its_group() -> None:
    paths = list(_groups(cli))
    assert {(), ("bench",), ("gateway", "keys")} <= set(paths)
    for path in paths:
        done = CliRunner().invoke(cli, [*path, "--help"])
        listed = done.output.partition("Commands:\n")[2].splitlines()
        assert listed, path
        cut = [line for line in listed if line.endswith("...")]
        assert not cut, (path, cut)
        broken = [line for line in listed if not re.match(r"  \S", line) or line[-1] != "."]
        assert not broken, (path, broken)


def test_flags_are_never_abbreviated() -> None:
    done = _run("serve", "--max-model", "3")
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_an_unknown_command_is_named() -> None:
    done = _run("sevre")
    assert done.returncode == 2
    assert "sevre" in done.stderr


def test_errors_are_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = _run("show", str(tmp_path / "absent.gguf"))
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: ")
    assert "absent.gguf" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_warnings_are_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = {key: value for key, value in tiny.gguf_tokenizer().items() if key != "pre"}
    monkeypatch.setattr(tiny, "gguf_tokenizer", lambda *_: without)
    path = write_tiny_gguf(tmp_path, vocab=tiny.NUM_TOKENS)
    done = _run("generate", str(path), "-p", "x", "--max-tokens", "1", "--backend", "reference")
    (line,) = done.stderr.splitlines()
    assert line.startswith("headrace: tokenizer.ggml.pre is missing")


def _probe() -> click.Command:
    @click.command()
    @settings(EngineConfig, ServerConfig, skip=frozenset({"model"}))
    @click.pass_context
    def probe(ctx: click.Context, /, **_: object) -> None:
        among = (EngineConfig, ServerConfig)
        engine = collect(ctx, EngineConfig, among=among)
        server = collect(ctx, ServerConfig, among=among)
        click.echo(json.dumps([engine.max_model_len, engine.enable_prefix_caching, server.port]))

    return probe


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text("max-model-len: 4k\nenable-prefix-caching: false\n")
    probe = _probe()

    def run(*arguments: str) -> list[object]:
        result = CliRunner().invoke(probe, list(arguments), catch_exceptions=False)
        values: list[object] = json.loads(result.output)
        return values

    assert run() == [None, True, 8000]
    assert run("--config", str(path)) == [4000, False, 8000]
    assert run("--config", str(path), "--max-model-len", "8K", "--port", "1") == [8192, False, 1]
    assert run("--config", str(path), "--enable-prefix-caching") == [4000, True, 8000]
    assert run("--no-enable-prefix-caching") == [None, False, 8000]


def test_the_kv_cache_may_be_sized_by_hand_or_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text("max-model-len: 4k\n")

    @click.command()
    @settings(EngineConfig)
    @click.pass_context
    def probe(ctx: click.Context, /, **_: object) -> None:
        engine = collect(ctx, EngineConfig)
        click.echo(json.dumps([engine.max_model_len, engine.kv_cache_memory_bytes]))

    def run(*arguments: str) -> object:
        result = CliRunner().invoke(probe, list(arguments), catch_exceptions=False)
        return json.loads(result.output) if result.exit_code == 0 else result.output

    assert run("--max-model-len", "auto", "--kv-cache-memory", "1M") == [None, 1 << 20]
    assert run("--max-model-len", "auto", "--config", str(path)) == [None, None], "flags win"
    assert run("--kv-cache-memory-bytes", "7") == [None, 7]
    assert "'auto' is not an integer" in str(run("--kv-cache-memory", "auto"))
    assert "--max-model-len" in str(run("--max-model-len", "Auto"))


@pytest.mark.process
@pytest.mark.parametrize(
    "line",
    [
        "{0} generate {1} -p a {2} >&-",
        "{0} generate {1} {2} <&-",
        "{0} chat {1} {2} <&-",
        "{0} chat {1} {2} >&- </dev/null",
        "{0} show {1} <&- >&- 2>&-",
    ],
)
def test_closed_standard_streams_are_no_error(line: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m headrace.cli.main"
    model = write_tiny_gguf(tmp_path)
    full = line.format(command, model, "--max-tokens 2 --threads 1")
    done = subprocess.run(["sh", "-c", full], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or done.stderr.startswith("headrace: ")


@pytest.mark.process
@pytest.mark.parametrize("rest", ["generate {} -p a --max-tokens 2 --json", "show {}"])
def test_a_full_disk_is_one_line(rest: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m headrace.cli.main {rest} > /dev/full"
    full = command.format(write_tiny_gguf(tmp_path))
    done = subprocess.run(["sh", "-c", full], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "headrace: cannot write the output: No space left on device\n"


def test_a_prompt_that_is_no_text_is_refused(tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "generate", model, "-p", b"\xff\xfe"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "'--prompt': is not valid UTF-8" in done.stderr


@pytest.mark.process
def test_a_refused_request_prints_no_prompt(tmp_path: Path) -> None:
    done = _run("generate", str(write_tiny_gguf(tmp_path)), "-p", "hi", "--max-tokens", "9999")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "max_tokens" in done.stderr


def test_a_second_interrupt_while_a_loop_is_closed_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An event loop that is interrupted as it closes says that it cannot be closed."""

    def interrupted(**_options: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("Cannot close a running event loop")  # noqa: B904

    def failing(**_options: object) -> None:
        raise RuntimeError("a fault")

    # What else it does to a process of its own is left alone in this one.
    monkeypatch.setattr(main_module, "leave_quietly", lambda: None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(main_module, "cli", interrupted)
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 130 and capsys.readouterr().err == ""
    monkeypatch.setattr(main_module, "cli", failing)
    with pytest.raises(RuntimeError, match="a fault"):
        main_module.main()
