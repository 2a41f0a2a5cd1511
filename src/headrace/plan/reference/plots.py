"""The plots of the reference page: quality against size, and bandwidth against compute."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog import Catalog, Fact
from headrace.catalog.fact import Confidence
from headrace.catalog.rows import Hardware, Quantization
from headrace.catalog.shown_value import shown_value
from headrace.catalog.span import Span
from headrace.page.figures import compact
from headrace.page.plots.frame import Key, Plot, key_at
from headrace.page.plots.named_points import Group, NamedPoint, Slope, named_points
from headrace.page.plots.scale import Scale, logarithmic, suited
from headrace.page.plots.scale import linear as linear_scale

_CATEGORIES = {"gpu": "GPUs", "soc": "systems on a chip", "tpu": "TPUs"}
_OTHERS = "others"


def topic_plots(known: Catalog, topic: str) -> tuple[Plot, ...]:
    """Those of a topic by its name; most have none."""
    made: tuple[Plot | None, ...] = ()
    if topic == "quantization":
        made = (perplexity_over_bits(known), quality_over_bits(known))
    if topic == "hardware":
        made = (compute_over_bandwidth(known), bandwidth_over_price(known))
    return tuple(one for one in made if one is not None)


def perplexity_over_bits(known: Catalog) -> Plot | None:
    """What kinds lose in perplexity against their bits, a colour for each model it was seen on."""
    by_model: dict[str, list[NamedPoint]] = {}
    for row in known.quantizations:
        for model, delta in row.perplexity_delta.items():
            if row.bits_per_weight is not None and delta > 0:
                fact = row.fact(f"perplexity_delta.{model}")
                point = NamedPoint(row.name, row.bits_per_weight, delta, _about(row, fact))
                by_model.setdefault(model, []).append(point)
    return named_points(
        "Quality against size: perplexity over F16",
        [Group(_key(at, known, model), points)
         for at, (model, points) in enumerate(by_model.items())],
        _bits,
        logarithmic,
        x_title="bits per weight",
        y_title="perplexity over F16",
        x_label=compact,
        y_label=compact,
        caption=
            "Lower is better; further left is smaller. Differences of different models cannot be "
            "compared.",
    )  # fmt: skip


def quality_over_bits(known: Catalog) -> Plot | None:
    """The share of the score at 16 bits that kinds kept, as published."""
    stated: list[NamedPoint] = []
    claimed: list[NamedPoint] = []
    for row in known.quantizations:
        span, bits = row.quality_share, row.bits_per_weight or row.nominal_bits
        middle = None if span is None else _middle(span)
        if span is None or bits is None or middle is None:
            continue
        ends = (span.low, span.high)
        whole = (ends[0] * 100, ends[1] * 100) if ends[0] and ends[1] else None
        fact = row.fact("quality_share")
        point = NamedPoint(row.name, bits, middle * 100, _about(row, fact), whole)
        (claimed if fact.confidence is Confidence.CLAIM else stated).append(point)
    return named_points(
        "Quality kept, of the score at 16 bits",
        [Group(key_at(0, "with conditions"), stated), Group(key_at(1, "a claim"), claimed)],
        _bits,
        lambda values, low, high: linear_scale(values, low, high, zero=False),
        x_title="bits per weight",
        y_title="% of the score",
        x_label=compact,
        y_label=compact,
        caption=f"{len(claimed)} of {len(stated) + len(claimed)} are claims: published without "
        "their conditions.",
    )


def compute_over_bandwidth(known: Catalog) -> Plot | None:
    """Dense BF16 against memory bandwidth, with lines of equal operations per byte."""
    groups: dict[str, list[NamedPoint]] = {}
    ratios: list[float] = []
    for row in known.hardware:
        if row.bandwidth_bytes_per_s is None or row.dense_bf16_flops is None:
            continue
        ratios.append(row.dense_bf16_flops / row.bandwidth_bytes_per_s)
        about = f"{_about(row, row.fact('dense_bf16_flops'))}; {ratios[-1]:.0f} FLOP/byte"
        groups.setdefault(_CATEGORIES.get(row.category or "", _OTHERS), []).append(
            NamedPoint(_short(row), row.bandwidth_bytes_per_s, row.dense_bf16_flops, about)
        )
    middle = [one for one in logarithmic(ratios, 0, 1).ticks(12) if min(ratios) < one < max(ratios)]
    return named_points(
        "Bandwidth against compute",
        _groups(groups),
        logarithmic,
        logarithmic,
        x_title="memory bandwidth, byte/s",
        y_title="dense BF16, FLOP/s",
        x_label=compact,
        y_label=compact,
        slopes=[Slope(one, f"{one:.0f} FLOP/byte") for one in middle],
        caption="Decode is bound by bandwidth, prefill by compute. On a line both take the same "
        "time at that many operations per byte.",
    )


def bandwidth_over_price(known: Catalog) -> Plot | None:
    """Bandwidth against dollars an hour, a point for each vendor's price."""
    groups: dict[str, list[NamedPoint]] = {}
    for row in known.hardware:
        for vendor, span in row.price_usd_per_hour.items():
            price = _middle(span)
            if price is None or row.bandwidth_bytes_per_s is None:
                continue
            about = f"{vendor}, {_about(row, row.fact(f'price_usd_per_hour.{vendor}'))}"
            groups.setdefault(vendor, []).append(
                NamedPoint(_short(row), price, row.bandwidth_bytes_per_s, about)
            )
    return named_points(
        "Dollars an hour against bandwidth",
        _groups(groups),
        suited,
        suited,
        x_title="US dollars an hour, each device",
        y_title="memory bandwidth, byte/s",
        x_label=compact,
        y_label=compact,
        caption="A range is drawn at its middle.",
    )


def _groups(points: dict[str, list[NamedPoint]]) -> list[Group]:
    return [Group(key_at(at, name), some) for at, (name, some) in enumerate(points.items())]


def _bits(values: Sequence[float], low: float, high: float) -> Scale:
    return linear_scale(values, low, high)


def _key(place: int, known: Catalog, model: str) -> Key:
    row = known.models.find(model)
    return key_at(place, model if row is None else row.name)


def _middle(span: Span) -> float | None:
    return next((one for one in (span.middle, span.high, span.low) if one is not None), None)


def _short(row: Hardware) -> str:
    """The name without the maker, which the colours of a plot have no room for."""
    return row.name.removeprefix(f"{row.vendor} ") if row.vendor else row.name


def _about(row: Quantization | Hardware, fact: Fact) -> str:
    note = f", {fact.note}" if fact.note else ""
    return f"{row.name}: {shown_value(fact)} ({fact.source}, {fact.as_of}{note})"
