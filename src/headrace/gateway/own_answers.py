"""Built-in endpoints: the list of models, and the gateway's state."""

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
    """A source of reports on all processes that serve together."""

    async def health(self) -> tuple[Standing, dict[str, object]]:
        """Their state, and further parts of /health by name."""

    async def metrics(self) -> tuple[str, bytes]:
        """The content type and text of /metrics."""


class OwnAnswers:
    """The built-in endpoints. Each gets the request's headers; those that need a key raise as
    `Access` does."""

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
        """`everywhere` is None if this is the only process. `began_s` is the Unix time of its
        start."""
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
        """The endpoints by method and path."""
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
        """Handlers of GET for all paths below a prefix; they get the rest of the path first."""
        return {"/v1/models/": self.model, "/api/v1/models/": self.model}

    async def models(self, headers: Mapping[str, str]) -> Told:
        """OpenAI's list of models, with OpenRouter's prices and context sizes where known."""
        listed = [
            model for name in self._names(headers) if (model := self._model(name)) is not None
        ]
        return 200, _JSON, msgspec.json.encode({"object": "list", "data": listed})

    async def model(self, name: str, headers: Mapping[str, str]) -> Told:
        """One model of the list; a 404 for one that the key may not use."""
        model = self._model(name) if name in self._names(headers) else None
        if model is None:
            message = f"model {shown(name)} is not served here; GET /v1/models lists the models"
            error = {"message": message, "type": "invalid_request_error", "param": "model",
                     "code": "model_not_found"}  # fmt: skip
            return 404, _JSON, msgspec.json.encode({"error": error})
        return 200, _JSON, msgspec.json.encode(model)

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
        """Ollama's list of models."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_tags(self._names(headers))

    async def loaded(self, headers: Mapping[str, str]) -> Told:
        """Ollama's list of loaded models."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_ps(self._names(headers))

    async def ollama_version(self, headers: Mapping[str, str]) -> Told:
        """The version of the Ollama whose API this is. Needs no key."""
        from headrace.protocol.dialects.ollama import models

        return 200, _JSON, models.write_version(models.VERSION)

    async def running(self, headers: Mapping[str, str]) -> Told:
        """The text that Ollama's clients look for first. Needs no key."""
        return 200, "text/plain; charset=utf-8", b"Ollama is running"

    def _names(self, headers: Mapping[str, str]) -> list[str]:
        caller = self._access.caller(headers)
        return [
            name
            for name in (*self._router.routes, *self._settings.aliases)
            if may_ask(caller, name, self._router)
        ]

    async def health(self, headers: Mapping[str, str]) -> Told:
        """Whether it serves, whatever its providers do; "degraded" while limits cannot be counted.
        Needs no key, and shows little without one."""
        standing, parts = await self._told_of()
        accounts = standing.accounts
        counted = accounts is None or accounts.counters.reachable
        return 200, _JSON, self._health("ok" if counted else "degraded", standing, parts, headers)

    async def ready(self, headers: Mapping[str, str]) -> Told:
        """Whether requests can be served; 503 while no model has a usable target."""
        standing, parts = await self._told_of()
        if standing.ready:
            return 200, _JSON, self._health("ready", standing, parts, headers)
        return 503, _JSON, self._health("no_usable_target", standing, parts, headers)

    async def metrics(self, headers: Mapping[str, str]) -> Told:
        """Metrics in Prometheus's format. They show all requests, so customers' keys may not."""
        if not self._access.shows_all(headers):
            self._access.caller(headers)
            failure = (
                "metrics need access.metrics_key or access.master_key: set one of them in the "
                "gateway's configuration and send it as a bearer token"
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
        return self._standing(), {name: part() for name, part in self._parts.items()}

    def _health(
        self, status: str, now: Standing, parts: dict[str, object], headers: Mapping[str, str]
    ) -> bytes:
        usable = sum(model.usable for model in now.models.values())
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
    details: dict[str, Any] = {}
    priced = [price for target in targets if (price := target.price) is not None]
    if priced:
        best = min(priced, key=lambda price: price.input + price.output)
        details["pricing"] = {
            "prompt": _per_token(best.input),
            "completion": _per_token(best.output),
        }
    contexts = [target.context_tokens for target in targets if target.context_tokens is not None]
    if contexts:
        details["context_length"] = max(contexts)
    return details


def _per_token(nusd_per_million: int) -> str:
    """Dollars per token as OpenRouter writes them: a decimal without an exponent."""
    digits = f"{nusd_per_million / NUSD_PER_USD / 1e6:.15f}"
    return digits.rstrip("0").rstrip(".") or "0"
