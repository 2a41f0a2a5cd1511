"""A text that is not YAML: the message has the line of the mistake and its remedy, no value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.bench.providers.read_settings import read_providers
from headrace.config import EngineConfig
from headrace.config.load import read_file
from headrace.config.yaml_file import read_yaml
from headrace.errors import ConfigError

SECRET = "sk-hidden-0123456789"
MISTAKES = {
    f"a:\n  b: {SECRET}\n c:\n": (3, "give names of one level the same indentation"),
    "  a: 1\nb: 2\n": (2, "give names of one level the same indentation"),
    "a: 'it's'\n": (1, "nothing after a closing quotation mark"),
    f"a:\n\tb: {SECRET}\n": (2, "a tab: indent with spaces"),
    f'a:\n  b: "{SECRET}\nc: 1\n': (2, "the quotation mark opened here is not closed"),
    f"a:\n  b: [{SECRET}\nc: 1\n": (2, "the `[` opened here is not closed: add `]`"),
    f"a:\n  b: {{x: {SECRET}\n": (2, "the `{` opened here is not closed: add `}`"),
    "a: {x: 1,, y: 2}\n": (1, "a value is missing before `,`"),
    "a: [\n": (2, "a value is missing before `<stream end>`"),
    "a: *nobody\n": (1, "`*nobody` refers to an anchor"),
    "a: @key\n": (1, "a value cannot begin with `@`: put it in quotes"),
    f"a: b: {SECRET}\n": (1, "put a value with `: ` in it in quotes"),
    f"a:\n  b:{SECRET}\n  c: d\n": (3, "write a space after every colon above"),
    "a: - b\n": (1, "`- ` begins an item of a list"),
    "a: !!python/object:os.system {}\n": (1, "the tag `python/object:os.system` is not read"),
    "a: {{ name }}\n": (1, "put a text that begins with `{` or `[` in quotes"),
    'a: "C:\\data"\n': (1, "use single quotes, or write it twice"),
    "a: |x\n  y\n": (1, "put a value that begins so in quotes"),
    "a: 1\nb: \x07\n": (2, "the control character U+0007 is not allowed"),
}
UNUSABLE = {
    "a: 2026-02-31\n": "day is out of range for month: put a text that only looks like a date",
    "a: !!timestamp foo\n": "does not have the form of its `!!` tag: omit the tag",
    "[" * 800: "it is nested too deeply",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_the_message_has_line_mistake_and_remedy(text: str) -> None:
    line, says = MISTAKES[text]
    with pytest.raises(ConfigError) as found:
        read_yaml(text, "gateway.yaml")
    said = str(found.value)
    assert re.match(rf"gateway\.yaml:{line}: not valid YAML, in column \d+: ", said), said
    assert says in said
    for words in ("token", "<block", "scalar", "flow", "constructor", SECRET):
        assert words not in said


@pytest.mark.parametrize("text", UNUSABLE)
def test_what_cannot_be_a_value_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(UNUSABLE[text])):
        read_yaml(text, "gateway.yaml")


def test_every_file_of_yaml_has_these_messages(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    for text, says in ((f"a:\n\tb: {SECRET}\n", r"file\.yaml:2: .*a tab"), *UNUSABLE.items()):
        path.write_text(text)
        for read in (lambda: read_file(path, [EngineConfig]), lambda: read_providers(path)):
            with pytest.raises(ConfigError, match=says if "yaml" in says else re.escape(says)):
                read()
