"""Every example of the gateway's pages is right where it is pasted into the file of gateway.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.gateway.group import gateway
from tests.docs.pages import DOCS, page

_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"env:([A-Z_0-9]+)")
# Other documents than the gateway's file, by their first line.
_OTHERS = ("name:", "- ", "versions:", "scrape_configs:")
# What an example says that its reader has: files, a module, a profile of AWS's.
_READERS = ("my_guards", "prompts_folder: there is no folder", "service-account.json", "'work'")
_VALUES = {"REDIS": "redis://localhost:6379/0"}


def examples(name: str) -> list[str]:
    found = [one.group(1) for one in _YAML.finditer(page(name))]
    return [one for one in found if not one.startswith(_OTHERS)]


FIRST, BASE = examples("gateway.md")[:2]
EXAMPLES = [
    pytest.param(text, id=f"{path.stem}-{number}")
    for path in sorted(DOCS.glob("gateway*.md"))
    for number, text in enumerate(examples(path.name))
]


def added(base: Any, more: Any) -> Any:
    """Names within names of both; of anything else the later."""
    if not isinstance(base, dict) or not isinstance(more, dict):
        return more
    return {**base, **{name: added(base.get(name), one) for name, one in more.items()}}


def environment(*texts: str) -> dict[str, str]:
    """With a value in place of each variable that a text names."""
    names = {name for text in texts for name in _VARIABLE.findall(text)}
    return {
        one: next(
            (value for word, value in _VALUES.items() if word in one),
            f"https://example.com/{one.lower()}-0123456789abcdef",
        )
        for one in names
    }


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_right(text: str, tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(yaml.safe_dump(added(yaml.safe_load(BASE), yaml.safe_load(text))))
    told = CliRunner().invoke(
        gateway, ["check", "--json", "--config", str(config)], env=environment(BASE, text)
    )
    found = json.loads(told.stdout)
    errors = [one for one in found.get("errors", ()) if not any(word in one for word in _READERS)]
    assert errors == []
    assert not [one for one in found.get("warnings", ()) if "the price of" in one]


def test_the_first_example_needs_one_key(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(FIRST)
    told = CliRunner().invoke(
        gateway, ["check", "--config", str(config)], env={"OPENAI_API_KEY": "sk-0"}
    )
    assert told.stdout == "valid: 1 model, 1 provider\n"
