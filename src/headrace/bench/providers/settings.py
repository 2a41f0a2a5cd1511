"""What `headrace bench providers` is told: who is measured, with what, and when.

One frozen struct for each part of the YAML file, checked where it is made. Keys are never in it:
only the names of the environment variables that hold them. Knows no files.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.bench.client.endpoints import Endpoint, EndpointKind, split_url
from headrace.bench.client.secrets import SECRET_WORDS
from headrace.bench.cost import TokenPrice
from headrace.errors import ConfigError, shown

Kind = Literal["chat", "completions", "anthropic", "ollama"]

KINDS: dict[Kind, EndpointKind] = {
    "chat": "openai-chat",
    "completions": "openai-completions",
    "anthropic": "anthropic-messages",
    "ollama": "ollama",
}

MAX_PROVIDERS = 200
MAX_REQUESTS = 4096
"""In one phase: as many connections as one client holds well."""
SHORTEST_INTERVAL_S = 1.0
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S = 0.1, 3600.0
"""A provider that hangs holds up the round for as long."""
MAX_NAME_CHARACTERS = 80

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. cached: of a prompt's tokens that were in a cache."""

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for a price below 0."""
        for name in ("input", "output", "cached"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1e6:
                raise ConfigError(f"{name}: {value:g} is not in 0 to 1000000 $/M tokens")

    @property
    def per_token(self) -> TokenPrice:
        """As costs are computed."""
        return TokenPrice(input_usd=self.input, output_usd=self.output, cached_usd=self.cached)


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint and one model of it."""

    name: str
    base_url: str
    model: str
    type: Kind = "chat"
    api_key_env: str | None = None
    price: Price | None = None
    usd_per_hour: float | None = None
    """Price of a machine that is paid by the hour."""
    extra_body: dict[str, Any] = {}
    """Fields of every request's body."""
    headers: dict[str, str] = {}
    headers_env: dict[str, str] = {}
    """With `api_key_env`: names of environment variables."""
    path: str | None = None
    """Path in place of the API's own."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage: bool = True
    continuous_usage: bool = False
    return_metrics: bool = False
    """With `max_tokens_field` and `include_usage` and `continuous_usage`: as of `Endpoint`."""
    region: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot be."""
        if not self.name.strip() or len(self.name) > MAX_NAME_CHARACTERS:
            raise ConfigError(
                f"name: {shown(self.name)} must have 1 to {MAX_NAME_CHARACTERS} characters"
            )
        if not self.model:
            raise ConfigError("model: is empty; write the name that the API uses for it")
        split_url(self.base_url)
        if self.price is not None and self.usd_per_hour is not None:
            raise ConfigError("price and usd_per_hour both set the cost; give one of them")
        if self.usd_per_hour is not None and not 0 <= self.usd_per_hour < 1e6:
            raise ConfigError(f"usd_per_hour: {self.usd_per_hour:g} is not in 0 to 1000000")
        Endpoint(
            kind=KINDS[self.type],
            base_url=self.base_url,
            model=self.model,
            max_tokens_field=self.max_tokens_field,
            include_usage=self.include_usage,
            continuous_usage=self.continuous_usage,
            return_metrics=self.return_metrics,
        )
        for header in self.headers:
            if any(word in header.lower() for word in SECRET_WORDS):
                raise ConfigError(
                    f"headers.{header}: may be a secret, which should not be in a file; write "
                    "the name of the environment variable that has it under headers_env"
                )


class ProvidersFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a providers file."""

    providers: tuple[Provider, ...]
    interval: str | float = "10m"
    duration: str | float | None = None
    """None: until it is stopped."""
    input_tokens: str | int = "256"
    """Lengths as `bench load` takes them."""
    output_tokens: int = 128
    dataset: str | None = None
    """Prompts of a JSONL file instead."""
    single_requests: int = 3
    """How many are sent one after another in a round."""
    batch_size: int = 8
    """How many at once after those."""
    timeout: str | float = "120s"
    cached: bool = False
    """The same bytes each time, so that prefix caches help."""
    tokenizer: str | None = None
    """Makes the prompts, and counts the tokens of answers whose provider reports none."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of its limits or a name that is there twice."""
        if not 1 <= len(self.providers) <= MAX_PROVIDERS:
            raise ConfigError(
                f"providers: {len(self.providers)} are named; name 1 to {MAX_PROVIDERS}"
            )
        names = [one.name for one in self.providers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"providers: {shown(name)} is listed twice; each needs its own name"
                )
        for field, value in (
            ("output_tokens", self.output_tokens),
            ("single_requests", self.single_requests),
            ("batch_size", self.batch_size),
        ):
            most = 1_000_000 if field == "output_tokens" else MAX_REQUESTS
            if not 1 <= value <= most:
                raise ConfigError(f"{field}: {value} is not in 1 to {most}")
        if not SHORTEST_TIMEOUT_S <= self.timeout_s <= LONGEST_TIMEOUT_S:
            raise ConfigError(
                f"timeout: {self.timeout_s:g} s is not in {SHORTEST_TIMEOUT_S:g} s to "
                f"{LONGEST_TIMEOUT_S:g} s"
            )
        if self.interval_s < SHORTEST_INTERVAL_S:
            raise ConfigError(
                f"interval: {self.interval_s:g} s is less than {SHORTEST_INTERVAL_S:g} s; to "
                "send without pauses use `headrace bench load`"
            )
        if self.duration_s is not None and self.duration_s <= 0:
            raise ConfigError(f"duration: {self.duration_s:g} s must be more than 0")

    @property
    def interval_s(self) -> float:
        """Between the times at which two rounds are due."""
        return seconds("interval", self.interval)

    @property
    def duration_s(self) -> float | None:
        """From the first round's time; no round is due later."""
        return None if self.duration is None else seconds("duration", self.duration)

    @property
    def timeout_s(self) -> float:
        """Of one request."""
        return seconds("timeout", self.timeout)


def seconds(name: str, value: str | float) -> float:
    """`90`, `90s`, `10m`, `24h`, `7d`, `2w`. Raises ConfigError for anything else."""
    text = str(value).strip()
    unit = _UNITS_S.get(text[-1:])
    try:
        found = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        found = float("nan")
    if not 0 <= found < 1e10:
        raise ConfigError(f"{name}: {shown(value)} is not a time; write 90s, 10m, 24h or 7d")
    return found
