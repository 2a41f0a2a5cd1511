"""What may stand beside a sweep, and where lists of loads may."""

from __future__ import annotations

from typing import Any

from headrace.cli.bench.load.lists import listed
from headrace.errors import ConfigError

_LISTS = (("--rate", "rate"), ("--concurrency", "concurrency"))
_OF_RATES = (
    ("--ramp-from", "ramp_from"),
    ("--ramp-shape", "ramp_shape"),
    ("--burstiness", "burstiness"),
    ("--arrivals", "arrivals"),
)


def check_lists(given: dict[str, Any]) -> None:
    """Of options whose profile is taken. Raises ConfigError for a list without a sweep, and for
    what goes not with one; `SweepOptions` checks the loads themselves."""
    lists = [(flag, name) for flag, name in _LISTS if isinstance(given[name], tuple)]
    if given["sweep"] is None:
        if lists:
            flag, name = lists[0]
            remedy = "a --search takes one first rate" if given["search"] else "add --sweep"
            raise ConfigError(
                f"{flag} {listed(given[name])} is a list, which only a sweep takes; {remedy}, "
                "or give one value"
            )
        return
    if not lists:
        if given["rate"] is not None:
            raise ConfigError(
                "--sweep chooses its rates; omit --rate, or give a list of rates: --rate 1,2,5"
            )
        return
    flag, name = lists[0]
    if given["sweep"]:
        raise ConfigError(
            f"--sweep {given['sweep']} chooses its loads and {flag} {listed(given[name])} "
            "names them; write --sweep without a number"
        )
    if len(lists) == 1 and name == "concurrency":
        _check_users(given)
        return
    if given["ramp_from"] is not None:
        raise ConfigError("--sweep keeps each rate constant; omit --ramp-from")
    if given["ramp_s"]:
        raise ConfigError(
            f"--ramp {given['ramp_s']:g} needs a closed loop; omit it, or sweep over --concurrency"
        )


def _check_users(given: dict[str, Any]) -> None:
    """A sweep over users has closed loops alone."""
    users = listed(given["concurrency"])
    if given["rate"] is not None:
        raise ConfigError(
            f"--sweep over --concurrency {users} has no rate; omit --rate, or give a list of "
            "rates and one --concurrency"
        )
    for flag, name in _OF_RATES:
        if given[name] is not None:
            raise ConfigError(
                f"{flag} {given[name]} needs a rate, and --sweep over --concurrency {users} "
                "has none; omit it"
            )
    if given["stop_when_saturated"]:
        raise ConfigError(
            f"--stop-when-saturated: the users of --concurrency {users} never send more than "
            "the server answers; sweep over rates (--rate 1,2,5), or omit it"
        )
