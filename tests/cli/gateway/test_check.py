"""`headrace gateway check`: all that is wrong at once, and what to do about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.gateway.test_gateway import run


def test_check_says_why_the_catalogs_price_does_not_hold_here(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "providers: {openai: {base_url: 'http://127.0.0.1:9/', api_key: env:HOME}}\n"
        "models: {chat: openai/gpt-5}\n",
        encoding="utf-8",
    )
    told = run("check", "--config", config)
    assert "its provider is on this machine" in told.stdout
    assert "price: {input: 0, output: 0}" in told.stdout
    assert "litellm" not in told.stdout
    assert "base_url has no path" in told.stdout and "write http://127.0.0.1:9/v1" in told.stdout


def test_check_tells_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        """
providers:
  opnai: env:HOME
  openai: env:NO_SUCH_KEY
  groq: {kind: groqq}
  four: {conections: 4}
models:
  4: openai/gpt-5
  chat: openai/gpt-5
  best: {targets: openai/gpt-5, fallbacks: [chta]}
timeouts: {total_s: 5m}
access: {keys: {ann: {key: env:NONE}}}
guardrails: {words: {kind: regex, patterns: ['(']}}
""",
        encoding="utf-8",
    )
    told = run("check", "--config", config, "--json")
    errors = json.loads(told.stdout)["errors"]
    for one in (
        "providers.opnai: base_url is missing: write the URL at which its API begins; "
        "did you mean 'openai'",
        "providers.openai: the environment has no NO_SUCH_KEY",
        "providers.groq: kind 'groqq' is not in the catalog; did you mean 'groq'?",
        ":6: providers.four.conections: unknown name",
        ":8: models.4: 4: text is expected; quote it: '4'",
        ":10: models.best.fallbacks: 'chta' is not a model of this file; did you mean 'chat'?",
        ":11: timeouts.total_s: '5m'",
        "access.keys.ann",
        "guardrails.words",
    ):
        assert sum(one in error for error in errors) == 1, (one, errors)
    assert len(errors) == 9
    told = run("check", "--config", config)
    assert told.stderr.count("not valid: ") == 9


def test_check_of_no_file(tmp_path: Path) -> None:
    told = run("check", "--config", tmp_path / "absent.yaml")
    assert told.exit_code == 1 and "absent.yaml: there is no such file" in told.stderr
    begin = "\n".join(re.findall(r"`(\w+: {.*?})`", told.stderr))
    (tmp_path / "gateway.yaml").write_text(begin)
    env = {"OPENAI_API_KEY": "sk-0"}
    told = run("check", "--config", tmp_path / "gateway.yaml", env=env)
    assert told.stdout == "valid: 0 models, 1 provider\n"


def test_only_a_base_url_that_may_lack_v1_is_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        """
providers:
  azure: {base_url: 'https://a.openai.azure.com', api_version: '2024-10-21', api_key: env:HOME}
  newer: {kind: azure, base_url: 'https://b.openai.azure.com', api_key: env:HOME}
  claude: {kind: anthropic, base_url: 'https://c.example', api_key: env:HOME}
  deepseek: env:HOME
  perplexity: env:HOME
  own: {base_url: 'https://d.example', dialect: openai-chat, api_key: env:HOME}
""",
        encoding="utf-8",
    )
    told = run("check", "--config", config, "--json")
    warnings = [one for one in json.loads(told.stdout)["warnings"] if "no path" in one]
    assert len(warnings) == 1 and warnings[0].startswith("providers.own: "), warnings


def test_targets_of_a_model_that_support_different_parameters_are_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    text = """
providers: {openai: env:HOME, anthropic: env:HOME}
models:
  mixed: [openai/gpt-5, anthropic/claude-sonnet-4-5]
  alike: [openai/gpt-5, openai/gpt-5-mini]
  one: anthropic/claude-sonnet-4-5
"""
    config.write_text(text, encoding="utf-8")

    def warned() -> list[str]:
        told = run("check", "--config", config, "--json")
        found: list[str] = json.loads(told.stdout)["warnings"]
        return [warning for warning in found if "same parameters" in warning]

    (warning,) = warned()
    assert warning == (
        "models.mixed: its targets do not support the same parameters: openai/gpt-5 is tried "
        "after the others for top_k; anthropic/claude-sonnet-4-5 is skipped for n, logit_bias, "
        "logprobs and is tried after the others for seed, frequency_penalty, presence_penalty, "
        "metadata"
    )
    config.write_text(f"{text}unsupported: refuse\n", encoding="utf-8")
    assert "tried after" not in warned()[0]
    config.write_text(f"{text}unsupported: drop\n", encoding="utf-8")
    assert warned() == []


def test_a_server_whose_cache_is_not_kept_apart_is_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        """
providers:
  own: {base_url: 'http://127.0.0.1:9/v1', dialect: openai-chat}
  named: {base_url: 'http://127.0.0.1:9/v1', dialect: openai-chat, prompt_cache_field: none}
  known: {base_url: 'http://127.0.0.1:9/v1', kind: vllm-server}
  claude: {kind: anthropic, api_key: env:HOME}
access: {keys: {ann: {key: 0123456789abcdef0123456789abcdef}}}
"""
    )
    told = run("check", "--config", config).stdout
    assert told.count("keys are not kept apart") == 1 and "warning: providers.own: only" in told
    for other in ("prompt_cache: {scope: all}", "access: {require_key: false}"):
        text = config.read_text()
        if "access" in other:
            text = "\n".join(line for line in text.splitlines() if "access" not in line)
        wide = tmp_path / "wide.yaml"
        wide.write_text(f"{text}\n{other}\n")
        assert "kept apart" not in run("check", "--config", wide).stdout


def test_keys_that_can_be_guessed_are_named(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        """
providers: {own: {base_url: 'http://127.0.0.1:9/v1', kind: vllm-server}}
access: {master_key: env:MASTER, keys: {ann: {key: env:ANN}}}
listen: {host: 127.0.0.1}
"""
    )
    long = "0123456789abcdef"
    told = run("check", "--config", config, env={"MASTER": "m", "ANN": "ann-1"})
    assert told.exit_code == 0
    for short in ("access.master_key is too short (1 of", "access.keys.ann.key is too short (5 of"):
        assert f"warning: {short} 16 characters) and can be guessed" in told.stdout
    told = run("check", "--config", config, env={"MASTER": long, "ANN": long})
    assert "guessed" not in told.stdout
    config.write_text(config.read_text().replace("127.0.0.1}", "0.0.0.0}"))
    told = run("check", "--config", config, env={"MASTER": "m", "ANN": long})
    assert told.exit_code == 1 and "access.master_key is too short (1 of 16" in told.stderr
