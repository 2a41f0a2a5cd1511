"""Every check there is, in the order in which they are shown."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from headrace.errors import ConfigError
from headrace.plan.lint import (
    batching_checks,
    benchmark_checks,
    device_checks,
    gateway_checks,
    load_checks,
    memory_checks,
    prompt_checks,
    speculation_checks,
    template_checks,
    weight_checks,
)
from headrace.plan.lint.finding import Check

CHECKS: tuple[Check, ...] = (
    *memory_checks.CHECKS,
    *batching_checks.CHECKS,
    *device_checks.CHECKS,
    *weight_checks.CHECKS,
    *speculation_checks.CHECKS,
    *template_checks.CHECKS,
    *prompt_checks.CHECKS,
    *gateway_checks.CHECKS,
    *load_checks.CHECKS,
    *benchmark_checks.CHECKS,
)


def chosen(only: Collection[str], skip: Collection[str]) -> tuple[Check, ...]:
    """Checks by id; `only` empty is all. Raises ConfigError with the nearest id."""
    ids = {one.id for one in CHECKS}
    for option, names in (("--only", only), ("--skip", skip)):
        for name in names:
            if name not in ids:
                near = difflib.get_close_matches(name, ids, n=1)
                meant = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(f"{option} {name!r}: no such check{meant} (--list has all)")
    found = tuple(one for one in CHECKS if (not only or one.id in only) and one.id not in skip)
    if not found:
        raise ConfigError("--only and --skip leave no check to run; omit one of them")
    return found
