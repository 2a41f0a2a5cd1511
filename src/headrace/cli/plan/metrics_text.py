"""The /metrics of a server that a command of `headrace plan` names."""

from __future__ import annotations

import os

_TIMEOUT_S = 10.0


def metrics_text(address: str) -> str:
    """By the address of the server, or that of its /metrics. Raises ConfigError."""
    import httpx2

    from headrace.cli.server_client import get, open_client
    from headrace.cli.server_url import API_KEY_VARIABLE
    from headrace.errors import ConfigError, shown

    root = address.rstrip("/")
    url = root if root.endswith("/metrics") else f"{root.removesuffix('/v1')}/metrics"
    try:
        with open_client(os.environ.get(API_KEY_VARIABLE), _TIMEOUT_S) as client:
            reply = get(client, url, timeout_s=_TIMEOUT_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ConfigError(
            f"{shown(url)} does not answer: {error}; is the server running?"
        ) from error
    if reply.status != 200:
        raise ConfigError(f"{shown(url)} answers {reply.status}; name a server with /metrics")
    return reply.content.decode("utf-8", errors="replace")
