"""Names that may be a metric's label: those of the file. What clients invent makes no series."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.gateway.routing.preferences import FREE, SUFFIXES
from headrace.gateway.routing.route import Route
from headrace.gateway.targets.provider import Provider

OTHER = "other"

# OpenTelemetry's names of vendors, by the dialect that theirs alone speak.
_VENDORS = {
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "gemini": "gcp.gen_ai",
    "mistral": "mistral_ai",
}


class Names:
    """Of one configuration: its models, aliases, targets and providers."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        aliases: Mapping[str, str],
        providers: Mapping[str, Provider],
    ) -> None:
        self._models = {name: name for name in routes} | dict(aliases)
        self._targets = {one.name: one.model for route in routes.values() for one in route.targets}
        shadows = (one.shadow.target for one in routes.values() if one.shadow is not None)
        self._targets |= {one.name: one.model for one in shadows}
        self._vendors = {name: vendor(one) for name, one in providers.items()}

    def model(self, asked: str) -> str:
        """The model of the file that a client means; "other" for names the file has not, which are
        those passed on to a provider and those nobody serves."""
        found = self._models.get(asked)
        if found is None:
            base, mark, suffix = asked.rpartition(":")
            if mark and (suffix in SUFFIXES or suffix == FREE):
                found = self._models.get(base)
        return OTHER if found is None else found

    def target(self, name: str | None) -> str:
        """`provider/model` of the file; `provider/other` for a model it does not name; "" for
        none."""
        if name is None or name in self._targets:
            return name or ""
        provider = name.partition("/")[0]
        return f"{provider}/{OTHER}" if provider in self._vendors else OTHER

    def model_of_target(self, name: str) -> str:
        """What its provider calls the model."""
        return self._targets.get(name, OTHER)

    def vendor(self, provider: str) -> str:
        """See `vendor`."""
        return self._vendors.get(provider, OTHER)


NO_NAMES = Names({}, {}, {})


def vendor(provider: Provider) -> str:
    """A value for `gen_ai.provider.name`: the vendor's where its dialect tells, else the file's
    own name of it."""
    return _VENDORS.get(provider.side.name, provider.name)
