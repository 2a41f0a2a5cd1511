"""What is said of a run whose requests failed."""

from __future__ import annotations

import msgspec

from headrace.bench.load.failures import failure_report
from headrace.bench.record import Failure
from tests.bench.streams import stream


def test_a_field_that_is_refused_is_told_with_the_flag_that_helps() -> None:
    failure = Failure("http", "HTTP 400: Unsupported parameter: 'max_tokens'")
    record = msgspec.structs.replace(stream(failure=failure, end_ms=1), status=400)
    assert failure_report([record]) == (
        "HTTP 400: Unsupported parameter: 'max_tokens' (1 http); measure it with "
        "--max-tokens-field max_completion_tokens"
    )
