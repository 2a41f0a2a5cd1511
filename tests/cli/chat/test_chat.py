"""`headrace chat`: commands in a pipe, and in a terminal its editing, history and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from tests.tiny import write_tiny_gguf

PATIENCE_S = 30.0
GREEDY = ("--temperature", "0", "--max-tokens", "8", "--threads", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("model"), codec="Q8_0"))


def chat(model: str, *lines: str, flags: tuple[str, ...] = GREEDY, as_json: bool = True) -> Result:
    arguments = ["chat", model, *flags, *(["--json"] if as_json else [])]
    stdin = "".join(f"{line}\n" for line in lines)
    result = CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def answers(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_undo_and_retry_and_system(model: str) -> None:
    first, again, retried, short, longer = answers(
        chat(model, "hello", "/undo", "hello", "/retry", "/clear", "x", "/system be", "y")
    )
    assert first["text"] == again["text"] == retried["text"]
    assert first["prompt_tokens"] == again["prompt_tokens"] == retried["prompt_tokens"]
    assert int(str(longer["prompt_tokens"])) > int(str(short["prompt_tokens"])) + 8


def test_messages_of_many_lines(model: str) -> None:
    of_two, of_block, plain = answers(
        chat(model, "ab\\", "cd", "/clear", '"""ab', 'cd"""', "/clear", '"""/help"""')
    )
    assert of_two["text"] == of_block["text"]
    assert of_two["prompt_tokens"] == of_block["prompt_tokens"]
    assert plain["prompt_tokens"] == int(str(of_two["prompt_tokens"])) - len("ab\ncd") + 5


def test_what_is_saved_is_loaded(model: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    saved = chat(model, "/system be brief", "hello", "/set top_k 5", f"/save {path}")
    assert f"3 messages saved to {path}" in saved.stderr
    kept = json.loads(path.read_text())
    assert [one["role"] for one in kept["messages"]] == ["system", "user", "assistant"]
    assert kept["settings"] == {"temperature": 0.0, "top_k": 5, "max_tokens": 8}
    went_on = chat(model, "/system be brief", "hello", "/set top_k 5", "more")
    loaded = chat(model, f"/load {path}", "more", "/set", flags=("--threads", "1"))
    assert answers(loaded)[0]["text"] == answers(went_on)[1]["text"]
    assert re.search(r"top_k +5", loaded.stderr)
    chat(model, f"/load {path}", f"/save {tmp_path / 'chat.md'}")
    assert "## System\n\nbe brief\n\n## User\n\nhello" in (tmp_path / "chat.md").read_text()


def test_commands_that_are_wrong_change_nothing(model: str, tmp_path: Path) -> None:
    result = chat(
        model,
        "/undo", "/retry", "/nonsense", "/nonsense too", "/save", "/clear all", "/set temperature",
        "/set temperature 1e9", "/set seeds 1", f"/load {tmp_path / 'absent'}",
        f"/save {tmp_path / 'no' / 'chat.json'}", "/etc/hosts is a file",
    )  # fmt: skip
    for problem in (
        "no exchange to undo", "there is no question yet", "/nonsense is not a command",
        "/save needs FILE", "/clear takes nothing, not 'all'", "/set needs a name and a value",
        "temperature is 1e9; it must be 0 to 10000", "'seeds' cannot be set",
        "No such file", "cannot be written",
    ):  # fmt: skip
        assert problem in result.stderr
    assert len(answers(result)) == 1, "a path is no command"


def test_help_show_and_tokens(model: str) -> None:
    result = chat(model, "/tokens", "hello", "/tokens", "/show", "/help", "/system", "/system none")
    assert "0 of 512 tokens of context; 512 are left" in result.stderr
    used = int(re.findall(r"(\d+) of 512 tokens of context", result.stderr)[1])
    answer = answers(result)[0]
    spent = int(str(answer["prompt_tokens"])) + int(str(answer["completion_tokens"]))
    assert used > spent, "the opening of the next answer counts"
    assert f"context   {used} of 512 tokens" in result.stderr
    assert re.search(r"temperature +0\.0", result.stderr)
    for command in ("/clear", "/save FILE", "/set [NAME VALUE]", "/retry", "/quit"):
        assert command in result.stderr
    assert "there is no system message" in result.stderr


def test_a_full_context_is_said_and_nothing_is_cut(model: str) -> None:
    flags = ("--temperature", "0", "--threads", "1", "--max-model-len", "96")
    result = chat(model, "hello", "more", "/undo", "/set max_tokens 8", "again", flags=flags)
    first, again = answers(result)
    assert first["finish_reason"] == "length"
    assert int(str(first["prompt_tokens"])) + int(str(first["completion_tokens"])) == 96
    assert "maximum context length is 96 tokens" in result.stderr
    assert "the conversation before it is kept whole. /undo removes the last" in result.stderr
    assert int(str(again["prompt_tokens"])) < 96
    told = chat(model, "hello", flags=flags, as_json=False)
    assert "the context of 96 tokens is full" in told.stderr


def test_a_pipe_gets_the_text_alone(model: str) -> None:
    result = chat(model, "hello", as_json=False)
    (answer,) = answers(chat(model, "hello"))
    assert result.stdout == f"{answer['text']}\n"
    assert "\x1b" not in result.output
    assert re.search(
        r"\[prompt \d+ tokens.* · answer 8 tokens.* · context \d+ of 512\]", result.stderr
    )


class Terminal:
    """A chat in a terminal of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def prompt(self) -> None:
        """Wait for readline: it switches bracketed paste on just before its prompt."""
        self.until(r"\x1b\[\?2004h> ")

    def interrupt(self, pattern: str) -> None:
        """Type Ctrl-C until the pattern comes: Python's readline can miss one while it sets up."""
        for _ in range(20):
            self.type("\x03")
            try:
                self.until(pattern, patience_s=1.0)
            except AssertionError:
                continue
            return
        raise AssertionError(f"never: {pattern}; seen: {self.seen[-2000:]!r}")

    def until(self, pattern: str, patience_s: float = PATIENCE_S) -> str:
        """Read until the pattern comes; what came before its end, which is then forgotten."""
        ends_s = time.monotonic() + patience_s
        while time.monotonic() < ends_s:
            match = re.search(pattern, self.seen)
            if match:
                found, self.seen = self.seen[: match.end()], self.seen[match.end() :]
                return found
            if select.select([self._descriptor], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self._descriptor, 65536).decode(errors="replace")
                except OSError:  # the other end has closed it
                    break
        raise AssertionError(f"never: {pattern}; seen: {self.seen[-2000:]!r}")


@contextmanager
def in_terminal(state: Path, *arguments: str, **environ: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "chat", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_terminal,
        env={**os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm", **environ},
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _take_terminal() -> None:
    """Make stdin the controlling terminal, so that Ctrl-C typed there is a SIGINT."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.process
def test_history_paste_and_end_in_a_terminal(model: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with in_terminal(state, model, *GREEDY) as terminal:
        terminal.until("/help lists the commands")
        terminal.prompt()
        terminal.type("first words\r")
        assert "\x1b[90m" in terminal.until(r"context \d+ of 512"), "figures are in grey"
        terminal.prompt()
        terminal.type("\x1b[200~two\rlines\x1b[201~\r")
        terminal.until(r"context \d+ of 512")
        terminal.prompt()
        terminal.type("/show\r")
        terminal.until(r"messages +4")  # what was pasted is one message
        terminal.prompt()
        terminal.type("\x04")
    history = state / "headrace" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700
    assert history.read_text().splitlines() == ["first words", "two", "lines", "/show"]
    with in_terminal(state, model, *GREEDY, NO_COLOR="1") as terminal:
        terminal.prompt()
        terminal.type("\x1b[A\x1b[A\x1b[A\x1b[A\r")
        assert "first words" in terminal.until(r"answer 8 tokens")
        assert "\x1b[90m" not in terminal.until(r"context \d+ of 512")
        terminal.prompt()
        terminal.type("/quit\r")
    assert history.read_text().splitlines()[-2:] == ["first words", "/quit"]


@pytest.mark.process
def test_ctrl_c_stops_an_answer_and_only_that(model: str, tmp_path: Path) -> None:
    flags = ("--temperature", "0", "--backend", "reference", "--max-tokens", "450")
    with in_terminal(tmp_path, model, *flags) as terminal:
        terminal.prompt()
        terminal.type("half typed")
        terminal.until("half typed")  # readline reads by now
        terminal.interrupt("Ctrl-D or /quit ends")
        terminal.prompt()
        terminal.type("hello\r")
        terminal.until(r"hello\r\n\x1b\[\?2004l\r?[^\r\n\x1b]")
        terminal.type("\x03")
        stopped = re.search(r"answer (\d+) token", terminal.until(r"answer \d+ token"))
        assert stopped is not None
        assert int(stopped[1]) < 450
        terminal.prompt()
        terminal.type("/show\r")
        terminal.until(r"messages +2")  # what there is of it is kept
        terminal.prompt()
        terminal.type("/quit\r")


@pytest.mark.process
def test_a_history_that_cannot_be_kept_is_no_reason_to_end(model: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with in_terminal(blocked, model, *GREEDY) as terminal:
        terminal.until("what you type will not be kept for the next chat")
        terminal.prompt()
        terminal.type("hello\r")
        terminal.until(r"context \d+ of 512")
        terminal.prompt()
        terminal.type("\x04")
