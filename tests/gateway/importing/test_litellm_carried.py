"""What LiteLLM's settings come to here: fallbacks that are reached, and no setting lost unsaid."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.importing.litellm import import_litellm
from headrace.gateway.settings.read import parse_settings
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, body_of, fails
from tests.gateway.upstream.scripted import served

HI = [{"role": "user", "content": "hi"}]


def deployment(name: str, **more: Any) -> dict[str, Any]:
    params = {"model": f"openai/{name}-model", "api_key": "k", **more.pop("params", {})}
    return {"model_name": name, "litellm_params": params, **more}


@pytest.mark.parametrize("num_retries", [0, 1, 2, 12])
async def test_a_fallback_is_asked_whatever_the_retries(num_retries: int) -> None:
    fail, answer = fails(500, "boom"), answers()
    asked: list[str] = []

    async def told(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        model = body_of(request)["model"]
        asked.append(model)
        await (answer if model == "backup-model" else fail)(number, request, writer)

    async with served(told) as provider:
        address = {"params": {"api_base": f"{provider.origin}/v1"}}
        names = ("main", "backup", "alone")
        found = import_litellm(
            {
                "model_list": [deployment(name, **address) for name in names],
                "router_settings": {
                    "num_retries": num_retries,
                    "fallbacks": [{"main": ["backup"]}],
                },
            }
        )
        waits = {"backoff_s": 0.001, "backoff_max_s": 0.001}
        settings = found.settings | {"breaker": {"min_attempts": 100}}
        settings["retries"] = {**settings["retries"], **waits}
        built = gateway(settings, [])
        assert (await ask(built.app, {"model": "main", "messages": HI})).status == 200
        assert asked == ["main-model", "backup-model"]
        assert (await ask(built.app, {"model": "alone", "messages": HI})).status == 502
        built.close()
    assert asked.count("alone-model") == min(num_retries + 1, 10)
    assert ("num_retries: 12 became 10 attempts" in "".join(found.notes)) == (num_retries == 12)


def test_fallbacks_go_before_retries_where_there_are_too_few_attempts() -> None:
    found = import_litellm(
        {
            "model_list": [deployment(name) for name in "abcdefg"],
            "router_settings": {"num_retries": 5, "fallbacks": [{"a": list("bcdefg")}]},
            "litellm_settings": {"num_retries": 1},
        }
    )
    assert found.settings["retries"] == {"same_target": 2, "attempts": 14}
    assert "num_retries: 5 became 2 attempts at a target" in "".join(found.notes)


@pytest.mark.parametrize("wrong", ["x", math.inf, math.nan])
def test_retries_that_are_no_number_are_told(wrong: object) -> None:
    with pytest.raises(
        ConfigError, match=rf"router_settings\.num_retries: '?{wrong}'?: expected a number"
    ):
        import_litellm({"model_list": [], "router_settings": {"num_retries": wrong}})


def test_a_price_beyond_all_numbers_is_told() -> None:
    dear = deployment("a", params={"input_cost_per_token": 10**400})
    with pytest.raises(ConfigError, match=r"model_list\.0 \(a\)\.input_cost_per_token: 1000"):
        import_litellm({"model_list": [dear]})


@pytest.mark.parametrize(
    "redis",
    [
        {"redis_host": "os.environ/REDIS_HOST", "redis_port": 6379},
        {"redis_host": "cache", "redis_port": "os.environ/REDIS_PORT"},
        {"redis_host": "cache", "redis_password": "hunter2"},
        {"redis_url": "redis://:os.environ/REDIS_PASSWORD@cache:6379"},
    ],
)
def test_a_redis_that_is_partly_a_variable_is_told(redis: dict[str, Any]) -> None:
    found = import_litellm({"model_list": [deployment("a")], "router_settings": redis})
    assert "redis" not in found.settings["access"]
    assert "write access.redis: env:NAME" in "".join(found.notes)
    assert "hunter2" not in "".join(found.notes)


def test_a_redis_that_is_a_variable_as_a_whole_carries_over() -> None:
    redis = {"redis_url": "os.environ/REDIS_URL"}
    found = import_litellm({"model_list": [deployment("a")], "router_settings": redis})
    assert found.settings["access"]["redis"] == "os.environ/REDIS_URL" and not found.notes


def test_what_a_deployment_says_besides_is_told() -> None:
    info = {"id": "1", "mode": "chat", "access_groups": ["beta"], "supports_vision": True}
    found = import_litellm(
        {
            "model_list": [
                deployment("a", params={"stream_timeout": 7}, model_info=info, tags=["x"]),
                deployment("whisper", model_info={"mode": "audio_transcription"}),
            ],
            "router_settings": {"retry_after": 3},
        }
    )
    told = "\n".join(found.notes)
    for one in ("litellm_params.stream_timeout", "model_info.access_groups",
                "model_info.supports_vision", "(a).tags", "mode audio_transcription are not served",
                "router_settings.retry_after"):  # fmt: skip
        assert one in told, one
    assert "model_info.id" not in told and "model_info.mode" not in told
    assert list(found.settings["models"]) == ["a"]
    parse_settings(Document(found.settings, {}), "gateway.yaml")


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        ("cohere/rerank-english-v3.0", "rerank"),
        ("openai/dall-e-3", "image_generation"),
        ("openai/gpt-image-1", "image_generation"),
        ("openai/whisper-1", "audio_transcription"),
        ("openai/gpt-4o-mini-tts", "audio_speech"),
        ("openai/omni-moderation-latest", "moderation"),
        ("openai/sora-2", "video_generation"),
        ("openai/gpt-realtime-mini", "realtime"),
        ("azure/gpt-4o-realtime-preview-2024-12-17", "realtime"),
        ("mistral/mistral-ocr-latest", "ocr"),
        ("nvidia_nim/nvidia/nv-rerankqa-mistral-4b-v3", "rerank"),
        ("bedrock/stability.sd3-5-large-v1:0", "image_generation"),
        ("bedrock/stability.stable-image-core-v1:1", "image_generation"),
        ("vertex_ai/imagegeneration@006", "image_generation"),
    ],
)
def test_models_that_do_not_answer_are_known_by_name_where_no_mode_says_so(
    model: str, mode: str
) -> None:
    entry = deployment("a")
    other = {"model_name": "b", "litellm_params": {**entry["litellm_params"], "model": model}}
    found = import_litellm({"model_list": [entry, other]})
    assert list(found.settings["models"]) == ["a"]
    assert f"model_list.1 (b): models of mode {mode} are not served here" in found.notes[0]


@pytest.mark.parametrize("model", ["openai/gpt-4o-audio-preview", "openai/whisperer", "a/fluxion"])
def test_models_that_answer_are_imported_whatever_their_name_resembles(model: str) -> None:
    entry = {"model_name": "b", "litellm_params": {"model": model, "api_base": "http://a/v1"}}
    assert list(import_litellm({"model_list": [entry]}).settings["models"]) == ["b"]
