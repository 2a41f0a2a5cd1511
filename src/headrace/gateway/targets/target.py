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
    """Nano-dollars (1e-9 USD) per million tokens, so that a bill is whole numbers.

    None: as input or output. image, input_audio_s: of one picture made and of one second heard;
    None: nobody knows. source, as_of: where it is from and of when. above_tokens: a prompt longer
    than that is billed by `above`, all of it. flex, priority: what holds at those service tiers,
    None if nobody knows it.
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
    input_audio_s: int | None = None
    source: str = ""
    as_of: str = ""
    above_tokens: int | None = None
    above: Price | None = None
    flex: Price | None = None
    priority: Price | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        rates = (getattr(self, name) for name in _LINES)
        return not any(rates) and (self.above is None or self.above.is_free)

    def of_prompt(self, prompt_tokens: int) -> Price:
        """What holds for a prompt of that length."""
        if self.above is None or self.above_tokens is None or prompt_tokens <= self.above_tokens:
            return self
        return self.above.of_prompt(prompt_tokens)

    def of_service_tier(self, tier: str | None) -> Price | None:
        """What holds at a tier, in the words of any provider; None if nobody knows it. What is
        free is free at all of them."""
        if tier is None or tier in _STANDARD_TIERS:
            return self
        if self.is_free:
            return self
        return {"flex": self.flex, "priority": self.priority}.get(tier)

    def times(self, factor: float) -> Price:
        """Every line times a factor, to the nearest nano-dollar."""
        lines = {name: getattr(self, name) for name in _LINES}
        return replace(
            self, **{name: round(one * factor) for name, one in lines.items() if one is not None}
        )


_LINES = (
    "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning", "input_audio",
    "output_audio", "image", "input_audio_s",
)  # fmt: skip
# As OpenAI, Anthropic and Groq call what a list of prices says without another word; "auto" is
# what a client asks for, and the provider tells where it led elsewhere.
_STANDARD_TIERS = frozenset({"", "auto", "default", "standard", "standard_only", "on_demand"})


class DatedPrice:
    """What holds at a moment. steps: from which Unix time on each holds, in order; the first holds
    before it too."""

    __slots__ = ("_steps", "_wall_s")

    def __init__(
        self, steps: Sequence[tuple[float, Price | None]], wall_s: Callable[[], float]
    ) -> None:
        self._steps = tuple(steps)
        self._wall_s = wall_s

    def now(self) -> Price | None:
        """None if nobody knows it."""
        now_s, found = self._wall_s(), self._steps[0][1]
        for from_s, price in self._steps[1:]:
            if now_s >= from_s:
                found = price
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Target:
    """name: "provider/model", unique in a model's list. model: as the provider calls it.

    max_in_flight, context_tokens: None without a limit. pass_priority: whether it is told how
    urgent a request is. fixed_price: None if nobody knows it. dated_price: in place of it,
    where the price changes on a day that is known.
    """

    name: str
    provider: Provider
    model: str
    weight: float = 1.0
    order: int = 0
    max_in_flight: int | None = None
    pass_priority: bool = False
    context_tokens: int | None = None
    quantization: Quantization = "unknown"
    fixed_price: Price | None = None
    dated_price: DatedPrice | None = None
    timeouts: Timeouts | None = None
    health: Health = field(default_factory=Health)

    @property
    def price(self) -> Price | None:
        """Of this moment; None if nobody knows it."""
        return self.fixed_price if self.dated_price is None else self.dated_price.now()

    @property
    def is_free(self) -> bool:
        """Whether it is known to cost nothing."""
        price = self.price
        return price is not None and price.is_free

    @property
    def is_given_away(self) -> bool:
        """Whether another serves it free of charge; an engine of one's own is no gift."""
        return not self.provider.self_hosted and self.is_free
