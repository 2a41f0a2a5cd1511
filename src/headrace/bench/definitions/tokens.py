"""How many tokens came when: what a stream carried, and how much of it each chunk did.

Servers tell the total; few tell it chunk by chunk. Where they do not, a chunk's share of the
characters stands for its share of the tokens, which is exact where every chunk holds one token and
where all hold equally many, and close elsewhere. Counts always add up to the total.
"""

from __future__ import annotations

from headrace.bench.record import Chunk, RequestRecord


def streamed_tokens(record: RequestRecord) -> int | None:
    """Output tokens that the stream carried; None where nobody counted.

    A server that hides its reasoning bills it and does not send it: those tokens took their time
    before the first chunk, and would make the ones that came look faster than they were.
    """
    total = record.output_tokens
    told = record.usage
    if total is None or told.completion_tokens is None or not told.reasoning_tokens:
        return total
    if any(chunk.kind == "reasoning" for chunk in record.chunks):
        return total
    return max(0, total - told.reasoning_tokens)


def chunk_tokens(content: tuple[Chunk, ...], total: int | None) -> tuple[int, ...]:
    """Tokens in each content chunk: as told, or `total` shared out; one each if that is None too.

    Told counts that do not add up to `total` are not believed. Every chunk has at least one as far
    as `total` allows, and the first and last always do where there are two: what is shared out over
    more chunks than there are tokens (characters that came byte by byte) leaves some of those
    between with none.
    """
    told = tuple(chunk.tokens for chunk in content if chunk.tokens is not None)
    complete = content and len(told) == len(content) and told[0] and told[-1]
    if complete and total in (None, sum(told)):
        return told
    if total is None or total == len(content):
        return (1,) * len(content)
    if not content or not total:
        return (0,) * len(content)
    if total < len(content):
        return (1, *_shared(content[1:], total - 1, 0))
    return _shared(content, total, 1)


def _shared(content: tuple[Chunk, ...], tokens: int, least: int) -> tuple[int, ...]:
    """By characters, with at least `least` each; the sum is `tokens`."""
    characters = sum(len(chunk.text) for chunk in content)
    shares, seen, given = [], 0, 0
    for index, chunk in enumerate(content):
        seen += len(chunk.text)
        # Cumulative, so that rounding does not add up; what follows keeps its least.
        most = tokens - given - least * (len(content) - index - 1)
        share = min(max(tokens * seen // characters - given, least), most)
        shares.append(share)
        given += share
    return tuple(shares)


def token_gaps_ns(content: tuple[Chunk, ...], total: int | None) -> tuple[float, ...]:
    """A gap for every token after the first chunk: what the chunk waited, over its tokens.

    A chunk without a token of its own adds its wait to that of the next. The gaps add up to the
    time from first chunk to last, unless one token came in several chunks and none after it.
    """
    gaps: list[float] = []
    tokens = chunk_tokens(content, total)
    since = content[0].at_ns if content else 0
    for chunk, count in zip(content[1:], tokens[1:], strict=True):
        if count:
            gaps += [(chunk.at_ns - since) / count] * count
            since = chunk.at_ns
    return tuple(gaps)
