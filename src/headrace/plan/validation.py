"""What an input of a plan has to be: errors name the field, the value, the limit and the remedy."""

from __future__ import annotations

import math

from headrace.errors import ConfigError, shown


def above_zero(field: str, value: float, remedy: str) -> float:
    """`value`, finite and above 0; raises ConfigError."""
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{field} is {shown(value)}; it must be above 0: {remedy}")
    return value


def not_below(field: str, value: float, least: float, remedy: str) -> float:
    """`value`, finite and at least `least`; raises ConfigError."""
    if not math.isfinite(value) or value < least:
        raise ConfigError(f"{field} is {shown(value)}; it must be at least {least:g}: {remedy}")
    return value


def not_above(field: str, value: float, most: float, remedy: str) -> float:
    """`value`, at most `most`; raises ConfigError."""
    if not value <= most:
        raise ConfigError(f"{field} is {shown(value)}; it must be at most {most:,g}: {remedy}")
    return value


def share(field: str, value: float, remedy: str) -> float:
    """`value`, from 0 to 1, both included; raises ConfigError."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{field} is {shown(value)}; it must be from 0 to 1: {remedy}")
    return value
