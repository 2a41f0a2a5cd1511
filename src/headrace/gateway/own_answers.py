"""What the gateway answers itself: the models there are, and how it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from headrace import __version__
from headrace.errors import shown
from headrace.gateway.access import Access, may_ask
from headrace.gateway.routing.router import Router
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.standing import Standing
from headrace.protocol.neutral.dollars import NUSD_PER_USD

_JSON = "application/json"
Told = tuple[int, str, bytes]


class Everywhere(Protocol):
    """Who tells of all processes that serve together."""

    async def health(self) -> tuple[Standing, dict[str, object]]:
        """How they stand, and what is told of others, by name."""

    async def metrics(self) -> tuple[str, bytes]:
        """Content type and text of /metrics."""


class OwnAnswers:
    """Each is given the request's headers; what needs a key raises as `Access` does."""

    def __init__(
        self,
        settings: GatewaySettings,
        router: Router,
        access: Access,
        wall_s: Callable[[], float],
        parts: Mapping[str, Callable[[], object]],
        standing: Callable[[], Standing],
        metrics: Callable[[], tuple[str, bytes]],
        everywhere: Everywhere | None = None,
        *,
        began_s: float,
    ) -> None:
        """everywhere: None where this process is the only one. began_s: Unix time at which the
        process did."""
        self._settings = settings
        self._router = router
        self._access = access
        self._wall_s = wall_s
        self._began_s = int(began_s)
        self._parts = parts
        self._standing = standing
        self._metrics = metrics
        self._everywhere = everywhere

    def by_path(self) -> dict[tuple[str, str], Any]:
        """By method and path."""
        return {
            ("GET", "/v1/models"): self.models,
            ("GET", "/api/v1/models"): self.models,
            ("GET", "/health"): self.health,
            ("GET", "/ready"): self.ready,
            ("GET", "/metrics"): self.metrics,
            ("GET", "/api/tags"): self.tags,
            ("GET", "/api/ps"): self.loaded,
            ("GET", "/api/version"): self.ollama_version,
            ("HEAD", "/api/version"): self.ollama_version,
            ("GET", "/"): self.running,
            ("HEAD", "/"): self.running,
        }

    def below(self) -> dict[str, Any]:
        """What answers a GET of whatever is below a path, by that; it is told the rest first."""
        return {"/v1/models/": self.model, "/api/v1/models/": self.model}

    async def models(self, headers: Mapping[str, str]) -> Told:
        """OpenAI's list, with what OpenRouter's adds: prices and context, where they are known."""
        listed = [told for name in self._names(headers) if (told := self._model(name)) is not None]
        return 200, _JSON, msgspec.json.encode({"object": "list", "data": listed})

    async def model(self, name: str, headers: Mapping[str, str]) -> Told:
        """One of the list; a 404 for one that the key may not use, as if it were not there."""
        told = self._model(name) if name in self._names(headers) else None
        if told is None:
            message = f"model {shown(name)} is not served here; GET /v1/models lists what is"
            error = {"message": message, "type": "invalid_request_error", "param": "model",
                     "code": "model_not_found"}  # fmt: skip
            return 404, _JSON, msgspec.json.encode({"error": error})
        return 200, _JSON, msgspec.json.encode(told)

    def _model(self, name: str) -> dict[str, Any] | None:
        route = self._router.route(name)
        if route is None:
            return None
        return {
            "id": name,
            "object": "model",
            "created": self._began_s,
            "owned_by": route.targets[0].provider.name,
            **_told(route.targets),
        }

    async def tags(self, headers: Mapping[str, str]) -> Told:
        """Ollama's list."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_tags(self._names(headers))

    async def loaded(self, headers: Mapping[str, str]) -> Told:
        """Ollama's list of what is in memory."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_ps(self._names(headers))

    async def ollama_version(self, headers: Mapping[str, str]) -> Told:
        """Of the Ollama whose API this is. Needs no key."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_version(models.VERSION)

    async def running(self, headers: Mapping[str, str]) -> Told:
        """What Ollama's clients look for before they ask anything. Needs no key."""
        return 200, "text/plain; charset=utf-8", b"Ollama is running"

    def _names(self, headers: Mapping[str, str]) -> list[str]:
        caller = self._access.caller(headers)
        return [
            name
            for name in (*self._router.routes, *self._settings.aliases)
            if may_ask(caller, name, self._router)
        ]

    async def health(self, headers: Mapping[str, str]) -> Told:
        """That it serves, whatever its providers do; "degraded" while limits cannot be counted.
        Needs no key, and tells little without one."""
        standing, parts = await self._told_of()
        accounts = standing.accounts
        counted = accounts is None or accounts.counters.reachable
        return 200, _JSON, self._health("ok" if counted else "degraded", standing, parts, headers)

    async def ready(self, headers: Mapping[str, str]) -> Told:
        """503 while no model has a target that could be asked."""
        standing, parts = await self._told_of()
        if standing.ready:
            return 200, _JSON, self._health("ready", standing, parts, headers)
        return 503, _JSON, self._health("no_usable_target", standing, parts, headers)

    async def metrics(self, headers: Mapping[str, str]) -> Told:
        """Prometheus's text. Tells of everybody's requests, so keys of customers do not open it."""
        if not self._access.shows_all(headers):
            self._access.caller(headers)
            failure = (
                "metrics need access.metrics_key or access.master_key of the gateway's file: set "
                "one of them and send it as a bearer"
            )
            body = {"error": {"message": failure, "type": "permission_error", "code": "admin_only"}}
            return 403, _JSON, msgspec.json.encode(body)
        if self._everywhere is None:
            kind, text = self._metrics()
        else:
            kind, text = await self._everywhere.metrics()
        return 200, kind, text

    async def _told_of(self) -> tuple[Standing, dict[str, object]]:
        if self._everywhere is not None:
            return await self._everywhere.health()
        return self._standing(), {name: told() for name, told in self._parts.items()}

    def _health(
        self, status: str, now: Standing, parts: dict[str, object], headers: Mapping[str, str]
    ) -> bytes:
        usable = sum(one.usable for one in now.models.values())
        counters = None if now.accounts is None else now.accounts.counters
        body: dict[str, object] = {
            "status": status,
            "uptime_s": max(0, int(self._wall_s()) - self._began_s),
            "limits": None if counters is None else counters.reach,
            "limits_counted": None if counters is None else counters.reachable,
            "models": len(now.models),
            "usable_models": usable,
        }
        if self._access.shows_all(headers):
            body |= {
                "version": __version__,
                "models": now.models,
                "providers": now.providers,
                "accounts": now.accounts,
                "request_log": now.request_log,
                **parts,
            }
        return msgspec.json.encode(body)


def _told(targets: tuple[Target, ...]) -> dict[str, Any]:
    """The cheapest known price, and the largest context."""
    found: dict[str, Any] = {}
    priced = [price for one in targets if (price := one.price) is not None]
    if priced:
        best = min(priced, key=lambda one: one.input + one.output)
        found["pricing"] = {
            "prompt": _per_token(best.input),
            "completion": _per_token(best.output),
        }
    contexts = [one.context_tokens for one in targets if one.context_tokens is not None]
    if contexts:
        found["context_length"] = max(contexts)
    return found


def _per_token(nusd_per_million: int) -> str:
    """Dollars per token as OpenRouter writes them: a decimal without an exponent."""
    digits = f"{nusd_per_million / NUSD_PER_USD / 1e6:.15f}"
    return digits.rstrip("0").rstrip(".") or "0"
