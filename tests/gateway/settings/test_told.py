"""How it is told what is wrong with a gateway's file: all at once, and with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigErrors
from tests.gateway.settings.test_read import read, refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "timeouts:\n  total_s: 5m\n",
            "2: timeouts.total_s: '5m': a number is expected; it is in seconds: 300",
        ),
        ("cache:\n  ttl_s: 1h\n", "'1h': a number is expected; it is in seconds: 3600"),
        (
            "ledger:\n  retention_days: 4w\n",
            "2: ledger.retention_days: '4w': a whole number is expected",
        ),
        (
            "ledger:\n  retention_days: 48h\n",
            "'48h': a whole number is expected; it is in days: 2",
        ),
        (
            "listen:\n  port: '80'\n",
            "'80': a whole number is expected; write it without quotes: 80",
        ),
    ],
)
def test_numbers_are_told_as_they_are_to_be_written(tmp_path: Path, text: str, says: str) -> None:
    assert says in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("1mo", "1M"), ("month", "1M"), ("monthly", "1M"), ("1min", "1m"), ("24 hours", None),
     ("10m", None), ("1day", "1d"), ("1D", "1d"), ("totl", "total"), ("1 yr", "1Y")],
)  # fmt: skip
def test_a_window_that_is_none_is_not_taken_for_another_length(
    tmp_path: Path, given: str, meant: str | None
) -> None:
    text = f"access: {{teams: {{a: {{budgets: [{{usd: 1, per: '{given}'}}]}}}}}}\n"
    said = refused(tmp_path, text)
    assert said.endswith(f"did you mean '{meant}'?" if meant else "1M, 1Y, total"), said


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = """
providers:
  a: {connectons: 5}
  b: {connections: many}
models:
  m: [a/x, c/y]
  n: {targets: [{model: a/x, weight: heavy}], fallbacks: [k]}
  o: {targets: b/x, strategy: fastest}
timeouts: {total_s: 5m}
aliases: {p: q}
"""
    with pytest.raises(ConfigErrors) as caught:
        read(tmp_path, text)
    places = [one.split(": ")[0] + " " + one.split(": ")[1] for one in caught.value.each]
    at = f"{tmp_path / 'gateway.yaml'}:"
    assert [one.removeprefix(at) for one in places] == [
        "3 providers.a.connectons",
        "4 providers.b.connections",
        "7 models.n.targets.0.weight",
        "8 models.o.strategy",
        "9 timeouts.total_s",
        "10 aliases.p",
        "6 models.m.targets.1",
        "7 models.n.fallbacks",
    ]
    assert str(caught.value) == "\n".join(caught.value.each)


def test_what_follows_from_a_mistake_is_not_told(tmp_path: Path) -> None:
    for text in (
        "providers: {a: 5}\nmodels: {m: a/x}\n",
        "providers: {a: {}}\nmodels: {m: {targetz: a/x}}\n",
        "providers: {a: {}}\nmodels: {m: {targets: [{modl: a/x}]}}\n",
        "admin: {portt: 5}\n",
    ):
        assert "\n" not in refused(tmp_path, text)
