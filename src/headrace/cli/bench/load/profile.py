"""Loads and lengths in GuideLLM's words: `--profile` and `--data`, as options of ours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from headrace.cli.bench.load.lists import listed
from headrace.errors import ConfigError, shown

# Points of a sweep where no --rate says how many, as in GuideLLM.
SWEEP_POINTS = 10

PROFILES = (
    "synchronous",
    "concurrent",
    "throughput",
    "constant",
    "async",
    "poisson",
    "sweep",
    "replay",
)

_LENGTHS = {"prompt_tokens": "input_tokens", "output_tokens": "output_tokens"}
_KEYS = tuple(f"{name}{end}" for name in _LENGTHS for end in ("", "_stdev", "_min", "_max"))
_OTHERS = {"prefix_tokens": "prefix_tokens", "turns": "turns"}


def take_profile(given: dict[str, Any]) -> None:
    """Turn `--profile`, and the meaning it gives `--rate`, into options of ours.

    Raises ConfigError for a profile that goes not with what else was given.
    """
    profile, rate = given["profile"], given["rate"]
    if profile is None:
        return
    for flag in ("search", "sweep", "arrivals", "burstiness"):
        if given[flag] is not None and given[flag] is not False:
            raise ConfigError(
                f"--profile {profile} and --{flag} both set the load; give one of them"
            )
    if isinstance(given["concurrency"], tuple) and profile != "concurrent":
        raise ConfigError(
            f"-c {listed(given['concurrency'])} of --profile {profile} must be one number; "
            "give a list with --profile concurrent, or with --sweep and no profile"
        )
    if profile in ("constant", "async", "poisson"):
        if rate is None:
            raise ConfigError(f"--profile {profile} needs requests per second: add --rate 5")
        given["arrivals"] = "poisson" if profile == "poisson" else "constant"
        _sweep_of_list(given)
        return
    if profile == "replay":
        if given["trace"] is None or rate is not None:
            raise ConfigError(
                "--profile replay needs a --trace and takes no --rate: set its pace with --speed"
            )
        return
    given["rate"] = None
    if profile == "synchronous":
        if rate is not None or given["concurrency"] not in (None, 1):
            raise ConfigError(
                "--profile synchronous sends one request at a time; omit --rate and -c"
            )
        given["concurrency"] = 1
        return
    if profile == "concurrent" and isinstance(rate, tuple):
        if given["concurrency"] is not None:
            raise ConfigError(
                "--rate of --profile concurrent is its number of users, and so is -c; give one "
                "of them"
            )
        given["concurrency"] = tuple(_whole(profile, one) for one in rate)
        _sweep_of_list(given)
        return
    if isinstance(rate, tuple):
        raise ConfigError(
            f"--rate {listed(rate)} of --profile {profile} must be one number; concurrent, "
            "constant and poisson take a list"
        )
    whole = None if rate is None else _whole(profile, rate)
    if profile == "sweep":
        given["sweep"] = SWEEP_POINTS if whole is None else whole
        if given["sweep"] < 3:
            raise ConfigError(
                f"--rate {rate:g} of --profile sweep is its number of points; write 3 or more"
            )
        return
    if whole is not None and given["concurrency"] is not None:
        raise ConfigError(
            f"--rate of --profile {profile} is its number of users, and so is -c; give one of them"
        )
    given["concurrency"] = whole if whole is not None else given["concurrency"]
    if profile == "throughput":
        given["rate"] = float("inf")
    elif given["concurrency"] is None:
        raise ConfigError("--profile concurrent needs a number of users: add --rate 16")
    _sweep_of_list(given)


def _sweep_of_list(given: dict[str, Any]) -> None:
    """A list is a sweep without another word, as GuideLLM has it."""
    if isinstance(given["rate"], tuple) or isinstance(given["concurrency"], tuple):
        given["sweep"] = 0


def _whole(profile: str, rate: float) -> int:
    if not math.isfinite(rate) or rate != int(rate) or rate < 1:
        raise ConfigError(f"--rate {rate:g} of --profile {profile} must be 1 or more")
    return int(rate)


def take_data(given: dict[str, Any]) -> None:
    """Turn `--data` into lengths, or into the file that it names. Raises ConfigError."""
    text = given["data"]
    if text is None:
        return
    if "=" not in text:
        path = Path(text)
        if given["dataset"] is not None or not path.is_file():
            raise ConfigError(
                f"--data {shown(text)} is neither a file nor lengths; write "
                "prompt_tokens=256,output_tokens=128"
            )
        given["dataset"] = path
        return
    found = dict(_pair(part, text) for part in text.split(","))
    for name, ours in _LENGTHS.items():
        written = _lengths(name, found, text)
        if written is None:
            continue
        if given[ours] is not None:
            raise ConfigError(
                f"--data {name} and --{ours.replace('_', '-')} contradict each other; give one of "
                "them"
            )
        given[ours] = written
    for name, ours in _OTHERS.items():
        if name in found:
            given[ours] = str(found[name])


def _pair(part: str, text: str) -> tuple[str, int]:
    key, _, number = (one.strip() for one in part.partition("="))
    if key not in _KEYS and key not in _OTHERS:
        known = ", ".join((*_KEYS, *_OTHERS))
        raise ConfigError(f"--data {shown(text)}: {shown(key)} is not one of {known}")
    if not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise ConfigError(f"--data {shown(text)}: {key} {shown(number)} is not a whole number")
    return key, int(number)


def _lengths(name: str, found: dict[str, int], text: str) -> str | None:
    """In our notation; None where nothing is said of it."""
    mean, spread = found.get(name), found.get(f"{name}_stdev")
    low, high = found.get(f"{name}_min"), found.get(f"{name}_max")
    if mean is None:
        if spread is None and low is None and high is None:
            return None
        raise ConfigError(
            f"--data {shown(text)}: gives the spread of {name} but not {name}; add it"
        )
    if not spread and (low is None or high is None):
        return str(mean)
    if not spread:
        return f"{low}..{high}"
    limits = "" if low is None and high is None else f",{low or 1}"
    return f"normal({mean},{spread}{limits}{'' if high is None else f',{high}'})"
