"""What is said of the requests of a run that failed.

One line: what happened, how often by class, and what to do where the message does not say it. The
message is of the first measured failure of the class that came most often; requests that the end of
the run cut off are told of only where there is nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.bench.client.refused_field import refused_field
from headrace.bench.record import Failure, RequestRecord

KEY_VARIABLES = ("HEADRACE_BENCH_API_KEY", "OPENAI_API_KEY")

_LOG = "the server's log may say why"
_REMEDIES = {
    "timeout": "raise --timeout, or lower the load",
    "truncated": f"{_LOG}, or the log of a proxy in front of it",
    "stream": _LOG,
    "cancelled": "raise --duration or --grace",
}


class _Failed(NamedTuple):
    record: RequestRecord
    failure: Failure


def failure_report(requests: Iterable[RequestRecord]) -> str:
    """In one line without secrets."""
    failed = [_Failed(one, one.failure) for one in requests if one.failure is not None]
    at_work = [one for one in failed if one.failure.kind != "cancelled"] or failed
    measured = [one for one in at_work if one.record.measured] or at_work
    if not measured:
        return "no request was sent"
    classes = Counter(one.failure.kind for one in measured)
    most = classes.most_common(1)[0][0]
    record, failure = next(one for one in measured if one.failure.kind == most)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in classes.most_common())
    remedy = _remedy(record, failure)
    return f"{failure.message} ({counts}){'; ' if remedy else ''}{remedy}"


def _remedy(record: RequestRecord, failure: Failure) -> str:
    if failure.kind != "http" or record.status is None:
        return _REMEDIES.get(failure.kind, "")
    if record.status in (401, 403):
        return f"set {' or '.join(KEY_VARIABLES)}"
    if record.status == 429:
        return "lower -c or --rate"
    refused = refused_field(record.status, failure.message)
    if refused is not None:
        return f"measure it with {refused.flag}"
    return _LOG if record.status >= 500 else ""
