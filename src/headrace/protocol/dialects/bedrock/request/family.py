"""The features that differ between vendors' models in Converse.

Bedrock answers 400 to fields that a model does not know, so the writer has to know some of it. The
facts are of the API's reference, the user guide's tables and of recorded exchanges that AWS
accepted; whatever is not known for sure is written as asked and left to Bedrock to judge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.protocol.dialects.anthropic.request.model_rules import rules_of

ANY = frozenset(("text", "image", "document", "video", "audio"))


@dataclass(frozen=True)
class Family:
    """The properties of one vendor's models."""

    vendor: str
    """As in their ids, "" if the id does not show it."""
    cache_points: bool = False
    """Whether prompt caching is available in turns and system text."""
    tool_cache_points: bool = False
    """Whether prompt caching is available among tools."""
    beside_results: frozenset[str] = ANY
    """Kinds of blocks that may share a turn with tool results."""
    in_results: frozenset[str] = frozenset(("image", "document", "video"))
    """Kinds of media that a tool result may contain."""
    result_status: bool = True
    """Whether a tool result may be marked as an error."""
    starts_with_assistant: bool = False
    """Whether the first turn may be the assistant's."""
    strict_tools: bool = True
    """Whether `strict` is supported."""


_ANTHROPIC = Family(
    "anthropic",
    cache_points=True,
    tool_cache_points=True,
    beside_results=frozenset(("text", "image")),
    in_results=frozenset(("image", "document")),
    starts_with_assistant=True,
)
_NOVA = Family("nova", cache_points=True, in_results=frozenset(("image",)), strict_tools=False)
_UNKNOWN = Family("", cache_points=True, tool_cache_points=True)
_FAMILIES = {
    "anthropic": _ANTHROPIC,
    "amazon": Family("amazon", strict_tools=False),
    "nova": _NOVA,
    "meta": Family(
        "meta",
        beside_results=frozenset(),
        in_results=frozenset(("image", "document")),
        strict_tools=False,
    ),
    "mistral": Family("mistral", beside_results=frozenset(), in_results=frozenset(("document",))),
    "writer": Family("writer", beside_results=frozenset(), result_status=False),
    "openai": Family("openai"),
    "qwen": Family("qwen"),
    "deepseek": Family("deepseek"),
    "cohere": Family("cohere"),
    "ai21": Family("ai21"),
}


def family_of(model: str, vendor: str = "") -> Family:
    """The family of a model id ("us.anthropic.claude-sonnet-4-6"), an inference profile or an ARN.

    vendor: the model's vendor if an ARN does not show it, as for application inference profiles and
    provisioned models ("anthropic", "nova", "meta", ...).
    """
    words = model.replace("/", ".").replace(":", ".").split(".")
    named = next((word for word in words if word in _FAMILIES), "")
    if named == "amazon" and "nova" in model:
        return _NOVA
    if named == "anthropic":
        return replace(_ANTHROPIC, strict_tools=rules_of(model).strict)
    if named:
        return _FAMILIES[named]
    if vendor in _FAMILIES:
        return _FAMILIES[vendor]
    return _UNKNOWN if model.startswith("arn:") else Family("other")
