"""Credentials of clouds in LiteLLM's file, as ours says them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.gateway.importing.litellm import import_litellm
from headrace.gateway.settings.read import parse_settings


@pytest.mark.parametrize(
    ("params", "name", "expected"),
    [
        (
            {"model": "vertex_ai/gemini-2.5-pro", "vertex_project": "p",
             "vertex_location": "us-east5", "vertex_credentials": "sa.json"},
            "google-vertex",
            {"google": {"project": "p", "location": "us-east5", "credentials": "file:sa.json"}},
        ),
        (
            {"model": "vertex_ai/claude-sonnet-4-5@20250929",
             "vertex_credentials": "os.environ/SA_JSON"},
            "google-vertex-anthropic",
            {"google": {"location": "global", "credentials": "os.environ/SA_JSON"}},
        ),
        (
            {"model": "bedrock/m", "aws_profile_name": "work", "aws_region_name": "eu-west-1"},
            "aws-bedrock",
            {"aws": {"profile": "work"}, "region": "eu-west-1"},
        ),
        (
            {"model": "bedrock/m", "aws_access_key_id": "a", "aws_secret_access_key": "b",
             "aws_region_name": "eu-west-1"},
            "aws-bedrock",
            {"aws": {"access_key_id": "a", "secret_access_key": "b"}, "region": "eu-west-1"},
        ),
        (
            {"model": "azure/m", "api_base": "https://x.openai.azure.com", "tenant_id": "t",
             "client_id": "c", "client_secret": "os.environ/S"},
            "azure-openai",
            {"base_url": "https://x.openai.azure.com",
             "entra": {"tenant_id": "t", "client_id": "c", "client_secret": "os.environ/S"}},
        ),
    ],
)  # fmt: skip
def test_they_carry_over(params: dict[str, Any], name: str, expected: dict[str, Any]) -> None:
    theirs = {"model_list": [{"model_name": "m", "litellm_params": params}]}
    settings, notes = import_litellm(theirs)
    assert settings["providers"] == {name: expected}
    assert not [one for one in notes if "not carried over" in one]
    model = params["model"].partition("/")[2]
    assert settings["models"]["m"]["targets"] == [{"model": f"{name}/{model}"}]
    parse_settings(Document(settings, {}), "gateway.yaml")
