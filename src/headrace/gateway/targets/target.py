"""A place where a model is served: a provider, and the model's name there."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.gateway.settings.provider import Quantization
from headrace.gateway.targets.health import Health
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.limits import Timeouts

NUSD_PER_USD = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Nano-dollars (1e-9 USD) per million tokens, so that a bill is whole numbers.

    None: as input or output. source, as_of: where it is from and of when. above_tokens: a prompt
    longer than that is billed by `above`, all of it.
    """

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    source: str = ""
    as_of: str = ""
    above_tokens: int | None = None
    above: Price | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        rates = (
            self.input, self.output, self.cache_read, self.cache_write, self.cache_write_1h,
            self.reasoning, self.input_audio, self.output_audio,
        )  # fmt: skip
        return not any(rates) and (self.above is None or self.above.is_free)

    def of_prompt(self, prompt_tokens: int) -> Price:
        """What holds for a prompt of that length."""
        if self.above is None or self.above_tokens is None or prompt_tokens <= self.above_tokens:
            return self
        return self.above.of_prompt(prompt_tokens)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Target:
    """name: "provider/model", unique in a model's list. model: as the provider calls it.

    most_in_flight, context_tokens: None without a limit. pass_priority: whether it is told how
    urgent a request is. price: None if nobody knows it.
    """

    name: str
    provider: Provider
    model: str
    weight: float = 1.0
    order: int = 0
    most_in_flight: int | None = None
    pass_priority: bool = False
    context_tokens: int | None = None
    quantization: Quantization = "unknown"
    price: Price | None = None
    timeouts: Timeouts | None = None
    health: Health = field(default_factory=Health)

    @property
    def is_free(self) -> bool:
        """Whether it is known to cost nothing."""
        return self.price is not None and self.price.is_free
