"""The address of a Redis of LiteLLM's, which names its host, port and password apart."""

from __future__ import annotations

from typing import Any

_VARIABLE = "os.environ/"


def redis_url(url: Any, host: Any, port: Any, password: Any) -> str | None:
    """A URL for gateway.yaml; None if it has a password or a part from the environment: then all of
    it belongs into a variable."""
    if url is None:
        url = f"redis://{host}:{6379 if port is None else port}/0"
    # At its beginning the variable has the whole of it.
    if password or _VARIABLE in str(url)[1:]:
        return None
    return str(url)
