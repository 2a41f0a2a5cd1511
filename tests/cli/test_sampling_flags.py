"""The sampling flags of `generate` and `chat`: what they become, and what is refused."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from headrace.cli.sampling import sampling_options, sampling_params
from headrace.engine.params import SAMPLERS
from headrace.offline.params import SamplingParams


def run(*arguments: str) -> tuple[Result, list[SamplingParams]]:
    made: list[SamplingParams] = []

    @click.command()
    @sampling_options
    def command(stop: tuple[str, ...], **values: Any) -> None:
        made.append(sampling_params(values))

    return CliRunner().invoke(command, arguments), made


def test_every_flag_is_a_parameter() -> None:
    result, made = run(
        "--max-tokens", "2K", "--temperature", "0.5", "--top-k", "-1", "--top-p", "0.9", "--min-p",
        "0.1", "--repetition-penalty", "1.2", "--frequency-penalty", "-0.5", "--presence-penalty",
        "2", "--min-tokens", "1K", "--samplers", "top_p, temperature,min_p,penalties",
        "--seed", "7",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert made == [
        SamplingParams(
            max_tokens=2048, temperature=0.5, top_k=-1, top_p=0.9, min_p=0.1,
            repetition_penalty=1.2, frequency_penalty=-0.5, presence_penalty=2, min_tokens=1024,
            samplers=("top_p", "temperature", "min_p", "penalties"), seed=7,
        )
    ]  # fmt: skip


def test_what_is_not_typed_keeps_its_default() -> None:
    result, made = run()
    assert result.exit_code == 0
    assert made == [SamplingParams(max_tokens=None)]
    assert made[0].samplers == SAMPLERS


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--repetition-penalty", "0", "0.001"),
        ("--frequency-penalty", "2.5", "2.5 is out of range"),
        ("--presence-penalty", "nan", "nan is out of range"),
        ("--min-tokens", "many", "'many' is not an integer"),
        ("--min-tokens", "-1", "-1 is out of range"),
        ("--samplers", "top_p,typical_p", "'typical_p' is not a sampler"),
        ("--samplers", "top_p,top_k,top_p", "'top_p' comes twice"),
    ],
)
def test_what_cannot_be_is_a_usage_error(flag: str, value: str, said: str) -> None:
    result, made = run(flag, value)
    assert result.exit_code == 2
    assert flag in result.output
    assert said in " ".join(result.output.split())
    assert not made
