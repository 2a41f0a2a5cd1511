"""Names allowed as metric labels: the configured ones. Names that clients invent make no series."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.gateway.routing.preferences import FREE, SUFFIXES
from headrace.gateway.routing.route import Route
from headrace.gateway.targets.provider import Provider

OTHER = "other"

# OpenTelemetry's vendor names, by the dialect that only their API has.
_VENDORS = {
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "gemini": "gcp.gen_ai",
    "mistral": "mistral_ai",
}


class Names:
    """The names of one configuration: models, aliases, targets and providers."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        aliases: Mapping[str, str],
        providers: Mapping[str, Provider],
    ) -> None:
        self._models = {name: name for name in routes} | dict(aliases)
        self._targets = {
            target.name: target.model for route in routes.values() for target in route.targets
        }
        shadows = (route.shadow.target for route in routes.values() if route.shadow is not None)
        self._targets |= {target.name: target.model for target in shadows}
        self._vendors = {name: vendor(provider) for name, provider in providers.items()}

    def model(self, asked: str) -> str:
        """The configured model that a client means; "other" for names that are not configured."""
        name = self._models.get(asked)
        if name is None:
            base, mark, suffix = asked.rpartition(":")
            if mark and (suffix in SUFFIXES or suffix == FREE):
                name = self._models.get(base)
        return OTHER if name is None else name

    def target(self, name: str | None) -> str:
        """The configured `provider/model`; `provider/other` for other models; "" for None."""
        if name is None or name in self._targets:
            return name or ""
        provider = name.partition("/")[0]
        return f"{provider}/{OTHER}" if provider in self._vendors else OTHER

    def model_of_target(self, name: str) -> str:
        """The provider's name for the target's model."""
        return self._targets.get(name, OTHER)

    def vendor(self, provider: str) -> str:
        """See `vendor`."""
        return self._vendors.get(provider, OTHER)


NO_NAMES = Names({}, {}, {})


def vendor(provider: Provider) -> str:
    """A value for `gen_ai.provider.name`: the vendor if the dialect implies it, else the configured
    name of the provider."""
    return _VENDORS.get(provider.side.name, provider.name)
