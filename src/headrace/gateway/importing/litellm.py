"""LiteLLM's proxy config, as a gateway.yaml that does the same, and what of it does not carry over.

Words: docs.litellm.ai, "Proxy config" (model_list, litellm_params), "Router settings" and
"All settings". What is not known here is told, never left out in silence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.errors import ConfigError, shown
from headrace.gateway.importing import litellm_cache
from headrace.gateway.importing.litellm_credentials import CARRIED, credentials_of
from headrace.gateway.importing.litellm_info import info_of, left_out, unserved
from headrace.gateway.importing.litellm_redis import redis_url
from headrace.gateway.importing.litellm_retries import retries_of

# LiteLLM's prefix of a model -> kind of ours. Others are taken as they are, where the catalog has
# a provider of that name.
_KINDS = {
    "openai": "openai",
    "text-completion-openai": "openai",
    "azure": "azure-openai",
    "azure_ai": "azure-foundry",
    "anthropic": "anthropic",
    "gemini": "google",
    "vertex_ai": "google-vertex",
    "vertex_ai_beta": "google-vertex",
    "bedrock": "aws-bedrock",
    "bedrock_converse": "aws-bedrock",
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "mistral": "mistral",
    "groq": "groq",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "deepseek": "deepseek",
    "deepinfra": "deepinfra",
    "openrouter": "openrouter",
    "xai": "xai",
    "perplexity": "perplexity",
    "cerebras": "cerebras",
    "sambanova": "sambanova",
    "nvidia_nim": "nvidia-api",
    "huggingface": "huggingface-inference",
    "databricks": "databricks",
    "moonshot": "moonshot",
    "dashscope": "alibaba",
    "minimax": "minimax",
    "novita": "novita",
    "nebius": "nebius",
    "hyperbolic": "hyperbolic",
    "github": "github-models",
    "ollama": "ollama-server",
    "ollama_chat": "ollama-server",
    "hosted_vllm": "vllm-server",
    "vllm": "vllm-server",
    "lm_studio": "lm-studio-server",
    "llamafile": "llamafile",
    "litellm_proxy": "litellm",
    "ai21": "ai21",
    "aiml": "aiml-api",
    "siliconflow": "siliconflow",
    "cloudflare": "cloudflare",
    "baseten": "baseten",
    "zai": "zai",
}
# Models without a prefix are told by LiteLLM by their names.
_BY_NAME = (
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("chatgpt-", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "gemini"),
    ("command-", "cohere"),
    ("mistral-", "mistral"),
)
_STRATEGIES = {
    "simple-shuffle": "weighted",
    "least-busy": "least_busy",
    "latency-based-routing": "latency",
    "cost-based-routing": "price",
    "usage-based-routing": "least_busy",
    "usage-based-routing-v2": "least_busy",
}
_ADDRESS = ("api_base", "base_url")
_PARAMETERS = {
    "model", "api_base", "base_url", "api_key", "api_version", "weight", "order",
    "max_parallel_requests", "timeout", "input_cost_per_token", "output_cost_per_token",
    "cache_read_input_token_cost", "cache_creation_input_token_cost", "aws_region_name",
    "region_name", "extra_headers", "organization", "mock_response", "rpm", "tpm",
    "stream_timeout", *CARRIED,
}  # fmt: skip
_FALLBACKS = (
    ("fallbacks", "fallbacks"),
    ("context_window_fallbacks", "context_fallbacks"),
    ("content_policy_fallbacks", "policy_fallbacks"),
)


class Imported(NamedTuple):
    """A converted configuration."""

    settings: dict[str, Any]
    """In the form of gateway.yaml."""
    notes: tuple[str, ...]
    """Settings that have no counterpart, or another meaning, here."""


def import_litellm(loaded: Any) -> Imported:
    """The converted settings of a parsed document. Raises ConfigError if it is not a LiteLLM
    config."""
    if not isinstance(loaded, dict) or not isinstance(loaded.get("model_list"), list):
        raise ConfigError(
            "model_list is missing: a LiteLLM proxy config lists its deployments there"
        )
    reader = _Reader()
    for at, entry in enumerate(loaded["model_list"]):
        reader.deployment(entry, _place(entry, at))
    reader.router(_section(loaded, "router_settings"))
    reader.library(_section(loaded, "litellm_settings"))
    reader.general(_section(loaded, "general_settings"))
    known = {"model_list", "router_settings", "litellm_settings", "general_settings"}
    for name in loaded:
        if name not in known:
            reader.notes.append(f"{name}: not carried over")
    settings = reader.settings()
    return Imported(settings, tuple(dict.fromkeys(reader.notes)))


def _place(entry: Any, at: int) -> str:
    """The place of an entry as people find it in their file: by the model's name, if it has one."""
    name = entry.get("model_name") if isinstance(entry, dict) else None
    return f"model_list.{at} ({name})" if isinstance(name, str) else f"model_list.{at}"


def _section(loaded: dict[str, Any], name: str) -> dict[str, Any]:
    found = loaded.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigError(f"{name} is {shown(found)}; expected `name: value` lines")
    return found


class _Reader:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self._providers: dict[str, dict[str, Any]] = {}
        self._models: dict[str, dict[str, Any]] = {}
        self._top: dict[str, Any] = {}
        self._num_retries: tuple[Any, str] | None = None

    def settings(self) -> dict[str, Any]:
        """The settings in reading order. Raises ConfigError."""
        if self._num_retries is not None:
            given, where = self._num_retries
            self._top["retries"], notes = retries_of(given, self._models, where)
            self.notes += notes
        return {"providers": self._providers, "models": self._models, **self._top}

    def deployment(self, entry: Any, where: str) -> None:
        """Convert one entry of model_list."""
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not isinstance(params.get("model"), str):
            raise ConfigError(f"{where}: litellm_params.model is missing")
        if "mock_response" in params:
            self.notes.append(f"{where}: a mock has no counterpart here; it was omitted")
            return
        info = info_of(entry)
        if why := unserved(info, params["model"], where):
            self.notes.append(why)
            return
        prefix, model = _parts(params["model"])
        target: dict[str, Any] = {"model": f"{self._provider(prefix, params, where)}/{model}"}
        for theirs, ours in (("weight", "weight"), ("order", "order"),
                             ("max_parallel_requests", "max_in_flight")):  # fmt: skip
            if params.get(theirs) is not None:
                target[ours] = params[theirs]
        if price := _price(params, info, where):
            target["price"] = price
        elif info.get("base_model"):
            self.notes.append(
                f"{where}.model_info.base_model: LiteLLM takes the price of "
                f"{info['base_model']}; here the price is that of the target's own name, or its "
                "`price` (headrace catalog list price)"
            )
        if params.get("timeout") is not None:
            target["timeouts"] = {"first_token_s": params["timeout"]}
        for name in ("rpm", "tpm"):
            if params.get(name) is not None:
                self.notes.append(
                    f"{where}.{name}: LiteLLM balances load by it; here strategies look at "
                    "running requests (max_in_flight), and limits belong to keys"
                )
        if params.get("stream_timeout") is not None:
            self.notes.append(
                f"{where}.litellm_params.stream_timeout: not carried over; here "
                "timeouts.first_token_s applies to answers with and without a stream"
            )
        self.notes += [f"{where}.litellm_params.{name}: not carried over"
                       for name in params if name not in _PARAMETERS]  # fmt: skip
        self.notes += left_out(entry, where)
        name = str(entry.get("model_name") or params["model"])
        if "*" in name:
            self.notes.append(
                f"{where}: a wildcard ({name}); `provider/model` reaches any model of a provider"
            )
            return
        self._models.setdefault(name, {"targets": []})["targets"].append(target)

    def _provider(self, prefix: str, params: dict[str, Any], where: str) -> str:
        """The name of the provider that has these credentials and this address."""
        kind = _KINDS.get(prefix, prefix)
        if kind == "google-vertex" and _parts(params["model"])[1].startswith("claude"):
            kind = "google-vertex-anthropic"
        found: dict[str, Any] = {}
        address = next((params[one] for one in _ADDRESS if params.get(one)), None)
        if address is not None:
            found["base_url"] = address
        if params.get("api_key"):
            found["api_key"] = [params["api_key"]]
        for name in ("api_version", "extra_headers"):
            if params.get(name):
                found[{"extra_headers": "headers"}.get(name, name)] = params[name]
        if organization := params.get("organization"):
            headers = found.get("headers") or {}
            found["headers"] = {**headers, "openai-organization": str(organization)}
        region = params.get("aws_region_name") or params.get("region_name")
        if region:
            found["region"] = region
        found |= credentials_of(params)
        if kind.startswith("google-vertex"):
            # Without a project it is the one that the machine's credentials name.
            found.setdefault("google", {"location": params.get("vertex_location") or "global"})
        base = kind
        number = 1
        while base in self._providers and self._same(base, kind, found) is False:
            number += 1
            base = f"{kind}-{number}"
        if base != kind:
            found["kind"] = kind
        self._providers[base] = found
        return base

    def _same(self, name: str, kind: str, wanted: dict[str, Any]) -> bool:
        there = {key: value for key, value in self._providers[name].items() if key != "kind"}
        return there == wanted

    def router(self, section: dict[str, Any]) -> None:
        """router_settings."""
        strategy = section.get("routing_strategy")
        if strategy is not None:
            ours = _STRATEGIES.get(str(strategy))
            if ours is None:
                self.notes.append(
                    f"router_settings.routing_strategy: {shown(strategy)} is unknown; "
                    "`weighted` was used"
                )
            elif str(strategy).startswith("usage"):
                self.notes.append("router_settings.routing_strategy: usage-based became least_busy")
            if ours not in (None, "weighted"):
                for model in self._models.values():
                    model["strategy"] = ours
        self._common(section, "router_settings")
        breaker = {}
        if section.get("cooldown_time") is not None:
            breaker["cooldown_s"] = section["cooldown_time"]
        if section.get("allowed_fails") is not None:
            self.notes.append(
                "router_settings.allowed_fails: here the share of failures in a window opens a "
                "breaker (breaker.share, breaker.least)"
            )
        if breaker:
            self._top["breaker"] = breaker
        aliases = section.get("model_group_alias")
        if isinstance(aliases, dict):
            self._top["aliases"] = {
                str(name): str(one.get("model") if isinstance(one, dict) else one)
                for name, one in aliases.items()
            }
        known = {
            "routing_strategy", "num_retries", "timeout", "cooldown_time", "allowed_fails",
            "model_group_alias", "redis_host", "redis_port", "redis_password",
            "redis_url", *(theirs for theirs, _ in _FALLBACKS),
        }  # fmt: skip
        self._redis(section, "router_settings")
        self._unknown(section, known, "router_settings")

    def library(self, section: dict[str, Any]) -> None:
        """litellm_settings."""
        if section.get("drop_params") is True:
            self._top["unsupported"] = "drop"
        self._common(section, "litellm_settings")
        if section.get("request_timeout") is not None:
            self._top.setdefault("timeouts", {})["total_s"] = section["request_timeout"]
        cache, notes = litellm_cache.cache_of(section)
        self.notes += notes
        if cache is not None:
            self._top["cache"] = cache
        known = {"drop_params", "num_retries", "request_timeout", "timeout",
                 *litellm_cache.NAMES, *(theirs for theirs, _ in _FALLBACKS)}  # fmt: skip
        self._unknown(section, known, "litellm_settings")

    def general(self, section: dict[str, Any]) -> None:
        """general_settings."""
        access: dict[str, Any] = self._top.setdefault("access", {})
        if section.get("master_key"):
            access["master_key"] = section["master_key"]
        else:
            access["require_key"] = False
        if section.get("database_url"):
            access["store"] = "gateway.db"
            self.notes.append(
                "general_settings.database_url: keys are kept in the file access.store; those "
                "of LiteLLM's database have to be made again (`headrace gateway keys create`)"
            )
        self._unknown(section, {"master_key", "database_url"}, "general_settings")

    def _common(self, section: dict[str, Any], where: str) -> None:
        if section.get("num_retries") is not None and self._num_retries is None:
            # The router's own goes before the library's.
            self._num_retries = section["num_retries"], where
        if section.get("timeout") is not None:
            self._top.setdefault("timeouts", {})["first_token_s"] = section["timeout"]
        for theirs, ours in _FALLBACKS:
            for one in section.get(theirs) or ():
                if not isinstance(one, dict):
                    raise ConfigError(
                        f"{where}.{theirs}: expected a fallback of the form `model: [models]`"
                    )
                for model, others in one.items():
                    if model not in self._models:
                        self.notes.append(f"{where}.{theirs}: {model} is not in model_list")
                        continue
                    found = self._models[model].setdefault(ours, [])
                    for other in others if isinstance(others, list) else [others]:
                        if other in self._models and other not in found and other != model:
                            found.append(other)
                        elif other not in self._models:
                            self.notes.append(f"{where}.{theirs}: {other} is not in model_list")

    def _redis(self, section: dict[str, Any], where: str) -> None:
        url, host = section.get("redis_url"), section.get("redis_host")
        if url is None and not host:
            return
        found = redis_url(url, host, section.get("redis_port"), section.get("redis_password"))
        if found is None:
            self.notes.append(f"{where}: put the whole URL of Redis, with its password, into the "
                              "environment and write access.redis: env:NAME")  # fmt: skip
            return
        self._top.setdefault("access", {})["redis"] = found

    def _unknown(self, section: dict[str, Any], known: set[str], where: str) -> None:
        self.notes += [f"{where}.{name}: not carried over" for name in section if name not in known]


def _parts(text: str) -> tuple[str, str]:
    """LiteLLM's prefix and the provider's own name of the model."""
    prefix, mark, model = text.partition("/")
    if mark:
        return prefix, model
    for start, name in _BY_NAME:
        if text.startswith(start):
            return name, text
    return "openai", text


def _price(params: dict[str, Any], info: dict[str, Any], where: str) -> dict[str, float]:
    """Theirs is per token, ours per million. Raises ConfigError."""
    found = {}
    for theirs, ours in (
        ("input_cost_per_token", "input"),
        ("output_cost_per_token", "output"),
        ("cache_read_input_token_cost", "cache_read"),
        ("cache_creation_input_token_cost", "cache_write"),
    ):
        value = params.get(theirs, info.get(theirs))
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found[ours] = round(value * 1e6, 9)
            except OverflowError:
                raise ConfigError(f"{where}.{theirs}: {shown(value)} is too large") from None
    return found if {"input", "output"} <= set(found) else {}
