"""The providers file: what it may hold, and what an error says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.bench.providers.read_settings import parse_providers, read_providers
from headrace.bench.providers.settings import Price, seconds
from headrace.errors import ConfigError

ONE = {"name": "a", "base_url": "http://h/v1", "model": "m"}


def parsed(**fields: Any) -> Any:
    return parse_providers({"providers": [ONE], **fields})


def provider(**fields: Any) -> Any:
    return parse_providers({"providers": [{**ONE, **fields}]}).providers[0]


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "interval: 5m\nduration: 7d\ninput_tokens: 100..200\noutput_tokens: 64\nbatch_size: 16\n"
        "providers:\n"
        "  - name: ours\n    base_url: http://127.0.0.1:8000\n    model: m\n    type: completions\n"
        "    api_key_env: OUR_KEY\n    price: {input: 0.5, output: 1.5, cached: 0.05}\n"
        "    extra_body: {ignore_eos: true}\n    headers: {X-Title: t}\n"
        "    headers_env: {X-Api-Key: OTHER_KEY}\n    region: eu\n",
        encoding="utf-8",
    )
    found = read_providers(path)
    assert (found.interval_s, found.duration_s, found.batch_size) == (300, 604_800, 16)
    assert found.providers[0].price == Price(0.5, 1.5, 0.05)
    assert found.providers[0].extra_body == {"ignore_eos": True}
    assert found.providers[0].headers_env == {"X-Api-Key": "OTHER_KEY"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"batchsize": 3}, "unknown name 'batchsize'; did you mean 'batch_size'?"),
        ({"interval": "soon"}, "interval: 'soon' is not a time; write 90s, 10m"),
        ({"interval": 0}, "interval: 0 s is less than 1 s"),
        ({"duration": "0s"}, "duration: 0 s must be more than 0"),
        ({"batch_size": 0}, "batch_size: 0 is not in 1 to 4096"),
        ({"single_requests": 5000}, "single_requests: 5000 is not in 1 to 4096"),
        ({"output_tokens": "many"}, "output_tokens: 'many': a whole number"),
        ({"providers": []}, "providers: 0 are named"),
        ({"providers": {"a": 1}}, "providers: must be a list"),
        ({"providers": [ONE, ONE]}, "providers: 'a' is listed twice"),
        ({"providers": ["a"]}, "providers[0]: must be `name: value` lines"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(**fields)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"modle": "x"}, "providers[0] (a): unknown name 'modle'; did you mean 'model'?"),
        ({"price": {"inptu": 1, "output": 1}}, "providers[0] (a): price: unknown name 'inptu'"),
        ({"price": {"input": -1, "output": 1}}, "providers[0] (a): price: input: -1 is not in"),
        (
            {"price": {"input": "x", "output": 1}},
            "providers[0] (a): price.input: a number is expected",
        ),
        ({"model": None}, "providers[0] (a): model must be given"),
        ({"base_url": "ftp://h"}, "providers[0] (a): base_url: 'ftp://h' is not an address"),
        ({"type": "embeddings"}, "providers[0] (a): type: 'embeddings': Invalid enum value"),
        ({"headers": {"Authorization": "x"}}, "providers[0] (a): headers.Authorization: may be"),
        ({"headers": {"X-Pass": "x"}}, "providers[0] (a): headers.X-Pass: may be"),
        (
            {"type": "ollama", "return_metrics": True},
            "providers[0] (a): return_metrics: is for openai-chat and openai-completions",
        ),
        ({"price": {"input": 1, "output": 1}, "usd_per_hour": 1}, "providers[0] (a): price and"),
    ],
)
def test_of_a_provider_the_error_says_which(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        provider(**fields)
    assert str(refused.value).startswith(said)


def test_a_password_in_an_address_is_refused_without_being_told() -> None:
    with pytest.raises(ConfigError) as refused:
        provider(base_url="https://me:hunter2@h/v1")
    assert "hunter2" not in str(refused.value)


def test_a_name_that_is_there_twice_and_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("providers:\n  - name: a\n    name: b\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'name' is given twice, in lines 2 and 3"):
        read_providers(path)
    path.write_text("providers: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_providers(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_providers(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("text", "found"),
    [(90, 90), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1w", 604_800)],
)
def test_times(text: str | int, found: float) -> None:
    assert seconds("interval", text) == found


@pytest.mark.parametrize("text", ["", "m", "-1s", "nan", "inf", "1y", "1e30"])
def test_no_times(text: str) -> None:
    with pytest.raises(ConfigError, match="interval"):
        seconds("interval", text)
