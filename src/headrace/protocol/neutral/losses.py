"""What a provider's request leaves out of the client's, and how much that matters.

Writers name what their API cannot express as fields of the neutral call: "seed", "tools.strict",
"messages[0].parts[1].cache". Each is one of three:

- a **meaning**: without it the answer is not what was requested (one choice instead of two, text
  instead of JSON), so that the provider should not be asked;
- a **hint**: the answer serves without it too (a seed, a user's name, a cache mark);
- a **no-op**: it asks for what happens anyway (a penalty of 0), so that nothing is lost.

Clients know the fields by the names in which they wrote them: paths in their body, in the notation
of JSONPath (RFC 9535), without `$.` at the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.protocol.neutral.call import ChatCall, Role
from headrace.protocol.neutral.part import Opaque

FieldPaths = Mapping[str, tuple[str, ...]]
"""Paths in a client's body by the neutral field; of several the first that the body has."""

MEANINGS = frozenset(
    {
        "choices",
        "logit_bias",
        "logprobs",
        "modalities",
        "output",
        "output.schema",
        "stop",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)
# Of fields that only one vendor's API has: those that change what is answered.
_MEANINGS_OF_VENDORS = frozenset(
    {
        "allowed_token_ids",
        "audio",
        "bad_words",
        "documents",
        "enable_search",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "logits_processors",
        "mcp_servers",
        "plugins",
        "prompt_logprobs",
        "response_format",
        "search_parameters",
        "stop_token_ids",
        "structured_outputs",
        "text.format",
        "tool_choice",
        "web_search_options",
    }
)
# Vectors of another size or kind are of no use.
_MEANINGS_OF_EMBEDDINGS = frozenset({"dimensions", "output_dimension", "output_dtype"})
# Of a message or a tool, the parts of a path that are hints; any other is content.
_HINTS_OF_MESSAGES = frozenset(
    {
        "arguments",
        "assistant",
        "cache",
        "detail",
        "extra",
        "is_error",
        "media",
        "name",
        "role",
        "system",
        "text",
        "title",
        "tool_calls",
    }
)
_HINTS_OF_TOOLS = frozenset({"cache", "extra", "parameters", "strict"})
# Vendors' tools that find other tools of the request, all of which go to the provider anyway.
_SEARCHES_TOOLS = "tool_search"
_NO_OPS: dict[str, tuple[object, ...]] = {
    "choices": (1,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "min_p": (0,),
    "modalities": (("text",),),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "service_tier": ("auto", "default", "standard", "standard_only"),
    "temperature": (1,),
    "top_k": (0, -1),
    "top_logprobs": (0,),
    "top_p": (1,),
    "user": ("",),
    "extra.background": (False,),
    "extra.include": ([],),
    "extra.mcp_servers": ([],),
    "extra.store": (False,),
    "extra.truncation": ("disabled",),
    "extra.verbosity": ("medium",),
}
# They only say where a text stood or came from; writers put the text itself in its place.
_CARRIED = frozenset({"annotations", "item_id", "phase", "role", "same_message"})
# Fields of which `extra` holds the rest that has no neutral form.
_READ_IN_PART = frozenset(
    {"metadata", "options", "output_config", "reasoning", "stream_options", "text", "thinking"}
)
# Names come from the client: thousands of them, of 4 KiB each, must not fill headers and ledgers.
_MOST_NAMES = 50
_MOST_NAME_CHARACTERS = 120
_INDEXES = re.compile(r"\[\d+\]|\.parts\b")


class Losses(NamedTuple):
    """The fields that one provider's request leaves out, as paths in the client's body."""

    meaning: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both, meanings first."""
        return self.meaning + self.hints


NO_LOSSES = Losses()


def losses(
    call: ChatCall, dropped: Iterable[str], paths: FieldPaths, has: Callable[[str], bool]
) -> Losses:
    """The losses among the fields that a writer has dropped.

    `has` says whether the client's body has a field at a path.
    """
    meaning: dict[str, None] = {}
    hints: dict[str, None] = {}
    for name in dict.fromkeys(_INDEXES.sub("", name) for name in dropped):
        if _is_no_op(name, call):
            continue
        for value in _each(name, call):
            (meaning if has_meaning(value) else hints)[_path(value, paths, has)] = None
    return Losses(_few(meaning), _few(name for name in hints if name not in meaning))


def embedding_losses(dropped: Iterable[str]) -> Losses:
    """The losses of a request for embeddings; clients of all dialects name its fields alike."""
    names = dict.fromkeys(name.removeprefix("extra.") for name in dropped)
    meaning = tuple(name for name in names if name in _MEANINGS_OF_EMBEDDINGS)
    return Losses(_few(meaning), _few(name for name in names if name not in meaning))


def _few(names: Iterable[str]) -> tuple[str, ...]:
    """The first names, shortened, and how many more there are."""
    found = [
        name if len(name) <= _MOST_NAME_CHARACTERS else f"{name[:_MOST_NAME_CHARACTERS]}…"
        for name in names
    ]
    if len(found) <= _MOST_NAMES:
        return tuple(found)
    return (*found[:_MOST_NAMES], f"{len(found) - _MOST_NAMES} more")


def opaque_loss(part: Opaque, role: Role) -> str:
    """The name of a part that only another vendor's API knows. What its model did there (a search,
    an encrypted thought) is a hint; what the client says is not."""
    value: dict[str, Any] = part.value
    inner = value.get("content_part")
    kind = (inner if isinstance(inner, dict) else value).get("type")
    name = kind if isinstance(kind, str) and kind else part.dialect
    return f"messages.assistant.{name}" if role == "assistant" else f"messages.{name}"


def has_meaning(name: str) -> bool:
    """Whether a field without indexes is a meaning; otherwise it is a hint."""
    head, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    match head:
        case "extra":
            return rest in _MEANINGS_OF_VENDORS
        case "messages":
            return second not in _HINTS_OF_MESSAGES
        case "tools":
            return second not in _HINTS_OF_TOOLS and not second.startswith(_SEARCHES_TOOLS)
    return name in MEANINGS


def _is_no_op(name: str, call: ChatCall) -> bool:
    head, _, rest = name.partition(".")
    if head in ("messages", "instructions") and name != "messages.role":
        return rest.rpartition(".")[2] in _CARRIED
    if head == "extra":
        value = call.extra.get(rest)
    elif head == "tool_choice":
        return call.tool_choice is not None and call.tool_choice.kind == "auto"
    else:
        value = getattr(call, head, None)
    return any(value == harmless for harmless in _NO_OPS.get(name, ()))


def _each(name: str, call: ChatCall) -> Iterable[str]:
    """The name, or those of the fields in it, where only a part of it is lost."""
    head, _, rest = name.partition(".")
    value = call.extra.get(rest) if head == "extra" and rest in _READ_IN_PART else None
    return [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]


def _path(name: str, paths: FieldPaths, has: Callable[[str], bool]) -> str:
    """The path of a neutral field in the client's body."""

    def known(field: str) -> str:
        found = paths.get(field, (field,))
        return next((path for path in found if has(path)), found[0])

    if name in paths:
        return known(name)
    head, _, rest = name.partition(".")
    second, _, leaf = rest.partition(".")
    if head == "extra":
        return rest
    if name.startswith("output.schema."):
        return f"{known('output.schema')}..{name.removeprefix('output.schema.')}"
    if head == "tools" and rest:
        place = known(head)
        inside = second in ("extra", "parameters") and leaf
        return f"{place}..{leaf}" if inside else f'{place}[?@.type=="{rest}"]'
    if head == "instructions":
        return f"{known(head)}..{leaf if second == 'extra' else rest}"
    if head == "messages" and rest:
        place = known(head)
        if second in ("extra", "text", "media", "tool_calls") and leaf:
            return f"{place}..{leaf}"
        if rest in _HINTS_OF_MESSAGES:
            return f"{place}..{rest}"
        return f'{place}..[?@.type=="{leaf if second == "assistant" else rest}"]'
    return known(name)
