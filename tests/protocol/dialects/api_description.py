"""Bodies checked against an API's own OpenAPI description, where `../shared/assets` is there."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[4] / "shared" / "assets" / "api-specs"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def assert_as_described(body: Any, file: str, path: str) -> None:
    """`body` is a request that `path` of a description takes; skips without the description."""
    if not (FOLDER / file).exists():
        pytest.skip(f"needs api-specs/{file} of the shared test assets")
    errors = [
        f"{error.json_path}: {error.message}" for error in _validator(file, path).iter_errors(body)
    ]
    assert errors == []


@pytest.fixture(scope="session")
def api_descriptions() -> None:
    """The long ones are parsed: the set-up of tests that hold bodies against them."""
    for file in ("openai/openapi.yaml", "mistral/openapi.yaml", "cohere/cohere-openapi.yaml"):
        if (FOLDER / file).exists():
            _description(file)


@cache
def _description(file: str) -> Any:
    return yaml.load((FOLDER / file).read_text(), Loader=_LOADER)  # noqa: S506, it is safe


@cache
def _validator(file: str, path: str) -> Draft202012Validator:
    description = _description(file)
    body = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    schemas = description["components"]["schemas"]
    return Draft202012Validator(_any_of({**body["schema"], "components": {"schemas": schemas}}))


def _any_of(schema: Any) -> Any:
    """The same with anyOf for oneOf: which one it is, descriptions tell by discriminators.

    A type that is null (in Anthropic's description) says nothing.
    """
    if isinstance(schema, list):
        return [_any_of(one) for one in schema]
    if isinstance(schema, dict):
        return {
            ("anyOf" if name == "oneOf" else name): (
                value if name in ("example", "examples") else _any_of(value)
            )
            for name, value in schema.items()
            if not (name == "type" and value is None)
        }
    return schema
