"""A setting's former name is read as the new one, and a warning names it."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
import pytest

from headrace.config.nested import formerly, read_nested, read_partly
from headrace.config.nested_reference import sections_of
from headrace.config.yaml_file import read_yaml
from headrace.errors import ConfigError
from headrace.gateway.settings.gateway import GatewaySettings


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
    for both in ("max_in_flight: 3, most_in_flight: 4", "most_in_flight: 4, max_in_flight: 3"):
        with pytest.raises(ConfigError) as raised:
            read(f"targets:\n- {{{both}}}\n")
        assert str(raised.value) == (
            "g.yaml:2: targets.0.most_in_flight: is now called `max_in_flight`, which is given "
            "too: remove one"
        )


@pytest.mark.parametrize(
    ("section", "former", "name", "value"),
    [
        ("retries", "backoff_most_s", "backoff_max_s", 9.0),
        ("breaker", "least", "min_attempts", 7),
        ("breaker", "cooldown_most_s", "cooldown_max_s", 90.0),
        ("cache", "most_answer_bytes", "max_answer_bytes", 2048),
        ("guardrails.short", "most", "max_tokens", 20),
    ],
)
def test_former_names_of_the_gateway_are_read(
    section: str, former: str, name: str, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    field = f"{former}: {value}"
    if section == "guardrails.short":
        text = f"guardrails: {{short: {{kind: max_tokens, {field}}}}}\n"
    else:
        text = f"{section}: {{{field}}}\n"
    (document,) = read_yaml(text, "g.yaml")
    with caplog.at_level(logging.WARNING):
        found: object = read_partly(document, GatewaySettings, "g.yaml").settings
        assert found is not None
    for part in section.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert getattr(found, name) == value
    assert caplog.messages == [f"g.yaml:1: {section}.{former}: is now called `{name}`: rename it"]


def test_the_reference_names_it() -> None:
    (_, section) = sections_of(File)
    assert section.settings[0].meaning == "Most requests. Formerly `most_in_flight`."
