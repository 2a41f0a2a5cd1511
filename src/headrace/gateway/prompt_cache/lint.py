"""Findings: what of a group's prompts cannot be read from a provider's cache, why, and what to do.

A provider reads a prompt's beginning from its cache as far as it is the same, token by token, as
one it had before. OpenAI, Gemini and most others do so by themselves; Anthropic up to a breakpoint
that the request has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

from headrace.gateway.prompt_cache.groups import Group, groups_of
from headrace.gateway.prompt_cache.moving import (
    Difference,
    Moving,
    difference_of,
    shared_turns_tokens,
)
from headrace.gateway.prompt_cache.prompt import Prompt, tokens_of
from headrace.gateway.targets.target import Price
from headrace.protocol.dialects.anthropic.cache_marks import MOST_MARKS
from headrace.protocol.neutral.dollars import NUSD_PER_USD

FindingKind = Literal[
    "moving-prefix", "no-breakpoint", "too-many-breakpoints", "breakpoint-behind-moving",
    "below-minimum",
]  # fmt: skip

_TOKENS_PER_PRICE = 1_000_000
_REQUESTS = 1000
# Fewer are not worth a change: providers cache in blocks of 128 and so.
_FEWEST_BEHIND_TOKENS = 100
_AT_THE_END = "put it behind what stays: at the end of the system prompt, or in the last turn"
_ADVICE: dict[Moving, str] = {
    "timestamp": f"{_AT_THE_END}; the day alone is mostly enough",
    "time": f"{_AT_THE_END}; the day alone is mostly enough",
    "date": f"{_AT_THE_END}; it empties the cache once a day",
    "uuid": "leave it out of the prompt, or put it into metadata",
    "request id": "leave it out of the prompt, or put it into metadata",
    "counter": _AT_THE_END,
    "number": _AT_THE_END,
    "name": "put what is known of the user into the first turn, behind the system prompt",
    "order of tools": "send tools in one order, by name",
    "order of JSON keys": "write JSON with its keys in one order (sort_keys=True)",
    "white space": "write the prompt in one form",
    "tools": "send all tools each time and say in tool_choice which may be called",
    "text": _AT_THE_END,
}


class Known(NamedTuple):
    """Of the model that a request asks for. price, minimum_tokens: None where nobody knows; a
    shorter prefix is not kept. needs_marks: whether a provider caches up to breakpoints alone."""

    price: Price | None = None
    minimum_tokens: int | None = None
    needs_marks: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """requests: of the group. tokens: of a request that cannot be read from the cache because of
    it, about. usd_per_1000_requests: what they cost more than if they could; None where nobody
    knows the prices. one, other: two forms of what moves."""

    kind: FindingKind
    model: str
    key: str
    application: str
    requests: int
    path: str
    told: str
    advice: str
    tokens: int
    usd_per_1000_requests: float | None
    moving: Moving | None = None
    one: str = ""
    other: str = ""


def findings_of(
    prompts: Iterable[tuple[Prompt, str]], known: Callable[[str], Known]
) -> list[Finding]:
    """Those that cost most first. prompts: each with the key it came with."""
    found: list[Finding] = []
    for group in groups_of(prompts):
        found += _of_group(group, known(group.model))
    return sorted(found, key=lambda one: (-(one.usd_per_1000_requests or 0.0), -one.tokens))


def _of_group(group: Group, known: Known) -> list[Finding]:
    found: list[Finding] = []
    moving = difference_of(group.prompts)
    if moving is not None:
        behind = moving.behind_tokens + shared_turns_tokens(group.prompts)
        moving = moving._replace(behind_tokens=behind)
        whole = behind + moving.prefix_tokens
        if behind >= _FEWEST_BEHIND_TOKENS and whole >= _least(known):
            found.append(_moving(group, known, moving))
    found += _of_marks(group, known, moving)
    fixed = tokens_of(sum(len(one.text) for one in group.prompts[0].fixed))
    if moving is None and group.count > 1 and 0 < fixed < _least(known) <= 2 * fixed:
        finding = _finding(
            group,
            known,
            "below-minimum",
            group.prompts[0].fixed[-1].path,
            fixed,
            told=f"the same {fixed:,} tokens each time are fewer than the {_least(known):,} from "
            "which on this model's are kept",
            advice="put examples or reference text that is the same each time into the system "
            "prompt, if answers gain by it; caching alone is no reason",
        )
        found.append(finding)
    return found


def _moving(group: Group, known: Known, moving: Difference) -> Finding:
    return _finding(
        group, known, "moving-prefix", moving.path, moving.behind_tokens,
        told=f"{moving.what}: {moving.one!r}, {moving.other!r}; behind it about "
        f"{moving.behind_tokens:,} tokens are the same each time",
        advice=_ADVICE[moving.what],
        moving=moving,
    )  # fmt: skip


def _of_marks(group: Group, known: Known, moving: Difference | None) -> Iterable[Finding]:
    """The first request of each kind speaks for the group."""
    yielded: set[FindingKind] = set()
    for prompt in group.prompts:
        for finding in _marks(group, prompt, known, moving):
            if finding.kind not in yielded:
                yielded.add(finding.kind)
                yield finding


def _marks(
    group: Group, prompt: Prompt, known: Known, moving: Difference | None
) -> Iterable[Finding]:
    marked = [one for one in prompt.segments if one.marked]
    count = len(marked) + prompt.marks_whole
    fixed = prompt.fixed
    stays = tokens_of(sum(len(one.text) for one in fixed))
    if moving is not None:
        stays = moving.prefix_tokens
    if known.needs_marks and not count and group.count > 1 and 0 < stays >= _least(known):
        yield _finding(
            group, known, "no-breakpoint", fixed[-1].path, stays,
            told=f"about {stays:,} tokens at the beginning stay the same and there is no "
            "cache_control: this provider keeps nothing without one",
            advice='add "cache_control": {"type": "ephemeral"} to the last block that is the same '
            "each time",
        )  # fmt: skip
    if count > MOST_MARKS:
        path = (marked or fixed or prompt.segments)[-1].path
        yield _finding(
            group, known, "too-many-breakpoints", path, 0,
            told=f"{count} breakpoints, and a request may have {MOST_MARKS}: Anthropic refuses it, "
            "and where the gateway translates the first ones are left out",
            advice="mark the end of the tools, of the system prompt, and of the conversation",
        )  # fmt: skip
    if moving is not None and marked and known.needs_marks:
        tokens = _behind(prompt, moving.path)
        if tokens is not None:
            yield _finding(
                group, known, "breakpoint-behind-moving", marked[0].path, tokens,
                told=f"the first breakpoint is behind what moves ({moving.path}): it is written "
                "each time, which costs more than none, and never read",
                advice="put a breakpoint at the end of what stays, before what moves",
            )  # fmt: skip
    if marked and known.minimum_tokens is not None:
        size = 0
        for one in prompt.segments:
            size += len(one.text)
            if one.marked:
                break
        if tokens_of(size) < known.minimum_tokens and len(marked) == 1:
            yield _finding(
                group, known, "below-minimum", marked[0].path, 0,
                told=f"the breakpoint is after about {tokens_of(size):,} tokens, and this model "
                f"keeps {known.minimum_tokens:,} and more: it does nothing, without an error",
                advice="mark a later block, or leave it out",
            )  # fmt: skip


def _behind(prompt: Prompt, path: str) -> int | None:
    """Tokens up to the first mark, if what moves comes before it or is it."""
    size, is_behind = 0, False
    for one in prompt.segments:
        size += len(one.text)
        is_behind = is_behind or one.path == path
        if one.marked:
            return tokens_of(size) if is_behind else None
    return None


def _least(known: Known) -> int:
    return known.minimum_tokens or 0


def _finding(
    group: Group,
    known: Known,
    kind: FindingKind,
    path: str,
    tokens: int,
    *,
    told: str,
    advice: str,
    moving: Difference | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        model=group.model,
        key=group.key,
        application=group.name,
        requests=group.count,
        path=path,
        told=told,
        advice=advice,
        tokens=tokens,
        usd_per_1000_requests=_cost(known.price, kind, tokens),
        moving=None if moving is None else moving.what,
        one="" if moving is None else moving.one,
        other="" if moving is None else moving.other,
    )


def _cost(price: Price | None, kind: FindingKind, tokens: int) -> float | None:
    """What is paid more than with a cache that works, of a thousand requests."""
    if price is None or price.cache_read is None:
        return None
    each = price.input
    if kind == "breakpoint-behind-moving":
        each = price.input if price.cache_write is None else price.cache_write
    more = max(0, each - price.cache_read)
    return tokens * more * _REQUESTS / _TOKENS_PER_PRICE / NUSD_PER_USD
