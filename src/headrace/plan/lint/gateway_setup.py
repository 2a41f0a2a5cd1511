"""A gateway's config in LiteLLM's YAML: deployments, retries, timeouts, fallbacks.

Fields: docs.litellm.ai, "Proxy config" and "Router settings" (model_list, litellm_params,
router_settings, litellm_settings). Other fields are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError, shown
from headrace.plan.lint.setting import Setting


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One entry of model_list. group: name that clients use. model: as the provider calls it,
    without the provider's prefix."""

    group: str
    provider: str
    model: str
    where: str
    timeout_s: Setting[float] | None = None
    retries: Setting[int] | None = None
    rpm: Setting[int] | None = None
    parallel: Setting[int] | None = None


@dataclass(frozen=True, kw_only=True)
class GatewaySetup:
    """The settings of a gateway's config; None: not stated."""

    where: str
    deployments: tuple[Deployment, ...]
    retries: Setting[int] | None = None
    timeout_s: Setting[float] | None = None
    allowed_fails: Setting[int] | None = None
    cooldown_s: Setting[float] | None = None
    cooldowns_off: Setting[bool] | None = None
    retry_after_s: Setting[float] | None = None
    parallel: Setting[int] | None = None
    fallbacks: Mapping[str, tuple[str, ...]]
    """Groups that a failed request of a group goes to, in order."""
    fallbacks_where: str = ""


def gateway_setup(loaded: Mapping[str, Any], lines: Mapping[str, int], name: str) -> GatewaySetup:
    """lines: of each path ("router_settings.timeout", "model_list.0") in the file. Raises
    ConfigError naming the path."""

    def place(path: str) -> str:
        return f"{name}:{lines[path]}" if path in lines else name

    def one(path: str, number: type) -> Setting[Any] | None:
        value: Any = loaded
        for part in path.split("."):
            if isinstance(value, list):
                value = value[int(part)] if part.isdigit() else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return None
        if isinstance(value, str) and value.startswith("os.environ/"):
            return None
        try:
            kept = value if number is bool else number(value)
        except (TypeError, ValueError):
            raise ConfigError(
                f"{place(path)}: {path} is {shown(value)}; it must be a number: correct it"
            ) from None
        if number is not bool and kept < 0:
            raise ConfigError(f"{place(path)}: {path} is {shown(value)}; it cannot be below 0")
        return Setting(kept, path, place(path))

    def first(*paths: tuple[str, type]) -> Setting[Any] | None:
        return next((found for path, kind in paths if (found := one(path, kind))), None)

    for section in ("router_settings", "litellm_settings", "general_settings"):
        if not isinstance(loaded.get(section) or {}, dict):
            raise ConfigError(
                f"{place(section)}: {section} is not a mapping of `name: value` lines"
            )
    listed = loaded.get("model_list")
    if not isinstance(listed, list):
        raise ConfigError(f"{place('model_list')}: model_list must be a list of deployments")
    deployments = []
    for at, entry in enumerate(listed):
        where = f"model_list.{at}"
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not isinstance(params.get("model"), str):
            raise ConfigError(f"{place(where)}: {where} has no litellm_params.model; add it")
        provider, slash, model = params["model"].partition("/")
        deployments.append(
            Deployment(
                group=str(entry.get("model_name", params["model"])),
                provider=provider if slash else "",
                model=model if slash else provider,
                where=place(f"{where}.litellm_params.model"),
                timeout_s=one(f"{where}.litellm_params.timeout", float),
                retries=first((f"{where}.litellm_params.num_retries", int),
                              (f"{where}.litellm_params.max_retries", int)),
                rpm=one(f"{where}.litellm_params.rpm", int),
                parallel=one(f"{where}.litellm_params.max_parallel_requests", int),
            )
        )  # fmt: skip
    fallbacks: dict[str, tuple[str, ...]] = {}
    fallbacks_where = ""
    for path in ("router_settings", "litellm_settings"):
        for entry in (loaded.get(path) or {}).get("fallbacks") or ():
            fallbacks_where = place(f"{path}.fallbacks")
            if not isinstance(entry, dict):
                raise ConfigError(f"{fallbacks_where}: a fallback is `group: [groups]`")
            for group, others in entry.items():
                fallbacks[str(group)] = tuple(str(other) for other in others or ())
    return GatewaySetup(
        where=name,
        deployments=tuple(deployments),
        retries=first(("router_settings.num_retries", int), ("litellm_settings.num_retries", int)),
        timeout_s=first(("router_settings.timeout", float),
                        ("litellm_settings.request_timeout", float)),
        allowed_fails=first(("router_settings.allowed_fails", int),
                            ("litellm_settings.allowed_fails", int)),
        cooldown_s=first(("router_settings.cooldown_time", float),
                         ("litellm_settings.cooldown_time", float)),
        cooldowns_off=one("router_settings.disable_cooldowns", bool),
        retry_after_s=one("router_settings.retry_after", float),
        parallel=first(("general_settings.max_parallel_requests", int),
                       ("general_settings.global_max_parallel_requests", int),
                       ("litellm_settings.max_parallel_requests", int),
                       ("router_settings.default_max_parallel_requests", int)),
        fallbacks=fallbacks,
        fallbacks_where=fallbacks_where,
    )  # fmt: skip
