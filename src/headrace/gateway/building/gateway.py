"""All of a gateway, made from its settings: what the listener is given."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.gateway.access import Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.app import ChatPath, GatewayApp
from headrace.gateway.building.dialects import client_sides
from headrace.gateway.building.providers import provider_of
from headrace.gateway.building.routes import Targets, routes_of, unknown_routes
from headrace.gateway.own_answers import OwnAnswers
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.serve import Serving
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import Sources, read_secret
from headrace.gateway.targets.provider import Provider


@dataclass(frozen=True, kw_only=True, slots=True)
class Gateway:
    """close: ends connections to providers; after the app has ended."""

    settings: GatewaySettings
    app: GatewayApp
    serving: Serving
    router: Router
    access: Access
    providers: Mapping[str, Provider]

    def close(self) -> None:
        """End connections at rest."""
        for provider in self.providers.values():
            provider.pool.close()


def providers_of(
    settings: GatewaySettings, catalog: Catalog, sources: Sources
) -> dict[str, Provider]:
    """By name. Raises ConfigError."""
    return {
        name: provider_of(name, one, catalog, settings.timeouts, sources, None)
        for name, one in settings.providers.items()
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
) -> Gateway:
    """Raises ConfigError for what cannot be made; nothing is connected to yet."""
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
    serving = Serving(
        router=router,
        accounts=accounts if settings.access.require_key else None,
        drop_unsupported=settings.drop_unsupported,
        most_reply_bytes=settings.listen.max_reply_bytes,
        clock_ns=clock_ns,
        wall_s=wall_s,
        source=source,
        on_entry=on_entry,
    )
    own = OwnAnswers(settings, router, access, wall_s)
    sides = client_sides()
    chats = {
        "/v1/chat/completions": ChatPath(sides["openai-chat"]),
        "/api/v1/chat/completions": ChatPath(sides["openai-chat"]),
        "/v1/responses": ChatPath(sides["openai-responses"]),
        "/api/v1/responses": ChatPath(sides["openai-responses"]),
        "/v1/messages": ChatPath(sides["anthropic"]),
        "/api/chat": ChatPath(sides["ollama"], stream_default=True),
    }
    app = GatewayApp(
        serving, access, chats, own.by_path(), new_id=new_id,
        most_body_bytes=settings.listen.max_body_bytes,
    )  # fmt: skip
    return Gateway(
        settings=settings, app=app, serving=serving, router=router, access=access,
        providers=providers,
    )  # fmt: skip
