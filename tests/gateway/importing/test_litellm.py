from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.importing.litellm import import_litellm
from headrace.gateway.settings.read import parse_settings

THEIRS = """
model_list:
  - model_name: gpt
    litellm_params: {model: azure/gpt-5-eu, api_base: https://eu.openai.azure.com,
                     api_key: os.environ/AZURE_EU, api_version: "2024-10-21", weight: 2, rpm: 6}
  - model_name: gpt
    litellm_params: {model: azure/gpt-5-us, api_base: https://us.openai.azure.com,
                     api_key: os.environ/AZURE_US, order: 2}
  - model_name: claude
    litellm_params: {model: claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY,
                     input_cost_per_token: 0.000003, output_cost_per_token: 0.000015,
                     thinking: {type: enabled}}
  - model_name: own
    litellm_params: {model: hosted_vllm/qwen3, api_base: http://10.0.0.5:8000/v1,
                     max_parallel_requests: 32}
  - model_name: "openai/*"
    litellm_params: {model: "openai/*"}
router_settings:
  routing_strategy: latency-based-routing
  num_retries: 2
  timeout: 30
  cooldown_time: 60
  allowed_fails: 3
  fallbacks: [{gpt: [claude]}]
  model_group_alias: {gpt-4: gpt}
  redis_host: localhost
litellm_settings:
  drop_params: true
  context_window_fallbacks: [{gpt: [claude]}]
  success_callback: [langfuse]
general_settings:
  master_key: os.environ/MASTER
  database_url: os.environ/DATABASE_URL
"""


def imported() -> tuple[dict[str, Any], tuple[str, ...]]:
    found = import_litellm(yaml.safe_load(THEIRS))
    return found.settings, found.notes


def test_what_it_says_is_what_ours_says() -> None:
    settings, _ = imported()
    read = parse_settings(Document(settings, {}), "gateway.yaml")
    assert read.providers["azure-openai"].api_key == ("os.environ/AZURE_EU",)
    assert read.providers["azure-openai-2"].kind == "azure-openai"
    assert read.providers["azure-openai"].api_version == "2024-10-21"
    first, second = read.models["gpt"].targets
    assert (first.model, first.weight, second.model, second.order) == (
        "azure-openai/gpt-5-eu", 2, "azure-openai-2/gpt-5-us", 2,
    )  # fmt: skip
    (claude,) = read.models["claude"].targets
    assert claude.model == "anthropic/claude-sonnet-4-5" and claude.price is not None
    assert (claude.price.input, claude.price.output) == (3.0, 15.0)
    (own,) = read.models["own"].targets
    assert own.model == "vllm-server/qwen3" and own.max_in_flight == 32
    assert {one.strategy for one in read.models.values()} == {"latency"}
    assert read.models["gpt"].fallbacks == read.models["gpt"].context_fallbacks == ("claude",)
    assert read.aliases == {"gpt-4": "gpt"} and read.unsupported == "drop"
    assert (read.retries.same_target, read.timeouts.first_token_s) == (3, 30.0)
    assert read.breaker.cooldown_s == 60.0
    assert read.access.master_key == "os.environ/MASTER" and read.access.require_key
    assert read.access.redis == "redis://localhost:6379/0"
    assert read.access.store == "gateway.db"


def test_nothing_is_left_out_in_silence() -> None:
    _, notes = imported()
    told = "\n".join(notes)
    for word in ("rpm", "thinking", "wildcard", "allowed_fails", "success_callback",
                 "database_url"):  # fmt: skip
        assert word in told, word


def test_one_provider_for_the_same_key_and_address() -> None:
    entry = {"model_name": "a", "litellm_params": {"model": "groq/x", "api_key": "os.environ/G"}}
    other = {"model_name": "b", "litellm_params": {"model": "groq/y", "api_key": "os.environ/G"}}
    found = import_litellm({"model_list": [entry, other]}).settings
    assert list(found["providers"]) == ["groq"]
    assert found["access"] == {"require_key": False}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"model_list": {}},
        {"model_list": [{}]},
        {"model_list": [], "router_settings": 3},
        {"model_list": [{"litellm_params": {"model": 3}}]},
    ],
)
def test_what_is_no_config_of_theirs(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        import_litellm(wrong)


def test_the_command_writes_a_file_that_is_right(tmp_path: Path) -> None:
    theirs = tmp_path / "litellm.yaml"
    theirs.write_text(THEIRS)
    done = CliRunner().invoke(cli, ["gateway", "import", str(theirs)])
    assert done.exit_code == 0
    ours = tmp_path / "gateway.yaml"
    ours.write_text(done.stdout)
    assert "# differs:" in done.stdout and "success_callback" in done.stdout
    environ = dict.fromkeys(
        ("AZURE_EU", "AZURE_US", "ANTHROPIC_API_KEY", "MASTER", "OPENAI_API_KEY"), "x"
    )
    checked = CliRunner().invoke(
        cli, ["gateway", "check", "--config", str(ours), "--json"], env=environ
    )
    assert json.loads(checked.stdout)["right"] is True, checked.stdout


def test_an_organization_is_a_header_and_a_base_model_a_note() -> None:
    params = {"model": "azure/eu", "api_base": "https://eu.openai.azure.com", "api_key": "k"}
    theirs = {
        "model_list": [
            {"model_name": "gpt",
             "litellm_params": {"model": "openai/gpt-5", "organization": "org-1",
                                "extra_headers": {"x-a": "b"}}},
            {"model_name": "other",
             "litellm_params": {"model": "openai/gpt-5", "organization": "os.environ/ORG"}},
            {"model_name": "eu", "litellm_params": params,
             "model_info": {"base_model": "azure/gpt-4o"}},
        ]
    }  # fmt: skip
    found = import_litellm(theirs)
    headers = {"x-a": "b", "openai-organization": "org-1"}
    assert found.settings["providers"]["openai"]["headers"] == headers
    notes = "\n".join(found.notes)
    headers = {"openai-organization": "os.environ/ORG"}
    assert found.settings["providers"]["openai-2"]["headers"] == headers
    assert (
        "model_list.2 (eu).model_info.base_model: LiteLLM takes the price of azure/gpt-4o" in notes
    )


@pytest.mark.long
def test_variables_and_googles_own_credentials_carry_over(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "litellm.yaml", tmp_path / "gateway.yaml"
    theirs.write_text(
        """
model_list:
  - model_name: eu
    litellm_params:
      model: azure/gpt-eu
      api_base: os.environ/AZURE_API_BASE
      api_key: os.environ/AZURE_API_KEY
      api_version: os.environ/AZURE_API_VERSION
  - model_name: flash
    litellm_params: {model: vertex_ai/gemini-2.5-flash}
  - model_name: pro
    litellm_params:
      model: vertex_ai/gemini-2.5-pro
      vertex_project: os.environ/PROJECT
      vertex_location: os.environ/LOCATION
  - model_name: nova
    litellm_params:
      model: bedrock/amazon.nova-lite-v1:0
      aws_region_name: os.environ/AWS_REGION_NAME
      aws_access_key_id: os.environ/AWS_ID
      aws_secret_access_key: os.environ/AWS_SECRET
"""
    )
    key = tmp_path / "adc.json"
    person = {"type": "authorized_user", "client_id": "i", "client_secret": "s",
              "refresh_token": "r", "quota_project_id": "acme"}  # fmt: skip
    key.write_text(json.dumps(person))
    done = CliRunner().invoke(cli, ["gateway", "import", str(theirs)])
    assert "# differs" not in done.stdout
    ours.write_text(done.stdout)
    environ = {
        "AZURE_API_BASE": "https://eu.openai.azure.com", "AZURE_API_KEY": "k",
        "AZURE_API_VERSION": "2024-10-21", "PROJECT": "acme-1", "LOCATION": "europe-west4",
        "AWS_REGION_NAME": "eu-west-1", "AWS_ID": "i", "AWS_SECRET": "s",
        "GOOGLE_APPLICATION_CREDENTIALS": str(key),
    }  # fmt: skip
    asked = ["gateway", "check", "--config", str(ours), "--json"]
    checked = CliRunner().invoke(cli, asked, env=environ)
    assert json.loads(checked.stdout)["right"] is True, checked.stdout
    environ["AZURE_API_BASE"] = ""
    errors = json.loads(CliRunner().invoke(cli, asked, env=environ).stdout)["errors"]
    assert errors == [
        "providers.azure-openai: base_url: the environment has no AZURE_API_BASE: set it (a "
        "running gateway has to be restarted for that), or remove what needs it"
    ]
