"""The whole of the file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.config.server_settings import AllowedHost
from headrace.gateway.settings.access import AccessSettings
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.alerts import AlertSettings
from headrace.gateway.settings.cache import CacheSettings, PromptCacheSettings
from headrace.gateway.settings.free_tier import FreeTierSettings
from headrace.gateway.settings.guards import GuardrailSettings
from headrace.gateway.settings.ledger import LedgerSettings
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.settings.prompts import PromptSettings
from headrace.gateway.settings.provider import ProviderSettings, Text
from headrace.gateway.settings.queue import QueueSettings
from headrace.gateway.settings.reliability import (
    BreakerSettings,
    ErrorSettings,
    RetrySettings,
    TimeoutSettings,
    Unsupported,
)
from headrace.gateway.settings.request_log import RequestLogSettings
from headrace.gateway.settings.telemetry import LogSettings, TracingSettings


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address the gateway listens on, and how much clients may send."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    ] = 4000
    allowed_hosts: Annotated[
        tuple[AllowedHost, ...],
        Meta(
            description="Names beside localhost and IP addresses that requests may have in `Host`; "
            "`*.name` for all below a name, `*` for any. Others get a 403. Default: none if `host` "
            "is loopback, else any. Read only at start."
        ),
    ] = ()
    workers: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Processes that serve the port, sharing limits, ledger and metrics. Read "
            "only "
            "at start.",
        ),
    ] = 1
    trusted_proxies: Annotated[
        tuple[Text, ...],
        Meta(
            description="Addresses and networks (10.0.0.0/8) of proxies in front, whose "
            "X-Forwarded-For "
            "is trusted."
        ),
    ] = ()
    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Largest request body; a larger one gets a 413.")
    ] = 32 * 2**20
    max_bodies_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Total size of bodies of 64 KiB and more, unfinished ones too, that a "
            "process "
            "holds; beyond it requests get a 503 with Retry-After. One body alone is always "
            "accepted, and with several keys each has at most half of it. Bodies take about "
            "three times this much memory.",
        ),
    ] = 2**28
    max_reply_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Largest reply of a provider; a stream may have 4 KiB for each token that "
            "its request allows, if that is more.",
        ),
    ] = 64 * 2**20


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's file: providers and models by name, and the settings that apply to all of "
    "them."""

    listen: ListenSettings = ListenSettings()
    access: AccessSettings = AccessSettings()
    providers: Annotated[
        dict[str, ProviderSettings],
        Meta(
            description="Where models are served. `NAME: env:KEY` and `NAME: https://...` are "
            "short "
            "forms."
        ),
    ] = msgspec.field(default_factory=dict)
    models: Annotated[
        dict[str, ModelSettings],
        Meta(
            description="Models that clients may request. `NAME: [provider/model, ...]` is a "
            "short form."
        ),
    ] = msgspec.field(default_factory=dict)
    aliases: Annotated[dict[str, str], Meta(description="Other names of models.")] = msgspec.field(
        default_factory=dict
    )
    pass_unknown_models: Annotated[
        bool,
        Meta(
            description="Whether `provider/model` reaches a provider of this file even if no model "
            "names it."
        ),
    ] = True
    unsupported: Annotated[
        Unsupported,
        Meta(
            description="What becomes of parameters that a target does not support. `drop_hints`: "
            "hints (`seed`, `user`) are dropped and named in X-Ignored-Params; for others (`n`, a "
            "response schema) the target is skipped. `drop`: all are dropped and named. `refuse`: "
            "the target is skipped for any."
        ),
        formerly("drop_unsupported"),
    ] = "drop_hints"
    free_tier: Annotated[
        FreeTierSettings | None,
        Meta(description="Rate limits for models that cost nothing; none if omitted."),
    ] = None
    queue: Annotated[
        QueueSettings | None,
        Meta(
            description="The queue in which requests wait for targets with `max_in_flight` instead "
            "of being refused; none if omitted."
        ),
    ] = None
    timeouts: TimeoutSettings = TimeoutSettings()
    retries: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    errors: ErrorSettings = ErrorSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    alerts: Annotated[
        AlertSettings | None,
        Meta(description="Where alerts are sent; nowhere if omitted."),
    ] = None
    cache: CacheSettings = CacheSettings()
    prompt_cache: PromptCacheSettings = PromptCacheSettings()
    guardrails: Annotated[
        dict[str, GuardrailSettings],
        Meta(description="Checks of requests and answers, by name, in this order."),
    ] = msgspec.field(default_factory=dict)
    prompts: Annotated[
        dict[str, PromptSettings],
        Meta(description="Templates that requests name, with versions and labels."),
    ] = msgspec.field(default_factory=dict)
    prompts_folder: Annotated[
        str | None,
        Meta(description="A folder with more of them: NAME.yaml has what `prompts.NAME` has."),
    ] = None
    ledger: LedgerSettings = LedgerSettings()
    request_log: RequestLogSettings = RequestLogSettings()
    admin: Annotated[
        AdminSettings | None, Meta(description="The admin API and page; none if omitted.")
    ] = None
    catalog: Annotated[
        tuple[str, ...],
        Meta(
            description="Folders with files of your own prices and providers, beside "
            "`~/.config/headrace/catalog`, which `headrace catalog import` writes to by "
            "default; with `--output FOLDER/NAME.toml` it writes here."
        ),
    ] = ()
