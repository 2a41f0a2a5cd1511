"""Hedges, variants and shadows in the file."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import parse_settings

TWO = {"control": {"weight": 90, "targets": ["a/x"]}, "new": {"weight": 10, "targets": "a/y"}}


def read(model: dict[str, Any]) -> GatewaySettings:
    settings = {"providers": {"a": "http://127.0.0.1:9"}, "models": {"m": model}}
    return parse_settings(Document(settings, {}), "gateway.yaml")


def test_short_forms() -> None:
    model = read({"variants": TWO, "shadow": {"target": "a/z"}}).models["m"]
    assert [one.model for one in model.variants["new"].targets] == ["a/y"]
    assert model.shadow is not None and model.shadow.target.model == "a/z"
    assert model.targets == ()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"targets": ["a/x"], "variants": TWO}, "models.m: has targets and variants; keep one"),
        ({"variants": {}}, "models.m: has no targets"),
        ({"variants": {"a": {"weight": 0, "targets": ["a/x"]}}}, "all weights are 0"),
        ({"variants": {"a": {"weight": -1, "targets": ["a/x"]}}}, "variants.a.weight: -1"),
        ({"variants": {"a b": {"weight": 1, "targets": ["a/x"]}}}, "cannot be sent in a header"),
        ({"variants": {"a": {"weight": 1, "targets": ["c/x"]}}},
         "models.m.variants.a.targets.0: 'c' is not a provider of this file"),
        ({"variants": {"a": {"weight": 1, "targets": ["a/x", "a/x"]}}}, "is listed twice"),
        ({"targets": ["a/x"], "rollback": {"error_share": 0.2}}, "write at least two `variants`"),
        ({"variants": TWO, "rollback": {"error_share": 2}}, "rollback.error_share: 2"),
        ({"targets": ["a/x"], "hedge": {}}, "give exactly one"),
        ({"targets": ["a/x"], "hedge": {"after_ms": 5, "after_percentile": 95}},
         "give exactly one"),
        ({"targets": ["a/x"], "hedge": {"after_ms": 0}}, "hedge.after_ms: 0"),
        ({"targets": ["a/x"], "hedge": {"after_percentile": 100}}, "hedge.after_percentile: 100"),
        ({"targets": ["a/x"], "hedge": {"after_ms": 5, "share": 0}}, "hedge.share: 0"),
        ({"targets": ["a/x"], "hedge": {"after_mss": 5}}, "after_ms"),
        ({"targets": ["a/x"], "shadow": {"target": "c/y"}},
         "models.m.shadow.target: 'c' is not a provider of this file"),
        ({"targets": ["a/x"], "shadow": {"target": "y"}}, "'y' is not `provider/model`"),
        ({"targets": ["a/x"], "shadow": {}}, "target"),
        ({"targets": ["a/x"], "engines": {"interval_s": 9, "stale_s": 5}}, "less than interval_s"),
        ({"targets": ["a/x"], "strategy": "prefix"}, "strategy: 'prefix'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(model: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(model)
    assert says in str(caught.value)


def test_no_key_has_the_name_that_shadows_are_billed_on() -> None:
    settings = {
        "providers": {"a": "http://127.0.0.1:9"},
        "models": {"m": {"targets": ["a/x"], "shadow": {"target": "a/y"}}},
        "access": {"keys": {"shadow": {"key": "env:K"}}},
    }
    with pytest.raises(ConfigError, match=r"access\.keys\.shadow: the cost of shadow requests"):
        parse_settings(Document(settings, {}), "gateway.yaml")
