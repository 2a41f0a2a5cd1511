'''What a person types, or a pipe brings, as messages: lines, longer texts, and a history.

A line is a message. One that ends in a backslash goes on in the next, and """ opens and closes a
text of many lines. In a terminal a pasted text of many lines is one message, where readline knows
bracketed paste. Knows which lines are commands, and what none of them does.
'''

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.cli.notes import note

BLOCK = '"""'

HISTORY_LINES = 1000

CANCEL = "cancel"
"""The command that leaves where a result is typed; the only one that has a meaning there."""

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Entry(NamedTuple):
    """A message as it was typed. is_block: between marks, so that nothing in it is a command."""

    text: str
    is_block: bool = False


class CommandLine(NamedTuple):
    """A line whose first word is / and letters."""

    name: str
    argument: str


def command_of(entry: Entry) -> CommandLine | None:
    """The command that an entry is, whether there is one of that name or not; None for a text."""
    match = None if entry.is_block else _COMMAND.fullmatch(entry.text)
    return match and CommandLine(match[1], (match[2] or "").strip())


def entries(read_line: Callable[[str], str], *, prompt: str = "> ") -> Iterator[Entry]:
    """Every text that is not empty, to the end of input.

    read_line: gives the next line for a prompt, without its end; raises EOFError at the end of
    input. Its KeyboardInterrupt drops what has been typed of a text, and reading goes on.
    """
    while True:
        try:
            entry = read_entry(read_line, prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            note("\n(Ctrl-D or /quit ends)")
            continue
        if entry.text.strip():
            yield entry


def read_entry(read_line: Callable[[str], str], prompt: str) -> Entry:
    """The next text, which may be empty. Arguments as of `entries`; raises EOFError at the end of
    input and KeyboardInterrupt as read_line does."""
    line = read_line(prompt)
    more = "." * (len(prompt) - 1) + " " if prompt else ""
    opening = line.strip()
    if opening.startswith(BLOCK):
        return Entry(_block(opening.removeprefix(BLOCK), read_line, more), is_block=True)
    lines = [line]
    while _goes_on(lines[-1]):
        lines[-1] = lines[-1][:-1]
        try:
            lines.append(read_line(more))
        except EOFError:
            break
    return Entry("\n".join(lines).strip())


def _block(first: str, read_line: Callable[[str], str], prompt: str) -> str:
    """The lines up to one that ends in the mark; the end of input ends a text too."""
    lines = [first]
    while not lines[-1].rstrip().endswith(BLOCK):
        try:
            lines.append(read_line(prompt))
        except EOFError:
            break
    else:
        lines[-1] = lines[-1].rstrip().removesuffix(BLOCK)
    return "\n".join(lines).strip("\n")


def _goes_on(line: str) -> bool:
    """Whether a line ends in a backslash that is not itself behind one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def read_line(prompt: str) -> str:
    """The next line of stdin. Only a terminal shows the prompt, and only there Ctrl-C goes on."""
    if sys.stdin.isatty():
        return input(prompt)
    try:
        return input()
    except KeyboardInterrupt:
        raise EOFError from None


def history_path(environ: Mapping[str, str]) -> Path:
    """Where what was typed is kept between sessions (XDG Base Directory: state)."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # as the specification asks: relative ones are ignored
        state = Path(environ.get("HOME", "~")).expanduser() / ".local" / "state"
    return state / "headrace" / "chat_history"


@contextmanager
def line_editing(environ: Mapping[str, str]) -> Iterator[None]:
    """Editing and history for `input`, in a terminal; the history file is the user's alone.

    A history that cannot be kept is said once and is no reason to end.
    """
    if not sys.stdin.isatty():
        yield
        return
    try:
        import readline
    except ImportError:
        yield
        return
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
    path = history_path(environ)
    try:
        _make_private(path)
        readline.read_history_file(path)
    except OSError as error:
        note(
            f"what you type will not be kept for the next chat: {path}: {error.strerror}", "yellow"
        )
        yield
        return
    readline.set_history_length(HISTORY_LINES)
    before = readline.get_current_history_length()
    try:
        yield
    finally:
        try:
            readline.append_history_file(readline.get_current_history_length() - before, path)
            path.chmod(0o600)  # shortening a history makes a new file
        except OSError as error:
            note(f"what you typed could not be kept: {path}: {error.strerror}", "yellow")


def _make_private(path: Path) -> None:
    """The file, if need be a new one, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
