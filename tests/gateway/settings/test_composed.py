"""Models made of other models, as the file gives them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import parse_settings

RULES = {"by": "rules", "default": "small", "rules": [{"if": {"code": True}, "use": "strong"}]}
CASCADE = {"stages": ["small", "strong"], "accept": {"by": "rules"}}
PIPELINE = {"draft": "small", "final": "strong", "decide": {"by": "rules"}}


def read(**models: Any) -> GatewaySettings:
    loaded = {
        "providers": {"a": "http://127.0.0.1:1"},
        "models": {"small": ["a/s"], "strong": ["a/t"], **models},
        "aliases": {"tiny": "small"},
    }
    return parse_settings(Document(loaded, {}), "gateway.yaml")


def test_short_forms() -> None:
    models = read(
        x={"choose": RULES}, y={"cascade": CASCADE}, z={"pipeline": {**PIPELINE, "draft": "tiny"}}
    ).models
    assert models["x"].choose is not None and models["x"].choose.models == ("small", "strong")
    assert models["y"].cascade is not None and models["y"].cascade.models == ("strong", "small")
    assert models["z"].pipeline is not None and models["z"].pipeline.draft.model == "tiny"
    read(y={"cascade": {**CASCADE, "stages": ["a/unnamed", {"model": "strong", "timeout_s": 3}]}})


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"x": {"choose": {**RULES, "default": "smal"}}}, "did you mean 'small'"),
        ({"x": {"choose": {**RULES, "by": "length"}}}, "by: length needs `length`"),
        ({"x": {"choose": {**RULES, "by": "word"}}}, "x.choose.by"),
        ({"x": {"choose": {**RULES, "length": [{"tokens_over": 1, "use": "small"}]}}},
         "has no effect with by: rules"),
        ({"x": {"choose": {**RULES, "rules": [{"if": {"cod": True}, "use": "strong"}]}}},
         "did you mean 'code'"),
        ({"x": {"choose": {**RULES, "rules": [{"if": {"matches": "("}, "use": "strong"}]}}},
         "RE2's syntax"),
        ({"x": {"choose": {**RULES, "default": "y"}}, "y": {"choose": {**RULES,
          "default": "x"}}}, "form a cycle: x -> y -> x"),
        ({"x": {"choose": {**RULES, "default": "x"}}}, "refers to itself"),
        ({"x": {"choose": RULES, "targets": ["a/s"]}}, "targets and choose; keep one"),
        ({"x": {"cascade": {**CASCADE, "stages": ["small"]}}}, "at least 2"),
        ({"x": {"cascade": {**CASCADE, "stages": ["small", "y"]}}, "y": {"choose": RULES}},
         "itself made of other models"),
        ({"x": {"cascade": {**CASCADE, "accept": {"by": "judge"}}}}, "by: judge needs `judge"),
        ({"x": {"cascade": {**CASCADE, "accept": {"by": "logprobs", "threshold": 3}}}},
         "3 is not a probability"),
        ({"x": {"cascade": {**CASCADE, "accept": {"by": "rules", "threshold": 1}}}}, "remove it"),
        ({"x": {"pipeline": {**PIPELINE, "speculative": True, "give": {"draft": True}}}},
         "exclude each other"),
        ({"x": {"pipeline": {**PIPELINE, "final": "x"}}}, "refers to itself"),
        ({"x": {}}, "has no targets"),
    ],
)  # fmt: skip
def test_what_does_not_hold_together_is_refused(models: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="models") as raised:
        read(**models)
    assert said in str(raised.value)
