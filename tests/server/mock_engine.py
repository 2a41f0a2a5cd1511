"""An engine without a model: it says what a test scripts, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from headrace.engine.messages import EngineInfo, FinishReason, Output, Stats, Submit, TokenLogprob
from headrace.engine.process.status import EngineStatus
from headrace.errors import EngineDeadError
from tests.tiny import EOS

MAX_MODEL_LEN = 256
VOCAB_SIZE = 288

INFO = EngineInfo(
    model_type="mock",
    vocab_size=VOCAB_SIZE,
    max_model_len=MAX_MODEL_LEN,
    block_size=16,
    num_blocks=64,
    pool_tokens=64 * 16,
    kv_cache_dtype="f32",
    backend="mock",
    cpu_level="none",
    num_threads=1,
    weight_codec="F32",
    weight_bytes=1000,
    kv_bytes=2000,
    phases_s={"open": 0.25, "weights": 0.5},
)

Reply = Callable[[Submit], AsyncIterator[Output]]


@dataclass
class MockEngine:
    """`reply` makes the outputs of each request. Lists are filled as requests come and go."""

    reply: Reply
    info: EngineInfo = INFO
    stats: Stats = field(default_factory=Stats)
    alive: bool = True
    submitted: list[Submit] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when a request has ended, in whatever way; clear it to wait for the next."""

    @property
    def status(self) -> EngineStatus:
        return EngineStatus() if self.alive else EngineStatus("failed", failure="the mock is dead")

    async def reset_prefix_cache(self) -> int:
        return 7

    async def restart(self, reason: str) -> None:
        self.restarted.append(reason)

    async def generate(
        self, submit: Submit, *, on_started: Callable[[float], None] | None = None
    ) -> AsyncGenerator[Output, None]:
        if not self.alive:
            raise EngineDeadError("the mock is dead")
        self.submitted.append(submit)
        if on_started is not None:
            on_started(0.25)
        done = False
        try:
            async for output in self.reply(submit):
                done = output.finish_reason is not None
                yield output
        finally:
            (self.finished if done else self.cancelled).append(submit.request_id)
            self.ended.set()

    async def close(self) -> None:
        self.alive = False


def says(
    text: str | Sequence[int],
    *,
    cut: int | Sequence[int] = 1,
    ends: bool = True,
    delay_s: float = 0.0,
    cached_tokens: int = 0,
) -> Reply:
    """A reply of these bytes (or ids), `cut` ids per output, then EOS unless `ends` is false.

    cut may also be the sizes of the first outputs; the rest is one output. max_tokens is kept.
    """
    ids = [*text.encode()] if isinstance(text, str) else [*text]

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        said = [*ids, EOS] if ends and not submit.params.ignore_eos else [*ids]
        wanted = submit.params.max_tokens
        limit = MAX_MODEL_LEN if wanted is None else wanted
        for index, part in enumerate(cut_up(said[:limit], cut)):
            await asyncio.sleep(delay_s)
            whole = sum(len(p) for p in cut_up(said[:limit], cut)[: index + 1]) == len(said[:limit])
            reason = _reason(said, limit) if whole else None
            told = prompt_logprobs(submit) if index == 0 else None
            yield output(submit, part, reason, cached_tokens, prompt_logprobs=told)

    return reply


def _reason(said: list[int], limit: int) -> FinishReason:
    return "length" if limit < len(said) or said[-1] != EOS else "stop"


def cut_up(ids: Sequence[int], cut: int | Sequence[int]) -> list[list[int]]:
    """The ids in pieces: of equal size, or of the sizes given and a rest."""
    sizes = [cut] * math.ceil(len(ids) / cut) if isinstance(cut, int) else [*cut, len(ids)]
    parts, at = [], 0
    for size in sizes:
        parts.append([*ids[at : at + size]])
        at += size
    return [part for part in parts if part] or [[]]


def output(
    submit: Submit,
    ids: list[int],
    reason: FinishReason | None = None,
    cached_tokens: int = 0,
    stop_reason: int | None = None,
    prompt_logprobs: list[TokenLogprob | None] | None = None,
) -> Output:
    """An output with log probabilities, if they were asked for."""
    wanted = submit.params.logprobs
    logprobs = None if wanted is None else [logprob(token_id, wanted) for token_id in ids]
    return Output(
        submit.request_id,
        ids,
        logprobs=logprobs,
        finish_reason=reason,
        stop_reason=stop_reason,
        cached_tokens=cached_tokens,
        queue_s=0.25,
        prefill_s=0.5,
        prompt_logprobs=prompt_logprobs,
    )


def prompt_logprobs(submit: Submit) -> list[TokenLogprob | None] | None:
    """What the first output says of the prompt, if it was asked for."""
    wanted = submit.params.prompt_logprobs
    if wanted is None:
        return None
    return [None, *(logprob(token_id, wanted) for token_id in submit.prompt_token_ids[1:])]


def logprob(token_id: int, wanted: int) -> TokenLogprob:
    """-id/1000 for a token; its rivals are the ids after it, the last of them impossible."""
    top = [((token_id + 1 + i) % VOCAB_SIZE, -float(i)) for i in range(wanted)]
    if wanted:
        top[-1] = (top[-1][0], -math.inf)
    return TokenLogprob(token_id, -token_id / 1000, wanted + 1, top)
