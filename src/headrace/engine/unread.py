"""What one stream's reader has not taken yet: kept without loss, joined when much, weighed.

An engine does not wait for readers, so what a slow one leaves piles up here; whoever puts outputs
in watches `num_bytes`. Used from one event loop, with one reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from headrace.engine.messages import Output, TokenLogprob

# Rough sizes of the objects of CPython, for a sum that is right within a factor of two.
_OUTPUT_BYTES = 256
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 150
_RIVAL_BYTES = 136

SEPARATE = 64
"""Up to so many, a reader gets outputs as the engine made them: it is late, but not slow."""

_FAILED = ("abort", "error")


class Unread:
    """Outputs of a request between `put` and `take`."""

    def __init__(self) -> None:
        self.num_bytes = 0
        """About the memory that what waits here takes."""
        self._outputs: list[Output] = []
        self._closed = False
        self._news = asyncio.Event()

    def put(self, output: Output) -> None:
        """Add the next output."""
        self._outputs.append(output)
        self.num_bytes += _size(output)
        self._news.set()

    def close(self) -> None:
        """Nothing follows; what waits can still be taken."""
        self._closed = True
        self._news.set()

    def replace(self, output: Output) -> None:
        """Forget what waits for a last output."""
        self._outputs, self.num_bytes = [], 0
        self.put(output)

    async def take(self) -> Output | None:
        """The next output, or all that waits as one where it is much; None once closed and empty.

        A failure comes by itself, after what preceded it.
        """
        while not self._outputs:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        end = 1
        if len(self._outputs) > SEPARATE:
            end = len(self._outputs) - (self._outputs[-1].finish_reason in _FAILED)
        taken, self._outputs = self._outputs[:end], self._outputs[end:]
        self.num_bytes -= sum(map(_size, taken))
        return _joined(taken)


def _size(output: Output) -> int:
    return (
        _OUTPUT_BYTES
        + len(output.token_ids) * _TOKEN_BYTES
        + _logprob_bytes(output.logprobs)
        + _logprob_bytes(output.prompt_logprobs)
    )


def _logprob_bytes(logprobs: Sequence[TokenLogprob | None] | None) -> int:
    if logprobs is None:
        return 0
    rivals = sum(len(one.top) for one in logprobs if one is not None)
    return len(logprobs) * _LOGPROB_BYTES + rivals * _RIVAL_BYTES


def _joined(outputs: Sequence[Output]) -> Output:
    """Consecutive outputs of a request as one that says the same."""
    last = outputs[-1]
    if len(outputs) == 1:
        return last
    with_logprobs = any(output.logprobs is not None for output in outputs)
    return msgspec.structs.replace(
        last,
        token_ids=[token_id for output in outputs for token_id in output.token_ids],
        logprobs=[one for output in outputs for one in output.logprobs or ()]
        if with_logprobs
        else None,
        cached_tokens=max(output.cached_tokens for output in outputs),
        # Only one of them holds the first token, and the others say 0 or nothing.
        queue_s=sum(output.queue_s for output in outputs),
        prefill_s=sum(output.prefill_s for output in outputs),
        cache_miss=next((one.cache_miss for one in outputs if one.cache_miss is not None), None),
        prompt_logprobs=next(
            (one.prompt_logprobs for one in outputs if one.prompt_logprobs is not None), None
        ),
    )
