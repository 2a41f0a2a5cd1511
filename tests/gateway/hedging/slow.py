"""Providers that take their time."""

from __future__ import annotations

import asyncio

from tests.gateway.openai_provider import Answer, answers

NEVER_S = 3600.0


def after(delay_s: float, inner: Answer | None = None) -> Answer:
    """Nothing for so long, then as `inner`."""
    chosen = inner or answers("from there")

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(delay_s)
        if not writer.is_closing():
            await chosen(number, request, writer)

    return answer
