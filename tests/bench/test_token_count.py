"""Token counts of server and client, and where they part."""

from __future__ import annotations

from headrace.bench.record import Usage
from headrace.bench.token_count import count_tokens
from tests.bench.streams import stream


def test_sums_and_disagreement_by_hand() -> None:
    got = count_tokens(
        [
            stream(
                (9, "text", "a"),
                usage=Usage(prompt_tokens=110, completion_tokens=50, cached_tokens=64),
                client_prompt_tokens=100,
                counted=50,
                output_tokens_asked=50,
            ),
            stream(
                (9, "text", "a"),
                usage=Usage(prompt_tokens=100, completion_tokens=60, reasoning_tokens=7),
                client_prompt_tokens=100,
                counted=50,
                output_tokens_asked=50,
            ),
            stream((9, "text", "a"), counted=8),
            stream((9, "text", "a")),
        ]
    )
    assert (got.prompt_server, got.prompt_client) == (210, 200)
    assert got.prompt_disagreement == 10 / 200
    assert (got.output_server, got.output_client) == (110, 108)
    assert got.output_disagreement == 10 / 100, "only requests that both counted"
    assert got.disagreeing == 1, "a tenth is allowed, a fifth is not"
    assert (got.cached, got.cached_share) == (64, 64 / 110)
    assert (got.reasoning, got.uncounted, got.off_length) == (7, 1, 1)


def test_what_nobody_counted_is_none() -> None:
    got = count_tokens([stream((9, "text", "a"))])
    assert got.prompt_server is got.output_client is got.output_disagreement is None
    assert got.cached is got.cached_share is got.off_length is got.reasoning is None
    assert (got.disagreeing, got.uncounted) == (0, 1)
    assert count_tokens([]).uncounted == 0
