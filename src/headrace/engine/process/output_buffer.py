"""What one stream's reader has not taken yet: kept without loss, joined when much, weighed.

An engine does not wait for readers, so what a slow one leaves piles up here; whoever puts outputs
in watches `num_bytes`. Used from one event loop, with one reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from headrace.engine.messages import Output

# Rough sizes of the objects of CPython, for a sum that is right within a factor of two.
_OUTPUT_BYTES = 256
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 150
_RIVAL_BYTES = 136

SEPARATE = 64
"""Up to so many, a reader gets outputs as the engine made them: it is late, but not slow."""

_FAILED = ("abort", "error")


class OutputBuffer:
    """Outputs of a request between `put` and `take`."""

    def __init__(self) -> None:
        self.num_bytes = 0
        """About the memory that what waits here takes, prompt_logprobs apart: they come once, of a
        size that is bounded at submission, so they say nothing of how slow a reader is."""
        self._outputs: deque[Output] = deque()
        self._closed = False
        self._reader: asyncio.Future[None] | None = None

    def put(self, output: Output) -> None:
        """Add the next output."""
        self._outputs.append(output)
        self.num_bytes += _size(output)
        self._wake()

    def close(self) -> None:
        """Nothing follows; what waits can still be taken."""
        self._closed = True
        self._wake()

    def replace(self, output: Output) -> None:
        """Forget what waits for a last output."""
        self._outputs.clear()
        self.num_bytes = 0
        self.put(output)

    async def take(self) -> Output | None:
        """The next output, or all that waits as one where it is much; None once closed and empty.

        A failure comes by itself, after what preceded it.
        """
        while not self._outputs:
            if self._closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if len(self._outputs) <= SEPARATE:
            output = self._outputs.popleft()
            self.num_bytes -= _size(output)
            return output
        failed = [self._outputs.pop()] if self._outputs[-1].finish_reason in _FAILED else []
        joined = _joined(self._outputs)
        self._outputs = deque(failed)
        self.num_bytes = sum(map(_size, failed))
        return joined

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _size(output: Output) -> int:
    size = _OUTPUT_BYTES + len(output.token_ids) * _TOKEN_BYTES
    if output.logprobs is None:
        return size
    rivals = sum(len(logprob.top) for logprob in output.logprobs)
    return size + len(output.logprobs) * _LOGPROB_BYTES + rivals * _RIVAL_BYTES


def _joined(outputs: Sequence[Output]) -> Output:
    """Consecutive outputs of a request as one that says the same."""
    last = outputs[-1]
    with_logprobs = any(output.logprobs is not None for output in outputs)
    return msgspec.structs.replace(
        last,
        token_ids=[token_id for output in outputs for token_id in output.token_ids],
        logprobs=[logprob for output in outputs for logprob in output.logprobs or ()]
        if with_logprobs
        else None,
        cached_tokens=max(output.cached_tokens for output in outputs),
        # Only one of them holds the first token, and the others say 0 or nothing.
        queue_s=sum(output.queue_s for output in outputs),
        prefill_s=sum(output.prefill_s for output in outputs),
        cache_miss=next((each.cache_miss for each in outputs if each.cache_miss is not None), None),
        prompt_logprobs=next(
            (each.prompt_logprobs for each in outputs if each.prompt_logprobs is not None), None
        ),
    )
