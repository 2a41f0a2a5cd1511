"""A setting's former name is read as the new one, and a warning names it."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
import pytest

from headrace.config.nested import formerly, read_nested
from headrace.config.nested_reference import sections_of
from headrace.config.yaml_file import read_yaml
from headrace.errors import ConfigError


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A target."""

    max_in_flight: Annotated[
        int | None, msgspec.Meta(description="Most requests."), formerly("most_in_flight")
    ] = None


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file."""

    targets: tuple[Target, ...] = ()


def read(text: str) -> File:
    (document,) = read_yaml(text, "g.yaml")
    return read_nested(document, File, "g.yaml")


def test_a_former_name_is_read_and_a_warning_names_the_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read("targets:\n- most_in_flight: 3\n") == File(targets=(Target(max_in_flight=3),))
    assert caplog.messages == [
        "g.yaml:2: targets.0.most_in_flight: is now called `max_in_flight`: rename it"
    ]


def test_the_new_name_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert read("targets:\n- max_in_flight: 3\n").targets == (Target(max_in_flight=3),)
    assert caplog.messages == []


def test_a_wrong_value_is_named_as_the_file_has_it() -> None:
    with pytest.raises(ConfigError, match=r"^g.yaml:2: targets\.0\.most_in_flight: 'x'"):
        read("targets:\n- most_in_flight: x\n")


def test_both_names_at_once_are_refused() -> None:
    both = r"most_in_flight: is now called `max_in_flight`, which is given too: remove one"
    with pytest.raises(ConfigError, match=both):
        read("targets:\n- {max_in_flight: 3, most_in_flight: 4}\n")


def test_the_reference_names_it() -> None:
    (_, section) = sections_of(File)
    assert section.settings[0].meaning == "Most requests. Formerly `most_in_flight`."
