"""What the gateway answers itself: the models there are, and how it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.gateway.access import Access
from headrace.gateway.routing.router import Router
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.targets.target import NUSD_PER_USD, Target

_JSON = "application/json"
Told = tuple[int, str, bytes]


class OwnAnswers:
    """Each is given the request's headers; what needs a key raises as `Access` does."""

    def __init__(
        self,
        settings: GatewaySettings,
        router: Router,
        access: Access,
        wall_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._router = router
        self._access = access
        self._began_s = int(wall_s())

    def by_path(self) -> dict[tuple[str, str], Any]:
        """By method and path."""
        return {
            ("GET", "/v1/models"): self.models,
            ("GET", "/api/v1/models"): self.models,
            ("GET", "/health"): self.health,
            ("GET", "/ready"): self.health,
            ("GET", "/api/tags"): self.tags,
        }

    async def models(self, headers: Mapping[str, str]) -> Told:
        """OpenAI's list, with what OpenRouter's adds: prices and context, where they are known."""
        caller = self._access.caller(headers)
        names = [*self._router.routes, *self._settings.aliases]
        listed = []
        for name in names:
            route = self._router.route(name)
            if route is None or (caller is not None and not caller.may_use(name)):
                continue
            listed.append(
                {
                    "id": name,
                    "object": "model",
                    "created": self._began_s,
                    "owned_by": route.targets[0].provider.name,
                    **_told(route.targets),
                }
            )
        return 200, _JSON, msgspec.json.encode({"object": "list", "data": listed})

    async def tags(self, headers: Mapping[str, str]) -> Told:
        """Ollama's list."""
        from headrace.protocol.dialects.ollama import models

        caller = self._access.caller(headers)
        names = [
            name
            for name in (*self._router.routes, *self._settings.aliases)
            if caller is None or caller.may_use(name)
        ]
        return 200, _JSON, models.write_tags(names)

    async def health(self, headers: Mapping[str, str]) -> Told:
        """That it serves. What of limits holds is told here too: per process or for all."""
        body = {"status": "ok", "models": len(self._router.routes)}
        return 200, _JSON, msgspec.json.encode(body)


def _told(targets: tuple[Target, ...]) -> dict[str, Any]:
    """The cheapest known price, and the largest context."""
    found: dict[str, Any] = {}
    priced = [one.price for one in targets if one.price is not None]
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
