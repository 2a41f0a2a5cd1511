"""A place where a model is served: a provider, and the model's name there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headrace.gateway.settings.provider import Quantization
from headrace.gateway.targets.health import Health
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.limits import Timeouts


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """Nano-dollars (1e-9 USD) per million tokens, so that bills are whole numbers.

    A rate for tokens that is None is that of input or output.
    """

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    image: int | None = None
    """For one generated picture; None if unknown."""
    input_audio_s: int | None = None
    """For one second of audio input; None if unknown."""
    source: str = ""
    as_of: str = ""
    """The date of the source."""
    above_tokens: int | None = None
    """A prompt longer than this is billed by `above`, all of it."""
    above: Price | None = None
    flex: Price | None = None
    """At that service tier; None if unknown."""
    priority: Price | None = None
    """At that service tier; None if unknown."""

    @property
    def is_free(self) -> bool:
        """Whether every rate is 0."""
        rates = (getattr(self, name) for name in _LINES)
        return not any(rates) and (self.above is None or self.above.is_free)

    def of_prompt(self, prompt_tokens: int) -> Price:
        """The price for a prompt of that length."""
        if self.above is None or self.above_tokens is None or prompt_tokens <= self.above_tokens:
            return self
        return self.above.of_prompt(prompt_tokens)

    def of_service_tier(self, tier: str | None) -> Price | None:
        """The price at a tier, by any provider's name for it; None if unknown. A free price is
        free at every tier."""
        if tier is None or tier in _STANDARD_TIERS:
            return self
        if self.is_free:
            return self
        return {"flex": self.flex, "priority": self.priority}.get(tier)

    def times(self, factor: float) -> Price:
        """Every rate times a factor, to the nearest nano-dollar."""
        lines = {name: getattr(self, name) for name in _LINES}
        return replace(
            self, **{name: round(rate * factor) for name, rate in lines.items() if rate is not None}
        )


_LINES = (
    "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning", "input_audio",
    "output_audio", "image", "input_audio_s",
)  # fmt: skip
# Names of OpenAI, Anthropic and Groq for the tier of their ordinary price list; "auto" is what
# clients request, and the provider reports the tier if it is another.
_STANDARD_TIERS = frozenset({"", "auto", "default", "standard", "standard_only", "on_demand"})


class DatedPrice:
    """A price that changes at known times.

    `steps` holds, in order, the Unix time from which each price applies; the first also applies
    before it.
    """

    __slots__ = ("_steps", "_wall_s")

    def __init__(
        self, steps: Sequence[tuple[float, Price | None]], wall_s: Callable[[], float]
    ) -> None:
        self._steps = tuple(steps)
        self._wall_s = wall_s

    def now(self) -> Price | None:
        """The current price; None if unknown."""
        now_s, found = self._wall_s(), self._steps[0][1]
        for from_s, price in self._steps[1:]:
            if now_s >= from_s:
                found = price
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Target:
    """A model at a provider."""

    name: str
    """Its "provider/model", unique in a model's list."""
    provider: Provider
    model: str
    """The provider's name for it."""
    weight: float = 1.0
    order: int = 0
    max_in_flight: int | None = None
    """None for no limit."""
    pass_priority: bool = False
    """Whether it is sent the priority of requests."""
    context_tokens: int | None = None
    """None for no limit."""
    quantization: Quantization = "unknown"
    fixed_price: Price | None = None
    """None if unknown."""
    dated_price: DatedPrice | None = None
    """Replaces fixed_price if the price changes on known days."""
    timeouts: Timeouts | None = None
    health: Health = field(default_factory=Health)

    @property
    def price(self) -> Price | None:
        """The current price; None if unknown."""
        return self.fixed_price if self.dated_price is None else self.dated_price.now()

    @property
    def is_free(self) -> bool:
        """Whether it is known to be free of charge."""
        price = self.price
        return price is not None and price.is_free

    @property
    def is_given_away(self) -> bool:
        """Whether another serves it free of charge; the operator's own engine does not count."""
        return not self.provider.self_hosted and self.is_free
