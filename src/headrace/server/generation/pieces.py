"""From the engine's token ids to pieces of text: one choice's way through detokenizer and stops.

A piece is what came at one time. Its text may lag behind its tokens (a character or a possible
stop string is not complete yet); its tokens and log probabilities never do. Closing a generation
early cancels the request in the engine, wherever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from headrace.engine.messages import Output, Prefill, Submit, TokenLogprob
from headrace.errors import EngineDeadError, HeadraceError, RequestError
from headrace.protocol.openai.choice import ChoiceMetrics
from headrace.server.admission.engine_turns import EngineTurn
from headrace.server.api_error import GenerationError
from headrace.server.model.engine import EngineLike
from headrace.telemetry.requests import RequestMetrics, Timeline
from headrace.text import TextStream

logger = logging.getLogger(__name__)

LEAST_TIMEOUT_S = 1e-6
"""An engine takes no deadline of 0; one that is over already ends the request at once."""

LogprobOfPrompt = Sequence[TokenLogprob | None]


class Piece(NamedTuple):
    """New text and tokens of a choice; the last has a finish_reason ("stop", "length",
    "timeout")."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] = ()
    text_offsets: Sequence[int] = ()
    """Where each token's text begins, in characters of the choice's text."""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """The stop string, or the id from stop_token_ids, that ended it."""
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    prompt_logprobs: LogprobOfPrompt | None = None
    """With one piece, where they were requested."""
    metrics: ChoiceMetrics | None = None
    """With the last piece."""
    prefill: Prefill | None = None
    """In place of all else, before the first token: how much of the prompt is computed."""


class Job(NamedTuple):
    """The state from which one choice is generated."""

    submit: Submit
    stream: TextStream
    """Fresh, from the ids to the text the client wants."""
    arrival_s: float
    prompt_index: int = 0
    """Index of its prompt in the call."""
    n: int = 1
    """Choices of that."""
    started: Callable[[], None] = lambda: None
    ended: Callable[[], None] = lambda: None
    """With `started`: called when the request leaves the engine's queue, and when it is over; each
    at most once."""
    turn: EngineTurn | None = None
    """Waited for before the request goes to the engine; None where it need not wait."""


def generate(
    engine: EngineLike, job: Job, *, metrics: RequestMetrics
) -> AsyncGenerator[Piece, None]:
    """Pieces of one choice, the last with a finish_reason. Nothing runs before the first is asked.

    Raises RequestError at once where the engine refuses the request, and, while iterating,
    EngineDeadError or GenerationError.
    """
    choice = _Choice(job, metrics)
    outputs = engine.generate(job.submit, on_started=choice.started)
    return choice.pieces(engine, outputs)


class _Choice:
    """One choice while it is generated: what is counted, and what the engine says beside tokens."""

    def __init__(self, job: Job, metrics: RequestMetrics) -> None:
        self._job = job
        self._metrics = metrics
        self._timeline: Timeline | None = None
        self._cached_tokens = 0
        self._cache_miss: str | None = None
        self._num_preemptions = 0
        self._draft_tokens = 0
        self._accepted_tokens = 0
        self._decode_s = 0.0
        self._decode_tokens = 0
        self._first_tokens = 0
        """How many came at once with the first."""
        self._turn_wait_s = 0.0

    def started(self, queue_s: float) -> None:
        """The request left the engine's queue."""
        if self._timeline is not None:
            self._metrics.started(self._timeline, queue_s + self._turn_wait_s)
        self._job.started()

    async def pieces(
        self, engine: EngineLike, outputs: AsyncGenerator[Output, None]
    ) -> AsyncGenerator[Piece, None]:
        """The pieces that the engine's outputs make; `outputs` are those of a request that need not
        wait for a turn."""
        timeline = self._timeline = self._arrived()
        reason = "abort"
        try:
            turn = self._job.turn
            if turn is not None and turn.state == "waiting":
                submit = await self._in_turn(turn)
                outputs = engine.generate(submit, on_started=self.started)
            async with aclosing(outputs):
                async for output in outputs:
                    self._note(output)
                    if output.finish_reason == "error":
                        reason = "error"
                        raise _failure_of(output)
                    if output.finish_reason == "abort":
                        raise EngineDeadError("it aborted all requests")
                    piece = _piece(self._job.stream, output)
                    self._count(timeline, piece, output)
                    if piece.finish_reason is not None:
                        reason = piece.finish_reason
                        yield piece._replace(metrics=self._figures(timeline))
                        return
                    yield piece
            reason = "error"
            raise GenerationError("the engine ended the request without a reason")
        finally:
            logger.debug(
                "request %s: %s, preempted %d times",
                self._job.submit.request_id,
                reason,
                self._num_preemptions,
            )
            self._metrics.ended(timeline, reason)
            self._job.ended()

    async def _in_turn(self, turn: EngineTurn) -> Submit:
        """What to send to the engine once there is a turn; also where its time is over before, as
        the engine ends it then with all that belongs to an end."""
        submit, queued_s = self._job.submit, self._metrics.clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(submit.timeout_s):
                await turn.wait()
        self._turn_wait_s = self._metrics.clock() - queued_s
        if submit.timeout_s is None:
            return submit
        left_s = max(LEAST_TIMEOUT_S, submit.timeout_s - self._turn_wait_s)
        return msgspec.structs.replace(submit, timeout_s=left_s)

    def _arrived(self) -> Timeline:
        submit = self._job.submit
        return self._metrics.arrived(
            self._job.arrival_s,
            len(submit.prompt_token_ids),
            submit.params.max_tokens or 0,
            request_id=submit.request_id,
            prompt_token_ids=submit.prompt_token_ids,
            prompt_index=self._job.prompt_index,
            n=self._job.n,
            temperature=submit.params.temperature,
            top_p=submit.params.top_p,
        )

    def _note(self, output: Output) -> None:
        if output.cached_tokens > self._cached_tokens:
            self._cached_tokens = output.cached_tokens
        self._num_preemptions = output.num_preemptions
        if output.draft_tokens:
            self._draft_tokens, self._accepted_tokens = output.draft_tokens, output.accepted_tokens
        self._first_tokens = self._first_tokens or len(output.token_ids)
        if output.decode_tokens:
            self._decode_s, self._decode_tokens = output.decode_s, output.decode_tokens
        if output.cache_miss is not None:
            self._cache_miss = output.cache_miss
            request_id = self._job.submit.request_id
            logger.debug("request %s: not cached: %s", request_id, output.cache_miss)

    def _count(self, timeline: Timeline, piece: Piece, output: Output) -> None:
        self._metrics.tokens(
            timeline,
            len(piece.token_ids),
            queue_s=output.queue_s + self._turn_wait_s,
            prefill_s=output.prefill_s,
            cached_tokens=output.cached_tokens,
            num_preemptions=output.num_preemptions,
            text=piece.text,
        )

    def _figures(self, timeline: Timeline) -> ChoiceMetrics:
        """The choice's metrics, at its end. The rate is that of the engine's steps: tokens wait for
        a busy reader and come at once, and the times at which they come have nothing of it."""
        first_s, last_s = timeline.first_token_s, timeline.last_token_s
        decode_s = None if first_s is None else last_s - first_s
        later_tokens = timeline.generated_tokens - self._first_tokens
        if self._decode_tokens:
            decode_s, later_tokens = self._decode_s, self._decode_tokens
        return ChoiceMetrics(
            queue_s=None if timeline.started_s is None else timeline.queue_s,
            prefill_s=None if first_s is None else timeline.prefill_s,
            ttft_s=None if first_s is None else first_s - timeline.arrival_s,
            decode_s=decode_s,
            e2e_s=self._metrics.clock() - timeline.arrival_s,
            output_tokens_per_s=later_tokens / decode_s if decode_s and later_tokens else None,
            cached_tokens=self._cached_tokens,
            cache_miss=self._cache_miss,
            num_preemptions=self._num_preemptions,
            draft_tokens=self._draft_tokens,
            accepted_draft_tokens=self._accepted_tokens,
        )


def _piece(stream: TextStream, output: Output) -> Piece:
    """The piece of an output; usage and log probabilities end with what completed a stop string."""
    taken = stream.take(
        output.token_ids, output.finish_reason, ends_with_text=output.ends_with_text
    )
    stopped = taken.stop is not None
    return Piece(
        text=taken.text,
        token_ids=output.token_ids[: taken.num_tokens],
        logprobs=output.logprobs[: taken.num_tokens] if output.logprobs else (),
        text_offsets=taken.text_offsets,
        finish_reason="stop" if stopped else output.finish_reason,
        stop_reason=taken.stop if stopped else output.stop_reason,
        cached_tokens=output.cached_tokens,
        prompt_logprobs=output.prompt_logprobs,
        prefill=output.prefill,
    )


def _failure_of(output: Output) -> HeadraceError:
    """Of a request that the engine gave up on: its own fault where the engine has a code for it."""
    if output.error_code is not None:
        return RequestError(str(output.error), code=output.error_code)
    return GenerationError(output.error or "the engine gave no cause")
