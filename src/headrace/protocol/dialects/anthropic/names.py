"""The API's words: its name, paths, headers and version."""

from __future__ import annotations

from collections.abc import Mapping

NAME = "anthropic"

VERSION = "2023-06-01"
"""Of the API, sent as the header anthropic-version."""

MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

BETAS = "betas"
"""Field of ChatCall.extra with the list of the header anthropic-beta, which goes on as it came."""


def header(headers: Mapping[str, str], name: str) -> str:
    """A header's value by its name in lower case; "" without it."""
    if name in headers:
        return headers[name]
    return next((value for key, value in headers.items() if key.lower() == name), "")
