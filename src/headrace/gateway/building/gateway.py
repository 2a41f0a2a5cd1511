"""All of a gateway, made from its settings: what the listener is given."""

from __future__ import annotations

import datetime as dt
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from headrace.catalog import Catalog
from headrace.gateway.access import Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.app import ChatPath, GatewayApp
from headrace.gateway.building.cache import cache_of
from headrace.gateway.building.dialects import client_sides
from headrace.gateway.building.own_bodies import counted_tokens, loaded_model, ollama_at
from headrace.gateway.building.providers import provider_of
from headrace.gateway.building.routes import Targets, routes_of, unknown_routes
from headrace.gateway.embedding_posts import EmbeddingPost
from headrace.gateway.own_answers import OwnAnswers
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.serving.embed import EmbeddingClient
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.serve import Serving
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import Sources, read_secret
from headrace.gateway.targets.provider import Provider
from headrace.gateway.telemetry.names import Names
from headrace.gateway.telemetry.standing import Standing, standing
from headrace.gateway.telemetry.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class Gateway:
    """close: ends connections to providers; after the app has ended. take_over: the telemetry it
    was given tells of this gateway from now on."""

    settings: GatewaySettings
    app: GatewayApp
    serving: Serving
    router: Router
    access: Access
    providers: Mapping[str, Provider]
    take_over: Callable[[], None]

    def close(self) -> None:
        """End connections at rest, and let go of the cache."""
        if self.serving.cache is not None:
            self.serving.cache.close()
        for provider in self.providers.values():
            provider.pool.close()


def providers_of(
    settings: GatewaySettings, catalog: Catalog, sources: Sources
) -> dict[str, Provider]:
    """By name. Raises ConfigError."""
    every = settings.providers.items()
    # Reading the authorities takes 20 ms, so it is done once and only where somebody needs them.
    plain = all((one.base_url or "").startswith("http://") for _, one in every)
    tls = None if plain else ssl.create_default_context()
    return {
        name: provider_of(name, one, catalog, settings.timeouts, sources, tls)
        for name, one in every
    }


def gateway_of(
    settings: GatewaySettings,
    catalog: Catalog,
    sources: Sources,
    *,
    accounts: Accounts | None,
    on_entry: Callable[[Entry], None],
    clock_ns: Callable[[], int],
    wall_s: Callable[[], float],
    source: random.Random,
    new_id: Callable[[], str],
    parts: Mapping[str, Callable[[], object]] | None = None,
    telemetry: Telemetry | None = None,
) -> Gateway:
    """parts: what /health tells of others, by name. telemetry: what counts on from a configuration
    to the next.

    Raises ConfigError for what cannot be made; nothing is connected to yet.
    """
    providers = providers_of(settings, catalog, sources)
    today = dt.datetime.fromtimestamp(wall_s(), dt.UTC).date()
    targets = Targets(settings, providers, catalog, today)
    router = Router(
        routes_of(settings, targets),
        settings.aliases,
        Sticky(),
        source,
        unknown=unknown_routes(settings, targets, providers),
    )
    master = settings.access.master_key
    access = Access(
        accounts if settings.access.require_key else None,
        None if master is None else read_secret(master, sources),
    )
    told = telemetry or Telemetry()

    def take(entry: Entry) -> None:
        told.take(entry)
        on_entry(entry)

    def stands() -> Standing:
        return standing(router, providers, serving.accounts, clock_ns() * 1e-9)

    serving = Serving(
        router=router,
        accounts=accounts if settings.access.require_key else None,
        drop_unsupported=settings.drop_unsupported,
        most_reply_bytes=settings.listen.max_reply_bytes,
        clock_ns=clock_ns,
        wall_s=wall_s,
        source=source,
        on_entry=take,
        cache=cache_of(settings.cache, sources.folder, wall_s),
        tracing=told.tracing(settings.tracing.endpoint, settings.tracing.pass_on),
    )
    own = OwnAnswers(settings, router, access, wall_s, parts or {}, stands, told.metrics)
    sides = client_sides()
    chats = {
        "/v1/chat/completions": ChatPath(sides["openai-chat"]),
        "/api/v1/chat/completions": ChatPath(sides["openai-chat"]),
        "/v1/responses": ChatPath(sides["openai-responses"]),
        "/api/v1/responses": ChatPath(sides["openai-responses"]),
        "/v1/messages": ChatPath(sides["anthropic"]),
        "/v1/messages/count_tokens": ChatPath(sides["anthropic"], own=counted_tokens),
        "/api/chat": ChatPath(
            sides["ollama"], stream_default=True, side_at=ollama_at, own=loaded_model
        ),
    }
    embeddings = EmbeddingPost(
        serving, access, sides["openai-chat"], cast("EmbeddingClient", sides["openai-chat"])
    )
    posts = {
        "/v1/embeddings": embeddings,
        "/api/v1/embeddings": embeddings,
        "/api/embed": EmbeddingPost(
            serving, access, sides["ollama"], cast("EmbeddingClient", sides["ollama"])
        ),
    }
    app = GatewayApp(
        serving, access, chats, own.by_path(), posts, told, new_id=new_id,
        most_body_bytes=settings.listen.max_body_bytes,
    )  # fmt: skip
    names = Names(router.routes, settings.aliases, providers)

    def take_over() -> None:
        told.shows(names, stands, serving.tracing)

    if telemetry is None:
        take_over()
    return Gateway(
        settings=settings, app=app, serving=serving, router=router, access=access,
        providers=providers, take_over=take_over,
    )  # fmt: skip
