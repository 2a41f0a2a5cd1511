"""Providers as endpoints that requests can be sent to: here alone keys are read."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.client.endpoints import Endpoint, build_request
from headrace.bench.providers.prompts import RoundPrompts
from headrace.bench.providers.settings import KINDS, Provider, ProvidersFile
from headrace.errors import ConfigError


def make_endpoints(
    file: ProvidersFile, environ: Mapping[str, str], prompts: RoundPrompts
) -> dict[str, Endpoint]:
    """By the provider's name, each tried with the prompts, of which nothing is sent.

    Raises ConfigError, naming the provider, for a variable that is not set and for prompts that its
    API cannot take.
    """
    endpoints = {}
    for provider in file.providers:
        try:
            endpoint = make_endpoint(provider, environ)
            for item in (*prompts.single, *prompts.batch):
                build_request(endpoint, item.prompt)
        except ConfigError as error:
            raise ConfigError(f"provider {provider.name}: {error}") from error
        endpoints[provider.name] = endpoint
    return endpoints


def make_endpoint(provider: Provider, environ: Mapping[str, str]) -> Endpoint:
    """With the keys that the environment has. Raises ConfigError for one that it has not."""
    secret = {
        header: _value(f"headers_env.{header}", name, environ)
        for header, name in provider.headers_env.items()
    }
    return Endpoint(
        kind=KINDS[provider.type],
        base_url=provider.base_url,
        model=provider.model,
        api_key=(
            _value("api_key_env", provider.api_key_env, environ) if provider.api_key_env else None
        ),
        path=provider.path,
        headers={**provider.headers, **secret},
        max_tokens_field=provider.max_tokens_field,
        include_usage=provider.include_usage,
        continuous_usage=provider.continuous_usage,
        return_metrics=provider.return_metrics,
    )


def _value(field: str, name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if not value:
        # The name alone: who wrote the key in its place must not read it in a log.
        told = name if name.isidentifier() and name.isupper() else "a name in capitals"
        raise ConfigError(
            f"{field}: the environment variable is not set or empty ({told}); set it, or take the "
            "provider out of the file"
        )
    return value
