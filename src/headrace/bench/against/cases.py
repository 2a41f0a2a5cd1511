"""What both servers are asked, and how fast each answer was, from the records of its requests.

Rates count what the server itself counted (`usage`), and are of the client's clock: what a user of
that server would see, its HTTP and its tokenizer included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from headrace.bench.load.failures import failure_report
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.load.prompt_options import PromptOptions
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.record import RequestRecord
from headrace.errors import ConfigError, HeadraceError, shown

_NS_PER_S = 1e9
_ONE_ARRIVAL_NS = 50_000
"""Pieces that come as close together as this were waiting for the client."""
_TOKENS_PER_ARRIVAL = 32
"""Of an answer, at most: more than a server's drafts give at once, so that those are still seen."""
_SHARE_AT_AN_END = 4
"""One piece in so many may arrive together at an end; the pace is wrong by about that share."""


class UnseenPaceError(HeadraceError):
    """An answer that came in too few arrivals for its pace to be seen; another run may show it."""


class AgainstCase(NamedTuple):
    """One load: `users` requests at once of `prompt` tokens each, with `new` tokens of answer."""

    name: str
    users: int
    prompt: int
    new: int
    figure: Literal["prefill", "decode", "total"]
    """prefill: prompt tokens by the time until the whole answer, of one token, is there; decode:
    tokens after the first by the time from the first to the last; total: prompts and answers of all
    requests by the time from the first request to the last answer. All in tokens per second."""
    shared: int = 0
    """Tokens of `prompt` with which every prompt begins."""
    sampled: bool = False
    """With a temperature, top_k and top_p, not greedily."""

    @property
    def positions(self) -> int:
        """Longest that a request becomes."""
        return self.prompt + self.new

    @property
    def load(self) -> LoadOptions:
        """All of its requests at once."""
        return LoadOptions(concurrency=self.users, requests=self.users)

    def prompts(self, seed: int) -> PromptOptions:
        """Of one run; the same for the same seed."""
        drawing = _SAMPLED if self.sampled else _GREEDY
        return PromptOptions(
            input_tokens=str(self.prompt - self.shared),
            output_tokens=str(self.new),
            prefix_tokens=str(self.shared) if self.shared else None,
            request=RequestOptions(ignore_eos=True, extra_body=dict(drawing)),
            seed=seed,
        )


def _streams(users: int, *, sampled: bool = False) -> AgainstCase:
    name = f"sampled-{users}" if sampled else f"streams-{users}"
    return AgainstCase(name, users, 128, 128, "total", sampled=sampled)


def _shared(tokens: int) -> AgainstCase:
    return AgainstCase(f"shared-{tokens}", 32, tokens + 128, 16, "total", shared=tokens)


DEFAULT_CASES = (
    "prefill-512", "decode", "streams-8", "prefill-4096", "streams-32", "shared-512",
)  # fmt: skip
"""What five minutes hold of a small model, the shortest first: what time does not allow is last."""

CASES = {
    case.name: case
    for case in (
        *(
            AgainstCase(f"prefill-{prompt}", 1, prompt, 1, "prefill")
            for prompt in (512, 4096, 8192)
        ),
        AgainstCase("decode", 1, 32, 128, "decode"),
        *(AgainstCase(f"decode-at-{depth}", 1, depth, 64, "decode") for depth in (4096, 16384)),
        *(_streams(users) for users in (2, 4, 8, 16, 32, 64)),
        _streams(32, sampled=True),
        *(_shared(tokens) for tokens in (512, 4096)),
    )
}
"""By name."""

_GREEDY: Mapping[str, float] = {"temperature": 0}
_SAMPLED: Mapping[str, float] = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
"""As Qwen3's generation_config.json recommends."""


def cases_of(names: str | None) -> list[AgainstCase]:
    """Those of a list of names with commas between them, each once; DEFAULT_CASES for None.

    Raises ConfigError for a name that is none, and for no name.
    """
    if names is None:
        return [CASES[name] for name in DEFAULT_CASES]
    asked = [name.strip() for name in names.split(",") if name.strip()]
    if not asked or any(name not in CASES for name in asked):
        raise ConfigError(
            f"--cases {shown(names)}: not a list of some of {', '.join(CASES)}; name those"
        )
    return [CASES[name] for name in dict.fromkeys(asked)]


def tokens_per_s(case: AgainstCase, records: Sequence[RequestRecord]) -> float:
    """The figure of `case`. Raises HeadraceError with the reason where there is none, of which
    UnseenPaceError need not come again."""
    if not records or any(record.failure is not None for record in records):
        raise HeadraceError(failure_report(records))
    counted = [_counts(record) for record in records]
    if case.figure == "total":
        began_ns = min(each.began_ns for each in counted)
        took_ns = max(each.end_ns for each in counted) - began_ns
        return sum(each.prompt + each.new for each in counted) * _NS_PER_S / took_ns
    if case.figure == "prefill":
        return median(each.prompt * _NS_PER_S / (each.end_ns - each.began_ns) for each in counted)
    return median(_pace(record, each.new) for record, each in zip(records, counted, strict=True))


class _Counts(NamedTuple):
    """A request that was answered: nanoseconds of the run, tokens."""

    began_ns: int
    end_ns: int
    prompt: int
    new: int


def _counts(record: RequestRecord) -> _Counts:
    prompt, new = record.prompt_tokens, record.output_tokens
    if prompt is None or new is None:
        raise HeadraceError("the server does not count tokens (`usage` at the end of a stream)")
    assert record.sent_ns is not None and record.end_ns is not None, "it was answered"
    return _Counts(record.sent_ns, record.end_ns, prompt, new)


def _pace(record: RequestRecord, new: int) -> float:
    """Tokens after the first, by the time between the first piece and the last.

    Where a client stood still, pieces waited for it and arrived together. In the middle of an
    answer that changes nothing; at its beginning or end it moves the time that is divided by, by
    about the share of the pieces that arrived there.
    """
    times_ns = [piece.at_ns for piece in record.content]
    arrivals = _arrivals(times_ns)
    held = f"an answer of {new} tokens came in {len(times_ns)} pieces at {len(arrivals)} times"
    if new < 2 or len(arrivals) < max(2, math.ceil(new / _TOKENS_PER_ARRIVAL)):
        raise UnseenPaceError(
            f"{held}: its pace cannot be seen; is there a proxy that collects streams, or is the "
            "machine busy?"
        )
    most = max(arrivals[0], arrivals[-1])
    if most > max(1, len(times_ns) // _SHARE_AT_AN_END):
        raise UnseenPaceError(
            f"{held}, {most} of them together at its beginning or end: its pace cannot be seen; is "
            "the machine busy?"
        )
    return (new - 1) * _NS_PER_S / (times_ns[-1] - times_ns[0])


def _arrivals(times_ns: Sequence[int]) -> list[int]:
    """How many pieces arrived at each time."""
    arrivals: list[int] = []
    before_ns = -math.inf
    for at_ns in times_ns:
        if at_ns - before_ns < _ONE_ARRIVAL_NS:
            arrivals[-1] += 1
        else:
            arrivals.append(1)
        before_ns = at_ns
    return arrivals
