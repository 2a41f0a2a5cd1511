"""examples/: what README claims of the engine, shown by the programs that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.process
EXAMPLES = ROOT / "examples"
NAMED = sorted(f"examples/{path.name}" for path in EXAMPLES.glob("*.py"))


@cache
def printed(name: str) -> str:
    """What an example prints."""
    command = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.smoke
def test_only_new_tokens_are_computed() -> None:
    turns = re.findall(
        r"(\d+) prompt tokens, +(\d+) from the cache, +(\d+) computed", printed("new_tokens.py")
    )
    assert len(turns) == 3
    before = 0
    for prompt, cached, computed in ((int(n) for n in turn) for turn in turns):
        assert before <= cached < prompt, "all of what came before"
        assert computed == prompt - cached
        before = prompt


def test_a_prefix_is_shared_while_it_is_computed() -> None:
    text = printed("shared_prefix.py")
    assert "8,448 prompt tokens" in text
    assert f"{512 + 16 * 16} tokens were computed" in text


def test_a_request_has_the_same_bits_whatever_the_batch() -> None:
    assert printed("same_bits.py").startswith("32 of 32 ")


def test_a_users_text_does_not_become_a_control_token() -> None:
    found = re.findall(r"^ *(\d+) prompt tokens, (\d+) of them", printed("control_tokens.py"), re.M)
    (harmless, ends), (attack, ends_of_attack) = found
    assert (ends, ends_of_attack) == ("1", "1")
    assert int(attack) > int(harmless) + 10


def test_a_tool_loop_in_process_ends_in_an_answer_from_what_the_tool_returned() -> None:
    called, answered = printed("tool_loop.py").splitlines()
    assert called == 'get_weather {"city": "Oslo"}'
    assert "7 degrees" in answered


def claims() -> list[tuple[str, list[str]]]:
    """Of each row of README's table of claims: the command, and the quotations of what it prints.

    In a table a bar inside a quotation is escaped.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) == 5 and (command := re.fullmatch(r" `python ([\w/]+\.py)` ", cells[2])):
            found.append((command[1], re.findall(r"`([^`]+)`", cells[3].replace("\\|", "|"))))
    return found


@pytest.mark.parametrize("path", NAMED)
def test_an_example_prints_what_the_readme_quotes(path: str) -> None:
    ((_, quotations),) = (claim for claim in claims() if claim[0] == path)
    assert quotations
    text = printed(Path(path).name)
    assert [quotation for quotation in quotations if quotation not in text] == []


def test_the_readme_quotes_nothing_that_no_example_prints() -> None:
    assert len(claims()) == 6
    quoting = {path for path, quotations in claims() if quotations}
    assert quoting == set(NAMED)


def test_every_example_is_in_the_readme_and_has_a_test() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py")}
    known = {"new_tokens.py", "shared_prefix.py", "same_bits.py", "control_tokens.py"}
    assert names == {*known, "tool_loop.py"}
    assert all(f"examples/{name}" in readme for name in names)
