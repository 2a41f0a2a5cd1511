"""Findings: which part of a group's prompts a provider cannot read from its cache, why, and what
to do.

A provider reads a prompt's beginning from its cache as far as it equals an earlier one, token by
token. OpenAI, Gemini and most others do so automatically; Anthropic up to a breakpoint in the
request.
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
from headrace.protocol.dialects.anthropic.request.cache_marks import MOST_MARKS
from headrace.protocol.neutral.dollars import NUSD_PER_USD

FindingKind = Literal[
    "moving-prefix", "no-breakpoint", "too-many-breakpoints", "breakpoint-behind-moving",
    "below-minimum",
]  # fmt: skip

_TOKENS_PER_PRICE = 1_000_000
_REQUESTS = 1000
# Fewer are not worth a change: providers cache in blocks of about 128.
_FEWEST_BEHIND_TOKENS = 100
_AT_THE_END = "move it after what stays the same: to the end of the system prompt or the last turn"
_ADVICE: dict[Moving, str] = {
    "timestamp": f"{_AT_THE_END}; usually the date alone is enough",
    "time": f"{_AT_THE_END}; usually the date alone is enough",
    "date": f"{_AT_THE_END}; it empties the cache once a day",
    "uuid": "omit it from the prompt, or put it into metadata",
    "request id": "omit it from the prompt, or put it into metadata",
    "counter": _AT_THE_END,
    "number": _AT_THE_END,
    "name": "put what is known of the user into the first turn, after the system prompt",
    "order of tools": "send the tools in one fixed order, for example by name",
    "order of JSON keys": "write JSON with its keys in a fixed order (sort_keys=True)",
    "white space": "always write the prompt in the same form",
    "tools": "send all tools each time and select in tool_choice which may be called",
    "text": _AT_THE_END,
}


class Known(NamedTuple):
    """The price and cache limits of the model that a request names."""

    price: Price | None = None
    """None if unknown."""
    minimum_tokens: int | None = None
    """A shorter prefix is not cached; None if unknown."""
    needs_marks: bool = False
    """Whether its provider caches only up to breakpoints."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that keeps a group's prompts from being read from a provider's cache."""

    kind: FindingKind
    model: str
    key: str
    application: str
    requests: int
    """Requests of the group."""
    path: str
    told: str
    advice: str
    tokens: int
    """Estimated tokens per request that cannot be read from the cache because of it."""
    usd_per_1000_requests: float | None
    """What they cost more than from the cache; None if a price is unknown."""
    moving: Moving | None = None
    one: str = ""
    """The changing part in one request."""
    other: str = ""
    """The changing part in another request."""


def findings_of(
    prompts: Iterable[tuple[Prompt, str]], known: Callable[[str], Known]
) -> list[Finding]:
    """The findings, most expensive first. `prompts` come with the keys they were sent with."""
    findings: list[Finding] = []
    for group in groups_of(prompts):
        findings += _of_group(group, known(group.model))
    return sorted(
        findings, key=lambda finding: (-(finding.usd_per_1000_requests or 0.0), -finding.tokens)
    )


def _of_group(group: Group, known: Known) -> list[Finding]:
    findings: list[Finding] = []
    moving = difference_of(group.prompts)
    if moving is not None:
        behind = moving.behind_tokens + shared_turns_tokens(group.prompts)
        moving = moving._replace(behind_tokens=behind)
        whole = behind + moving.prefix_tokens
        if behind >= _FEWEST_BEHIND_TOKENS and whole >= _least(known):
            findings.append(_moving(group, known, moving))
    findings += _of_marks(group, known, moving)
    fixed = tokens_of(sum(len(segment.text) for segment in group.prompts[0].fixed))
    if moving is None and group.count > 1 and 0 < fixed < _least(known) <= 2 * fixed:
        finding = _finding(
            group,
            known,
            "below-minimum",
            group.prompts[0].fixed[-1].path,
            fixed,
            told=f"the {fixed:,} tokens that are the same each time are fewer than the "
            f"{_least(known):,} from which this model's prompts are cached",
            advice="put examples or reference text that is the same each time into the system "
            "prompt, if answers improve by it; caching alone is not a reason",
        )
        findings.append(finding)
    return findings


def _moving(group: Group, known: Known, moving: Difference) -> Finding:
    return _finding(
        group, known, "moving-prefix", moving.path, moving.behind_tokens,
        told=f"{moving.what}: {moving.one!r}, {moving.other!r}; after it about "
        f"{moving.behind_tokens:,} tokens are the same each time",
        advice=_ADVICE[moving.what],
        moving=moving,
    )  # fmt: skip


def _of_marks(group: Group, known: Known, moving: Difference | None) -> Iterable[Finding]:
    """Findings about breakpoints, one of each kind for the group."""
    yielded: set[FindingKind] = set()
    for prompt in group.prompts:
        for finding in _marks(group, prompt, known, moving):
            if finding.kind not in yielded:
                yielded.add(finding.kind)
                yield finding


def _marks(
    group: Group, prompt: Prompt, known: Known, moving: Difference | None
) -> Iterable[Finding]:
    marked = [segment for segment in prompt.segments if segment.marked]
    count = len(marked) + prompt.marks_whole
    fixed = prompt.fixed
    stays = tokens_of(sum(len(segment.text) for segment in fixed))
    if moving is not None:
        stays = moving.prefix_tokens
    if known.needs_marks and not count and group.count > 1 and 0 < stays >= _least(known):
        yield _finding(
            group, known, "no-breakpoint", fixed[-1].path, stays,
            told=f"about {stays:,} tokens at the beginning stay the same and there is no "
            "cache_control: this provider caches nothing without it",
            advice='add "cache_control": {"type": "ephemeral"} to the last block that is the same '
            "each time",
        )  # fmt: skip
    if count > MOST_MARKS:
        path = (marked or fixed or prompt.segments)[-1].path
        yield _finding(
            group, known, "too-many-breakpoints", path, 0,
            told=f"{count} breakpoints, but a request may have {MOST_MARKS}: Anthropic refuses it, "
            "and where the gateway translates, the first ones are dropped",
            advice="mark the end of the tools, of the system prompt, and of the conversation",
        )  # fmt: skip
    if moving is not None and marked and known.needs_marks:
        tokens = _behind(prompt, moving.path)
        if tokens is not None:
            yield _finding(
                group, known, "breakpoint-behind-moving", marked[0].path, tokens,
                told=f"the first breakpoint comes after what changes ({moving.path}): the cache is "
                "written each time, which costs more than no cache, and never read",
                advice="put a breakpoint at the end of what stays the same, before what changes",
            )  # fmt: skip
    if marked and known.minimum_tokens is not None:
        size = 0
        for segment in prompt.segments:
            size += len(segment.text)
            if segment.marked:
                break
        if tokens_of(size) < known.minimum_tokens and len(marked) == 1:
            yield _finding(
                group, known, "below-minimum", marked[0].path, 0,
                told=f"the breakpoint is after about {tokens_of(size):,} tokens, and this model "
                f"caches {known.minimum_tokens:,} or more: it has no effect, and no error says so",
                advice="mark a later block, or omit the breakpoint",
            )  # fmt: skip


def _behind(prompt: Prompt, path: str) -> int | None:
    """The tokens up to the first mark if it is at or after what changes."""
    size, is_behind = 0, False
    for segment in prompt.segments:
        size += len(segment.text)
        is_behind = is_behind or segment.path == path
        if segment.marked:
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
    """The extra cost compared with a working cache, per thousand requests."""
    if price is None or price.cache_read is None:
        return None
    each = price.input
    if kind == "breakpoint-behind-moving":
        each = price.input if price.cache_write is None else price.cache_write
    more = max(0, each - price.cache_read)
    return tokens * more * _REQUESTS / _TOKENS_PER_PRICE / NUSD_PER_USD
