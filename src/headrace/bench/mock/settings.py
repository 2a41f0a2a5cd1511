"""What the mock endpoint is programmed to do.

One frozen struct, checked where it is made: an error names field, value, limit and remedy. Times
are in milliseconds and may be distributions (`spread`); rates are shares of all requests.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from headrace.bench.mock.spread import Spread
from headrace.errors import ConfigError, shown

FaultKind = Literal[
    "reset-before",  # the connection is reset in place of a reply
    "reset-inside",  # the connection is reset in the middle of the stream
    "truncated",  # the connection is closed in the middle of the stream
    "html",  # a page of HTML with status 200 in place of a stream
    "endless",  # the stream goes on until the client leaves
    "error-event",  # an error is reported in the middle of the stream
]
FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)
_STATUSES = range(400, 600)

HOUR_MS = 3_600_000.0
MAX_TOKENS = 1_000_000
MAX_TOKENS_PER_CHUNK = 10_000
MAX_DIMENSIONS = 65_536
MAX_MANY = 1_000_000


class MockSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program of a mock endpoint."""

    model: str = "mock"
    ttft_ms: str | float = 100.0
    """Time from the request (or from its turn, if it waited) to the first content."""
    ttft_per_token_us: float = 0.0
    """Microseconds more for each token of the prompt."""
    tpot_ms: str | float = 10.0
    """Between tokens, drawn once for each request."""
    jitter_ms: float = 0.0
    """Deviation of each chunk's own time, which does not add up."""
    tokens_per_chunk: str | float = 1
    """Tokens of every chunk of content but the first, which has one, as prefill gives."""
    output_tokens: str | float = ""
    """Where the model ends by itself; "": it never does."""
    reasoning_tokens: int = 0
    """So many come first, as reasoning."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    role_chunk: Literal["at-once", "with-first", "none"] = "at-once"
    """A chunk without content that opens a chat stream: at once, with the first content, or not at
    all."""
    errors: tuple[tuple[str, float], ...] = ()
    """Kind (a status, or a FaultKind) and rate."""
    retry_after_s: float = 1.0
    stall_rate: float = 0.0
    stall_ms: str | float = 1000.0
    """With `stall_rate`: silence at one place of a stream."""
    capacity: int | None = None
    """Requests worked on at once, others wait in order."""
    max_queued: int | None = None
    """How many may wait, others get 429. None: no limit."""
    dimensions: int = 8
    api_key: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of its limits."""
        _ = (self.ttft, self.tpot, self.stall, self.chunk_tokens, self.length)
        _between("ttft_per_token_us", self.ttft_per_token_us, 0, 1e6)
        _between("jitter_ms", self.jitter_ms, 0, HOUR_MS)
        _between("retry_after_s", self.retry_after_s, 0, 3600)
        _between("stall_rate", self.stall_rate, 0, 1)
        _whole("reasoning_tokens", self.reasoning_tokens, 0, MAX_TOKENS)
        _whole("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        if self.capacity is not None:
            _whole("capacity", self.capacity, 1, MAX_MANY)
        if self.max_queued is not None:
            _whole("max_queued", self.max_queued, 0, MAX_MANY)
            if self.capacity is None:
                raise ConfigError(
                    f"max_queued: {self.max_queued} needs a capacity; without one nothing waits"
                )
        for field, allowed in (
            ("reasoning_field", ("reasoning_content", "reasoning")),
            ("role_chunk", ("at-once", "with-first", "none")),
        ):
            if getattr(self, field) not in allowed:
                raise ConfigError(
                    f"{field}: {shown(getattr(self, field))} is not one of {', '.join(allowed)}"
                )
        _check_errors(self.errors)

    def __repr__(self) -> str:
        """The fields that are not defaults; of the key only that there is one."""
        told = [
            f"{field.name}={'********' if field.name == 'api_key' else repr(value)}"
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"MockSettings({', '.join(told)})"

    @property
    def ttft(self) -> Spread:
        """ttft_ms."""
        return Spread.parse(self.ttft_ms, field="ttft_ms", least=0, most=HOUR_MS)

    @property
    def tpot(self) -> Spread:
        """tpot_ms."""
        return Spread.parse(self.tpot_ms, field="tpot_ms", least=0, most=HOUR_MS)

    @property
    def stall(self) -> Spread:
        """stall_ms."""
        return Spread.parse(self.stall_ms, field="stall_ms", least=0, most=HOUR_MS)

    @property
    def chunk_tokens(self) -> Spread:
        """tokens_per_chunk."""
        return Spread.parse(
            self.tokens_per_chunk, field="tokens_per_chunk", least=1, most=MAX_TOKENS_PER_CHUNK
        )

    @property
    def length(self) -> Spread | None:
        """output_tokens; None where the model never ends by itself."""
        if self.output_tokens == "":
            return None
        return Spread.parse(self.output_tokens, field="output_tokens", least=1, most=MAX_TOKENS)


def parse_error(text: str) -> tuple[str, float]:
    """`KIND:RATE` as a pair for `errors`; what the values may be is checked there."""
    kind, colon, rate = text.partition(":")
    try:
        return kind.strip(), float(rate if colon else "nan")
    except ValueError:
        raise ConfigError(
            f"errors: the rate of {shown(text)} is not a number; {_ERROR_FORM}"
        ) from None


_ERROR_FORM = (
    "write KIND:RATE, such as 429:0.05, with a status of 400 to 599 or one of "
    + ", ".join(FAULT_KINDS)
)


def _check_errors(errors: tuple[tuple[str, float], ...]) -> None:
    for kind, rate in errors:
        is_status = kind.isascii() and kind.isdigit() and int(kind) in _STATUSES
        if not is_status and kind not in FAULT_KINDS:
            raise ConfigError(f"errors: {shown(kind)} is not a kind of error; {_ERROR_FORM}")
        if not 0 <= rate <= 1:
            raise ConfigError(
                f"errors: the rate {rate:g} of {kind} is not in 0 to 1; {_ERROR_FORM}"
            )
    total = sum(rate for _, rate in errors)
    if total > 1 + 1e-9:
        raise ConfigError(
            f"errors: the rates add up to {total:g}, and a request fails in one way only; "
            "lower them to 1 in total"
        )


def _between(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{field}: {value:g} is not in {least:g} to {most:g}")


def _whole(field: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{field}: {shown(value)} is not a whole number in {least} to {most}")
