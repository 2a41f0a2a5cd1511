"""Every recorded stream, cut: clients get the same bytes, whatever the pieces they came in.

What readers make of cut streams is in `tests/protocol/dialects/test_cut_contract.py`. What clients
get is read byte by byte, over the whole length of each vendor's shortest stream.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.gateway.serving.passed_on import WithoutUsage
from tests.gateway.cassettes.heard import HEARD, asked
from tests.gateway.cassettes.playing import playing, wire
from tests.gateway.cassettes.recorded_streams import STREAMED, RecordedStream, recorded_streams
from tests.gateway.cassettes.recordings import Vendor, every
from tests.gateway.harness import ask
from tests.protocol.dialects.test_cut_contract import near_ends, spread
from tests.protocol.neutral.streams import cut_at

pytestmark = pytest.mark.usefixtures("recordings")

# The longest that clients of every dialect get byte by byte: some 0.3 s for each of them.
_MOST_FOR_ALL_BYTES = 7_000


PASSED_ON = pytest.mark.parametrize("name", ["openai", "azure", "openrouter", "openai-completions"])


def check_passed_on(stream: RecordedStream, ways: Iterable[tuple[str, Iterable[int]]]) -> None:
    """What is passed on of these pieces is what is passed on of the whole."""
    whole = WithoutUsage()
    wanted = whole.feed(stream.body) + whole.end()
    for way, cuts in ways:
        cut = WithoutUsage()
        passed_on = b"".join(map(cut.feed, cut_at(stream.body, cuts))) + cut.end()
        assert passed_on == wanted, f"{stream.at} {way}"


@PASSED_ON
def test_what_is_passed_on_without_usage_is_the_same(name: str) -> None:
    for stream in spread(recorded_streams(name)):
        check_passed_on(stream, near_ends(stream))


@pytest.mark.every_cut
@PASSED_ON
def test_it_is_the_same_byte_by_byte(name: str) -> None:
    for stream in recorded_streams(name)[:20]:  # the others would take longer and say no more
        check_passed_on(stream, [("byte by byte", range(len(stream.body))), *near_ends(stream)])


@pytest.mark.every_cut
@pytest.mark.parametrize("vendor", STREAMED, ids=lambda one: one.name)
async def test_clients_get_the_same_bytes_and_the_same_bill(vendor: Vendor) -> None:
    shortest = min(every(vendor.name, stream=True), key=lambda one: len(one.exchange.body))
    async with playing(vendor) as player:
        player.recording = shortest
        short = len(shortest.exchange.body) <= _MOST_FOR_ALL_BYTES
        for path in HEARD if short else ("/v1/messages",):
            told = []
            for cuts in ((), range(len(wire(shortest)))):
                player.cuts = cuts
                answer = await ask(
                    player.gateway.app,
                    asked(path, stream=True),
                    path=path,
                    headers={"x-request-id": "one"},
                )
                entry = player.entries[-1]
                line = (entry.usage, entry.finish, entry.outcome, entry.cost_nusd)
                told.append((answer.status, answer.body, line))
            assert told[0] == told[1], f"{path} {shortest.at}"
            assert told[0][0] == 200, f"{path} {shortest.at}"
