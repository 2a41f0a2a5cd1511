"""How many requests a gateway refuses by default, as no target supports all of their parameters.

`python -m tests.gateway.unsupported.share` counts over the recorded requests of
`../shared/assets/cassettes` and over `shapes.py`, each sent to a provider of every other dialect.
Nothing listens where the providers are: what is not refused ends as a failure of the provider.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.gateway.building.gateway import Gateway
from tests.gateway.cassettes.recordings import every
from tests.gateway.harness import ask, gateway
from tests.gateway.unsupported.shapes import CHAT, MESSAGES, OLLAMA, RESPONSES, SHAPES, Shape

PROVIDERS: dict[str, dict[str, Any]] = {
    "openai-chat": {"dialect": "openai-chat"},
    "openai-responses": {"dialect": "openai-responses"},
    "anthropic": {"kind": "anthropic"},
    "gemini": {"kind": "google"},
    "bedrock": {"kind": "aws-bedrock"},
    "cohere": {"kind": "cohere"},
    "mistral": {"kind": "mistral"},
    "ollama": {"kind": "ollama"},
}
"""By their dialect."""

_VENDORS = {
    "openai-chat": (
        "openai", "azure", "groq", "deepseek", "openrouter", "cerebras", "together",
        "huggingface", "zai",
    ),
    "openai-responses": ("openai-responses",),
    "anthropic": ("anthropic",),
    "ollama": ("ollama",),
}  # fmt: skip
_PATHS = {
    "openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": MESSAGES, "ollama": OLLAMA,
}  # fmt: skip
# They name providers and models that are not here.
_ROUTING = ("provider", "models", "route")
# Features that only one vendor's servers have: what they store, and tools that they run.
_OF_ONE_VENDOR = (
    "conversation", "previous_response_id", "background", "prompt", "mcp_servers", "container",
    "web_search_options", "plugins",
)  # fmt: skip
_ITEMS = {
    None, "message", "function_call", "function_call_output", "reasoning", "text", "input_text",
    "output_text", "refusal", "image", "document", "file", "image_url", "input_image",
    "input_file", "input_audio", "tool_use", "tool_result", "thinking", "redacted_thinking",
}  # fmt: skip


class Outcome(NamedTuple):
    """What became of one request at one provider."""

    shape: Shape
    provider: str
    status: int
    code: str
    message: str
    ignored: str

    @property
    def is_refused(self) -> bool:
        """Whether the provider was not asked."""
        return self.status < 500


def recorded() -> list[Shape]:
    """The recorded requests of clients' dialects, each once. Skips a test without the assets."""
    found: dict[tuple[str, str], Shape] = {}
    for dialect, vendors in _VENDORS.items():
        for vendor in vendors:
            for stream in (False, True):
                for recording in every(vendor, stream=stream):
                    if not recording.asked:
                        continue
                    body = {**recording.asked, "model": "m"}
                    for name in _ROUTING:
                        body.pop(name, None)
                    key = dialect, json.dumps(body, sort_keys=True)
                    shape = Shape(recording.at, dialect, _PATHS[dialect], body)
                    found.setdefault(key, shape)
    return list(found.values())


def is_portable(shape: Shape) -> bool:
    """Whether a request has no tool, item or reference that only one vendor's servers know."""
    body = shape.body
    tools = body.get("tools") or []
    if any(tool.get("type") not in (None, "function") for tool in tools):
        return False
    items = body.get("input") or body.get("messages") or []
    for item in items if isinstance(items, list) else []:
        content = item.get("content")
        parts = content if isinstance(content, list) else []
        if not {item.get("type"), *(part.get("type") for part in parts)} <= _ITEMS:
            return False
    return not any(body.get(name) for name in _OF_ONE_VENDOR)


def served_nowhere(**more: Any) -> Gateway:
    """A gateway whose providers are unreachable; the models are named by their dialects."""
    providers = {
        name: {"base_url": "http://127.0.0.1:9", **settings}
        | ({"region": "us-east-1"} if name == "bedrock" else {})
        | ({} if name == "ollama" else {"api_key": ["k"]})
        for name, settings in PROVIDERS.items()
    }
    models = {name: f"{name}/m" for name in PROVIDERS}
    retries = {"attempts": 1, "backoff_max_s": 0.001, "backoff_s": 0.001}
    breaker = {"min_attempts": 1_000_000}
    settings = {"providers": providers, "models": models, "retries": retries, "breaker": breaker}
    return gateway({**settings, **more}, [])


async def outcomes(shapes: Iterable[Shape], **more: Any) -> list[Outcome]:
    """Each request at a provider of every other dialect, with settings of the gateway."""
    found = []
    built = served_nowhere(**more)
    for shape in shapes:
        for provider in PROVIDERS:
            if provider == shape.dialect:
                continue
            body = {**shape.body, "model": provider}
            told = await ask(built.app, body, path=shape.path, headers=dict(shape.headers))
            error = told.json.get("error")
            if isinstance(error, dict):
                message, code = error.get("message", ""), error.get("code") or ""
            else:
                message, code = str(error), ""
            ignored = told.headers.get("x-ignored-params", "")
            found.append(Outcome(shape, provider, told.status, code, message, ignored))
    built.close()
    return found


async def main() -> None:
    """Print both shares, and what the refusals are about."""
    every_request = recorded()
    portable = [shape for shape in every_request if is_portable(shape)]
    for name, shapes in (
        ("recorded", every_request),
        ("recorded, without tools and references of one vendor", portable),
        ("shapes", list(SHAPES)),
    ):
        found = await outcomes(shapes)
        refused = [outcome for outcome in found if outcome.is_refused]
        print(
            f"{name}: {len(shapes)} requests, {len(found)} pairs, {len(refused)} refused "
            f"({100 * len(refused) / len(found):.1f} %)"
        )
        pairs = Counter(outcome.shape.dialect for outcome in found)
        for dialect, count in Counter(outcome.shape.dialect for outcome in refused).items():
            print(f"  {dialect}: {count} of {pairs[dialect]}")
        reasons = Counter(outcome.message.partition("/m: ")[2][:110] for outcome in refused)
        for reason, count in reasons.most_common(25):
            print(f"  {count:5d}  {reason}")


if __name__ == "__main__":
    asyncio.run(main())
