"""Examples in --help: each command has some, and each is a command that can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest

from headrace.cli.main import COMMANDS, cli

_WITHOUT = {"plan simulate"}  # its examples stand below the options
_READS_FILES = {"gateway"}  # click asks for the files of its examples


class Named(NamedTuple):
    """A command that runs something, and the words it is called by, without `headrace`."""

    words: tuple[str, ...]
    command: click.Command


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[Named]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield Named((*words, name), command)


def examples(command: click.Command) -> list[str]:
    """Lines of the blocks that stand as they are written."""
    return [
        line.strip()
        for block in (command.help or "").split("\n\n")
        if block.lstrip().startswith("\b")
        for line in block.splitlines()
        if line.strip().startswith("headrace ")
    ]


ALL = [one for one in commands(cli) if one.words[0] not in _READS_FILES]


def test_all_commands_are_seen() -> None:
    assert {one.words[0] for one in ALL} == set(COMMANDS) - _READS_FILES and len(ALL) > 20


@pytest.mark.parametrize("one", ALL, ids=lambda one: " ".join(one.words))
def test_help_has_examples_that_parse(one: Named) -> None:
    name = " ".join(one.words)
    found = examples(one.command)
    if name in _WITHOUT:
        return
    assert len(found) >= 2, f"headrace {name} --help has no two examples"
    for line in found:
        for part in line.split("#")[0].split("&&"):
            typed = shlex.split(part.partition(" | ")[0].partition(" < ")[0])
            if tuple(typed[1 : 1 + len(one.words)]) != one.words:
                continue
            # Raises click.UsageError for an option that is none and a value that is refused.
            one.command.make_context(name, typed[1 + len(one.words) :])
