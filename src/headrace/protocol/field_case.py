"""Names of fields in capital letters, which some readers take for the same field and others do not.

Go's JSON takes `Tools` for `tools`, and so do Ollama, LocalAI and gateways that are written in it;
what is checked here, and who pays what, goes by `tools` alone.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.errors import RequestError, shown
from headrace.protocol.json_object import JsonObject

# What models, prices, limits and guardrails go by, in any dialect. Others are passed on as they
# come: `Seed` may be wrong, and harms nobody.
_FIELDS = frozenset(
    (
        "model", "models", "fallbacks", "provider", "route", "guardrails", "service_tier",
        "messages", "system", "prompt", "input", "instructions", "suffix", "template", "images",
        "tools", "functions", "tool_choice", "function_call", "mcp_servers", "plugins",
        "web_search_options", "max_tokens", "max_completion_tokens", "max_output_tokens",
        "max_new_tokens", "n_predict", "n", "best_of", "options", "stream", "stream_options",
        "previous_response_id", "conversation", "store", "background",
    )
)  # fmt: skip
_OPTIONS = "options"
_OF_OPTIONS = frozenset(("num_predict", "num_ctx"))
_WITH_OPTIONS = ("ollama", "ollama-generate")


def check_case(dialect: str, body: JsonObject) -> None:
    """Raise RequestError for a field that counts here and is written with capitals."""
    if body.with_capitals:
        _check(body, _FIELDS, "")
    if dialect in _WITH_OPTIONS and body.beginning(_OPTIONS, 1) == b"{":
        options = body.value(_OPTIONS)
        assert options is not None
        _check(JsonObject.read(options), _OF_OPTIONS, f"{_OPTIONS}.")


def _check(found: JsonObject, fields: Set[str], within: str) -> None:
    for name in found.with_capitals:
        meant = name.casefold()
        if meant in fields:
            raise RequestError(
                f"{within}{shown(name)}: the field is written {within}{meant}",
                param=f"{within}{name}",
            )
