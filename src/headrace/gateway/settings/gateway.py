"""The whole of the file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.gateway.settings.access import AccessSettings
from headrace.gateway.settings.cache import CacheSettings
from headrace.gateway.settings.ledger import LedgerSettings
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.settings.provider import ProviderSettings
from headrace.gateway.settings.reliability import BreakerSettings, RetrySettings, TimeoutSettings
from headrace.gateway.settings.telemetry import LogSettings, TracingSettings


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where clients come to, and how much they may send."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    ] = 4000
    max_body_bytes: Annotated[
        int, Meta(ge=1024, description="Largest body of a request; beyond it is a 413.")
    ] = 32 * 2**20
    max_reply_bytes: Annotated[
        int, Meta(ge=1024, description="Largest reply of a provider without a stream.")
    ] = 64 * 2**20


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """providers: by name. models: by the name clients ask for. aliases: other names of models."""

    listen: ListenSettings = ListenSettings()
    access: AccessSettings = AccessSettings()
    providers: Annotated[
        dict[str, ProviderSettings],
        Meta(
            description="Where models are served. `NAME: env:KEY` and `NAME: https://...` are "
            "short forms."
        ),
    ] = msgspec.field(default_factory=dict)
    models: Annotated[
        dict[str, ModelSettings],
        Meta(description="What clients ask for. `NAME: [provider/model, ...]` is a short form."),
    ] = msgspec.field(default_factory=dict)
    aliases: Annotated[dict[str, str], Meta(description="Other names of models.")] = msgspec.field(
        default_factory=dict
    )
    pass_unknown_models: Annotated[
        bool,
        Meta(
            description="Whether `provider/model` reaches a provider of this file though no model "
            "names it."
        ),
    ] = True
    drop_unsupported: Annotated[
        bool,
        Meta(
            description="Whether a parameter that a target cannot honour is left out and named in "
            "X-Ignored-Params; otherwise such targets are passed by."
        ),
    ] = False
    timeouts: TimeoutSettings = TimeoutSettings()
    retries: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    cache: CacheSettings = CacheSettings()
    ledger: LedgerSettings = LedgerSettings()
    catalog: Annotated[tuple[str, ...], Meta(description="Files of own prices and providers.")] = ()
