"""One answer of a chat: shown while it is generated, and its figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from headrace.cli.chat.conversation import Call
    from headrace.cli.chat.model import ChatDelta

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""What a terminal would act on. A model can write escape sequences as well as any stranger."""


class Answer(NamedTuple):
    """Text and figures of one answer."""

    text: str
    finish_reason: str
    """"abort" where it was stopped by Ctrl-C."""
    prompt_tokens: int | None
    """None where it was stopped before a server reported it."""
    output_tokens: int
    cached_tokens: int
    ttft_s: float | None
    """Time to the first token; None without one."""
    wall_s: float
    """Time from the question to the end."""
    context_tokens: int | None
    """Most tokens of prompt and answer; None if unknown."""
    reasoning: str = ""
    """What the model wrote before the text."""
    calls: tuple[Call, ...] = ()
    """The tools that it calls."""

    @property
    def is_full(self) -> bool:
        """Whether it ended because the context holds no more."""
        used, context = self._used_tokens, self.context_tokens
        if used is None or context is None:
            return False
        return self.finish_reason == "length" and used >= context

    @property
    def is_reasoning_alone(self) -> bool:
        """Whether it was cut before anything but reasoning came."""
        return self.finish_reason == "length" and bool(self.reasoning) and not self.text

    def figures(self) -> str:
        """One line for people."""
        parts = []
        if self.prompt_tokens is not None:
            cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
            parts.append(f"prompt {_tokens(self.prompt_tokens)}{cached}{self._prompt_speed()}")
        parts.append(f"answer {_tokens(self.output_tokens)}{self._output_speed()}")
        if self.ttft_s is not None:
            parts.append(f"TTFT {_duration(self.ttft_s)}")
        used = self._used_tokens
        if used is not None and self.context_tokens is not None:
            parts.append(f"context {used:,} of {self.context_tokens:,}")
        return f"[{' · '.join(parts)}]"

    @property
    def _used_tokens(self) -> int | None:
        return None if self.prompt_tokens is None else self.prompt_tokens + self.output_tokens

    def _prompt_speed(self) -> str:
        """Of the tokens that were computed."""
        if not self.ttft_s or self.prompt_tokens is None:
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
    deltas: Iterator[ChatDelta],
    *,
    context_tokens: int | None,
    show: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """Read an answer to its end; Ctrl-C ends it and keeps what there is.

    show: print it on stdout meanwhile, its reasoning dimmed in a terminal and plain elsewhere, with
    an empty line behind it. Raises RequestError where it is refused, and HeadraceError
    where it failed.
    """
    start_s = clock()
    ttft_s = prompt_tokens = None
    pieces: list[str] = []
    reasoning: list[str] = []
    calls: list[Call] = []
    output_tokens = cached_tokens = 0
    finish_reason = "abort"
    try:
        for delta in deltas:
            if ttft_s is None and delta.output_tokens:
                ttft_s = clock() - start_s
            after_reasoning = not pieces and bool(reasoning or delta.reasoning)
            if delta.text:
                pieces.append(delta.text)
            if delta.reasoning:
                reasoning.append(delta.reasoning)
            calls += delta.calls
            output_tokens += delta.output_tokens
            cached_tokens = max(cached_tokens, delta.cached_tokens)
            if delta.prompt_tokens is not None:
                prompt_tokens = delta.prompt_tokens
            finish_reason = delta.finish_reason or finish_reason
            if show:  # last: whoever sees a text and stops the answer there keeps that text
                _print(delta, after_reasoning=after_reasoning)
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
        reasoning="".join(reasoning),
        calls=tuple(calls),
    )


def _print(delta: ChatDelta, *, after_reasoning: bool) -> None:
    """A part of an answer. after_reasoning: its text is the first that follows reasoning."""
    if delta.reasoning:
        # None lets click look whether stdout is a terminal.
        color = False if os.environ.get("NO_COLOR") else None
        click.secho(_shown(delta.reasoning), dim=True, nl=False, color=color)
    if delta.text:
        gap = "\n\n" if after_reasoning else ""
        click.echo(gap + _shown(delta.text), nl=False)
    sys.stdout.flush()


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _shown(text: str) -> str:
    return text.translate(_CONTROLS) if sys.stdout.isatty() else text
