"""All of a gateway, made from its settings: what the listener is given."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Catalog
from headrace.errors import ConfigError, config_error
from headrace.gateway.access import Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.app import GatewayApp
from headrace.gateway.building import switched_on
from headrace.gateway.building.callers import (
    access_of,
    addresses_of,
    counted_in,
    free_tier_of,
    stored_ids_of,
)
from headrace.gateway.building.paths import Paths, paths_of
from headrace.gateway.building.providers import provider_of
from headrace.gateway.building.request_logging import log_change_of, request_logging_of
from headrace.gateway.building.routes import Targets, routes_of, unknown_routes
from headrace.gateway.held_bodies import BodyBound, HeldBodies
from headrace.gateway.key_answer import PATHS as KEY_PATHS
from headrace.gateway.key_answer import KeyAnswer
from headrace.gateway.own_answers import Everywhere, OwnAnswers
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.routing.told_responses import ToldResponses
from headrace.gateway.routing.turns import Turns
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.serving import Serving
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import InTurn, OnRefused
from headrace.gateway.targets.health import OnBreaker
from headrace.gateway.targets.provider import Provider
from headrace.gateway.telemetry.names import Names
from headrace.gateway.telemetry.standing import Standing, standing
from headrace.gateway.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from headrace.gateway.engines.poller import EnginePollers
    from headrace.gateway.request_log.written_log import WrittenLog


@dataclass(frozen=True, kw_only=True, slots=True)
class Gateway:
    """A gateway made from settings.

    `close` ends connections to providers; call it after the app has ended.
    """

    settings: GatewaySettings
    app: GatewayApp
    paths: Paths
    serving: Serving
    router: Router
    access: Access
    providers: Mapping[str, Provider]
    take_over: Callable[[], None]
    """Makes the telemetry it was given report on this gateway from now on."""
    pollers: EnginePollers | None = None

    def start(self) -> None:
        """Start background tasks; call this in the serving loop."""
        if self.pollers is not None:
            self.pollers.start()

    @property
    def is_busy(self) -> bool:
        """Whether copies for a shadow are under way, or holds of the free tier are being ended."""
        shadows, free_tier = self.serving.shadows, self.serving.free_tier
        if free_tier is not None and free_tier.is_busy:
            return True
        return shadows is not None and shadows.under_way > 0

    async def drain(self, within_s: float) -> None:
        """Wait so long for what is done beside answers, and end the rest; before `close`."""
        if self.serving.shadows is not None:
            await self.serving.shadows.drain(within_s)
        if self.serving.free_tier is not None:
            await self.serving.free_tier.drain(within_s)
        for provider in self.providers.values():
            if provider.in_steps is not None:
                await provider.in_steps.drain(within_s)

    def close(self) -> None:
        """End connections at rest, and let go of the cache."""
        if self.pollers is not None:
            self.pollers.stop()
        if self.serving.cache is not None:
            self.serving.cache.close()
        if self.serving.guardrails is not None:
            self.serving.guardrails.close()
        for provider in self.providers.values():
            provider.pool.close()
            if provider.in_steps is not None:
                provider.in_steps.close()


def providers_of(
    settings: GatewaySettings, catalog: Catalog, sources: Sources
) -> dict[str, Provider]:
    """Providers by name. Raises ConfigError with all problems."""
    every = settings.providers.items()
    # Reading the authorities takes 20 ms, so it is done once and only where somebody needs them.
    plain = all((one.base_url or "").startswith("http://") for _, one in every)
    tls = None if plain else ssl.create_default_context()
    found: dict[str, Provider] = {}
    problems: list[str] = []
    scope = settings.prompt_cache.scope
    for name, one in every:
        try:
            found[name] = provider_of(name, one, catalog, settings.timeouts, sources, tls, scope)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise config_error(problems)
    return found


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
    everywhere: Everywhere | None = None,
    sticky: Sticky | None = None,
    told_responses: ToldResponses | None = None,
    held_bodies: HeldBodies | None = None,
    on_breaker: OnBreaker | None = None,
    on_refused: OnRefused | None = None,
    on_taken_out: Callable[[TakenOut], None] | None = None,
    request_log: WrittenLog | None = None,
    own_key: str | None = None,
) -> Gateway:
    """parts: what /health tells of others, by name. telemetry: what counts on from a configuration
    to the next. everywhere, sticky, told_responses, held_bodies, on_breaker, on_refused,
    request_log, own_key: see `making.Surroundings`.

    Raises ConfigError for what cannot be made; nothing is connected to yet.
    """
    providers = providers_of(settings, catalog, sources)
    for name, one in providers.items():
        if on_refused is not None and isinstance(one.auth, InTurn):
            one.auth.tell(name, on_refused)
    targets = Targets(settings, providers, catalog, wall_s, on_breaker)
    held_bodies = held_bodies or HeldBodies()
    sticky = Sticky() if sticky is None else sticky  # an empty one is false
    told = telemetry or Telemetry()
    plain = routes_of(settings, targets, told.traffic, on_taken_out)
    routes, pollers = switched_on.engines(plain, settings, providers, clock_ns, told.traffic)
    router = Router(
        routes,
        settings.aliases,
        sticky,
        source,
        unknown=unknown_routes(settings, targets, providers),
        turns=None if settings.queue is None else Turns(settings.queue),
        told_responses=told_responses,
        prompt_cache_scope=settings.prompt_cache.scope,
    )
    access = access_of(settings, accounts, sources, own_key)

    def take(entry: Entry) -> None:
        told.take(entry)
        on_entry(entry)

    def stands() -> Standing:
        log = None if request_log is None else request_log.standing
        return standing(router, providers, serving.accounts, clock_ns() * 1e-9, log)

    logging = request_logging_of(settings.request_log, request_log)
    shadows = None
    if any(route.shadow is not None for route in router.routes.values()):
        from headrace.gateway.serving.shadowing import Shadows

        shadows = Shadows(
            router,
            most_reply_bytes=settings.listen.max_reply_bytes,
            unsupported=settings.unsupported,
            clock_ns=clock_ns,
            source=source,
            on_entry=take,
            request_log=logging,
        )
    serving = Serving(
        router=router,
        accounts=counted_in(settings, accounts),
        free_tier=free_tier_of(settings, accounts),
        stored_ids=stored_ids_of(settings, accounts),
        unsupported=settings.unsupported,
        most_reply_bytes=settings.listen.max_reply_bytes,
        error_detail=settings.errors.detail,
        clock_ns=clock_ns,
        wall_s=wall_s,
        source=source,
        on_entry=take,
        large_bodies=held_bodies.large,
        cache=switched_on.cache(settings, sources, wall_s, clock_ns, lambda: serving),
        guardrails=switched_on.guardrails(settings, sources, wall_s),
        tracing=told.tracing(settings.tracing.endpoint, settings.tracing.pass_on),
        request_log=logging,
        shadows=shadows,
        ways=switched_on.ways(settings, router, sticky, clock_ns, source, held_bodies.large),
    )
    own = OwnAnswers(
        settings, router, access, wall_s, parts or {}, stands, told.metrics, everywhere,
        began_s=told.began_s(wall_s()),
    )  # fmt: skip
    prompts = switched_on.prompts(settings, sources)
    of_key = KeyAnswer(access, accounts)
    answers = {**own.by_path(), **{("GET", path): of_key.tell for path in KEY_PATHS}}
    paths = paths_of(serving, access, settings.ledger, sources.folder, prompts)
    bodies = BodyBound(held_bodies, settings.listen.max_bodies_bytes, access.has_several_keys)
    app = GatewayApp(
        serving, access, paths.chats, answers, paths.posts, told, new_id=new_id,
        most_body_bytes=settings.listen.max_body_bytes, addresses=addresses_of(settings),
        bodies=bodies, prompts=prompts, below=own.below(),
    )  # fmt: skip
    names = Names(router.routes, settings.aliases, providers)

    change_log = log_change_of(settings.request_log, request_log)

    def take_over() -> None:
        told.shows(names, stands, serving.tracing)
        change_log()

    if telemetry is None:
        take_over()
    return Gateway(
        settings=settings, app=app, paths=paths, serving=serving, router=router, access=access,
        providers=providers, take_over=take_over,
        pollers=pollers,
    )  # fmt: skip
