"""What was counted, by whom, and whether server and client agree.

They need not: templates, special tokens, hidden reasoning and different tokenizers all show here.
A figure per token is only as good as this count. Knows no times.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.bench.record import RequestRecord

DISAGREES_BEYOND = 0.1
"""AIPerf warns of the same share."""


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over completed requests; None where no request was counted that way.

    *_disagreement: |server − client| over client, summed over requests that both counted.
    """

    prompt_server: int | None
    prompt_client: int | None
    prompt_disagreement: float | None
    output_server: int | None
    output_client: int | None
    output_disagreement: float | None
    disagreeing: int
    """Requests whose prompt or output differs by more than DISAGREES_BEYOND."""
    uncounted: int
    """Requests whose output was not counted."""
    reasoning: int | None
    cached: int | None
    cached_share: float | None
    """Share of cached tokens in the prompts for which the server reported it."""
    off_length: int | None
    """Requests whose output is not as long as requested."""


def count_tokens(records: Sequence[RequestRecord]) -> TokenCount:
    """Of completed requests."""
    prompts = [(one.usage.prompt_tokens, one.client_prompt_tokens) for one in records]
    outputs = [(one.usage.completion_tokens, one.client_output_tokens) for one in records]
    told = [one for one in records if one.usage.cached_tokens is not None]
    cached_of = sum(one.usage.prompt_tokens or 0 for one in told)
    cached = _sum([one.usage.cached_tokens for one in records])
    asked = [
        one.output_tokens != one.output_tokens_asked
        for one in records
        if one.output_tokens is not None and one.output_tokens_asked is not None
    ]
    return TokenCount(
        prompt_server=_sum([server for server, _ in prompts]),
        prompt_client=_sum([client for _, client in prompts]),
        prompt_disagreement=_disagreement(prompts),
        output_server=_sum([server for server, _ in outputs]),
        output_client=_sum([client for _, client in outputs]),
        output_disagreement=_disagreement(outputs),
        disagreeing=sum(
            _differs(prompt) or _differs(output)
            for prompt, output in zip(prompts, outputs, strict=True)
        ),
        uncounted=sum(one.output_tokens is None for one in records),
        reasoning=_sum([one.usage.reasoning_tokens for one in records]),
        cached=cached,
        cached_share=cached / cached_of if cached is not None and cached_of else None,
        off_length=sum(asked) if asked else None,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _disagreement(pairs: Sequence[tuple[int | None, int | None]]) -> float | None:
    both = [(s, c) for s, c in pairs if s is not None and c is not None]
    counted = sum(client for _, client in both)
    return sum(abs(server - client) for server, client in both) / counted if counted else None


def _differs(pair: tuple[int | None, int | None]) -> bool:
    server, client = pair
    if server is None or client is None:
        return False
    return abs(server - client) > DISAGREES_BEYOND * client
