from __future__ import annotations

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.neutral.dialect import ClientSide, ProviderSide


def test_both_sides_are_offered() -> None:
    client: ClientSide = CLIENT
    provider: ProviderSide = PROVIDER
    assert client.name == provider.name == "openai-responses"
    assert client.stream_type().startswith("text/event-stream")
