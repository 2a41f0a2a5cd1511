"""The line about itself that a client puts before its system text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.protocol.dialects.anthropic.request.billing import call_for, without_billing
from tests.protocol.dialects.anthropic.read_calls import read

LINE = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;"
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "system",
    [
        [{"type": "text", "text": LINE}, {"type": "text", "text": "You help."}],
        [{"type": "text", "text": f"{LINE}\n\nYou help."}],
        f"{LINE}\nYou help.",
    ],
)
def test_system_text_loses_the_line_in_other_dialects(system: Any) -> None:
    call = read(system=system)
    assert [text.text for text in call_for(call, "openai-chat").instructions] == ["You help."]
    assert call_for(call, "anthropic") is call


def test_nothing_else_changes() -> None:
    call = read(system=f"You help.\n{LINE}", messages=[{"role": "user", "content": LINE}])
    assert without_billing(call) == call


def test_a_system_message_of_the_line_alone_is_dropped() -> None:
    line = {"type": "text", "text": LINE}
    late = {"role": "system", "content": [line, {"type": "text", "text": "late"}]}
    call = read(messages=[USER, {"role": "system", "content": [line]}, USER, late])
    kept = without_billing(call).messages
    assert kept[:2] == (call.messages[0], call.messages[2])
    assert [part.text for part in kept[2].parts] == ["late"]  # type: ignore[union-attr]
    assert len(kept) == 3


def test_a_call_of_another_dialect_keeps_it() -> None:
    call = msgspec.structs.replace(read(system=LINE), dialect="openai-chat")
    assert call_for(call, "gemini") is call
