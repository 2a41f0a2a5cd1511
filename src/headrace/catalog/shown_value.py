"""Values of facts as people read them: bytes as GiB, rates with a prefix, shares as percent."""

from __future__ import annotations

from headrace.catalog.fact import Fact, Value, value_text
from headrace.catalog.span import Span

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Units that take a prefix; the others are written as they are.
_PREFIXED = {"byte/s": "B/s", "FLOP/s": "FLOP/s"}


def shown_value(fact: Fact | None) -> str:
    """Value and unit; a dash where there is no fact."""
    if fact is None:
        return "-"
    return with_unit(fact.value, fact.unit)


def with_unit(value: Value, unit: str) -> str:
    """`value` with `unit`, scaled where that makes it short."""
    if isinstance(value, Span):
        return _span(value, unit)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value_text(value)
    if unit == "byte":
        return _bytes(value)
    if unit in _PREFIXED:
        return _scaled(value, _PREFIXED[unit])
    if unit == "parameters":
        return f"{value / 1e9:.4g} B" if value >= 1e9 else f"{value / 1e6:.4g} M"
    if unit == "share":
        return f"{value * 100:.4g} %"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1e3:.4g} ms" if value >= 1e-3 else f"{value * 1e6:.4g} us"
    if unit == "USD/1M tokens":
        return f"${value:g}/M"
    if not unit and isinstance(value, int):
        return str(value)  # years and sizes of matrices
    if unit == "USD/h":
        return f"${value:g}/h"
    text = value_text(value)
    return f"{text} {unit}" if unit else text


def _span(span: Span, unit: str) -> str:
    if span.exact is not None:
        return with_unit(span.exact, unit)
    if span.low is not None and span.high is not None:
        return f"{with_unit(span.low, unit)} to {with_unit(span.high, unit)}"
    if span.high is not None:
        return f"up to {with_unit(span.high, unit)}"
    return "?" if span.low is None else f"from {with_unit(span.low, unit)}"


def _bytes(value: float) -> str:
    if value >= 2**40:
        return f"{value / 2**40:.4g} TiB ({value / 1e12:.4g} TB)"
    if value >= 2**30:
        return f"{value / 2**30:.4g} GiB ({value / 1e9:.4g} GB)"
    return f"{value / 2**20:.4g} MiB" if value >= 2**20 else f"{value:,.0f} B"


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
