"""One answer of a chat: shown while it is generated, and its figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.offline.results import GenerationDelta

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""What a terminal would act on. A model can write escape sequences as well as any stranger."""


class Answer(NamedTuple):
    """Text and figures of one answer."""

    text: str
    finish_reason: str
    """"abort" where it was stopped by Ctrl-C."""
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    ttft_s: float | None
    """Time to the first token; None without one."""
    wall_s: float
    """Time from the question to the end."""
    context_tokens: int
    """Most tokens of prompt and answer."""

    @property
    def is_full(self) -> bool:
        """Whether it ended because the context holds no more."""
        used = self.prompt_tokens + self.output_tokens
        return self.finish_reason == "length" and used >= self.context_tokens

    def figures(self) -> str:
        """One line for people."""
        used = self.prompt_tokens + self.output_tokens
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        parts = [f"prompt {_tokens(self.prompt_tokens)}{cached}{self._prompt_speed()}"]
        parts.append(f"answer {_tokens(self.output_tokens)}{self._output_speed()}")
        if self.ttft_s is not None:
            parts.append(f"TTFT {_duration(self.ttft_s)}")
        parts.append(f"context {used:,} of {self.context_tokens:,}")
        return f"[{' · '.join(parts)}]"

    def _prompt_speed(self) -> str:
        """Of the tokens that were computed."""
        if not self.ttft_s:
            return ""
        return f", {(self.prompt_tokens - self.cached_tokens) / self.ttft_s:,.0f} tok/s"

    def _output_speed(self) -> str:
        """Of the tokens after the first, which the prompt's time brought."""
        if self.ttft_s is None or self.output_tokens < 2 or self.wall_s <= self.ttft_s:
            return ""
        return f", {(self.output_tokens - 1) / (self.wall_s - self.ttft_s):,.1f} tok/s"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def receive(
    deltas: Iterator[GenerationDelta],
    *,
    prompt_tokens: int,
    context_tokens: int,
    show: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """Read an answer to its end; Ctrl-C ends it and keeps what there is.

    show: print it on stdout meanwhile. Raises RequestError where it is refused, and HeadraceError
    where it failed.
    """
    start_s = clock()
    ttft_s = None
    pieces: list[str] = []
    output_tokens = cached_tokens = 0
    finish_reason = "abort"
    try:
        for delta in deltas:
            if ttft_s is None and delta.token_ids:
                ttft_s = clock() - start_s
            pieces.append(delta.text)
            output_tokens += len(delta.token_ids)
            cached_tokens = max(cached_tokens, delta.cached_tokens)
            if delta.error is not None:
                raise HeadraceError(delta.error)
            if show:
                click.echo(_shown(delta.text), nl=False)
                sys.stdout.flush()
            finish_reason = delta.finish_reason or finish_reason
    except KeyboardInterrupt:
        pass  # the person has read enough; closing cancels the request
    finally:
        deltas.close()  # type: ignore[attr-defined]  # a generator
    return Answer(
        text="".join(pieces),
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        ttft_s=ttft_s,
        wall_s=clock() - start_s,
        context_tokens=context_tokens,
    )


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _shown(text: str) -> str:
    return text.translate(_CONTROLS) if sys.stdout.isatty() else text
