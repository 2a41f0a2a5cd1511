"""What makes two measurements comparable, as plain facts, and how two sets of them differ.

Facts of a workload and of a provider are what is measured: another value is another series. What is
only said of a provider (its price, its region, notes), the schedule and the names of variables are
not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.bench.client.endpoints import without_secrets
from headrace.bench.providers.settings import Provider, ProvidersFile
from headrace.errors import shown

Facts = dict[str, Any]

FINGERPRINT = "prompts_fingerprint"

_MOST_NAMED = 8


def workload_facts(of: ProvidersFile, prompts_name: str, fingerprint: str) -> Facts:
    """Of what every provider is sent. fingerprint: of the prompts without their salts."""
    return {
        "prompts": prompts_name,
        FINGERPRINT: fingerprint,
        "input_tokens": None if of.dataset is not None else str(of.input_tokens),
        "output_tokens": of.output_tokens,
        "single_requests": of.single_requests,
        "batch_size": of.batch_size,
        "timeout_s": of.timeout_s,
        "cached": of.cached,
        "seed": of.seed,
    }


def provider_facts(of: Provider) -> Facts:
    """Of the endpoint; of headers their names, because values may be secret."""
    return {
        "base_url": without_secrets(of.base_url),
        "type": of.type,
        "model": of.model,
        "extra_body": of.extra_body,
        "headers": sorted({name.lower() for name in (*of.headers, *of.headers_env)}),
        "path": of.path,
        "max_tokens_field": of.max_tokens_field,
        "include_usage": of.include_usage,
        # Left out where they are not asked for: databases from before they were there go on.
        **({"continuous_usage": True} if of.continuous_usage else {}),
        **({"return_metrics": True} if of.return_metrics else {}),
    }


def said_facts(of: Provider) -> Facts:
    """What the file says of a provider beside that; a report shows what was said last."""
    price = of.price
    return {
        "input_usd": None if price is None else price.input,
        "output_usd": None if price is None else price.output,
        "cached_usd": None if price is None else price.cached,
        "usd_per_hour": of.usd_per_hour,
        "region": of.region,
        "notes": of.notes,
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any], of: str = "") -> list[str]:
    """Each fact that is not the same, in words; a fingerprint only where nothing else says it."""
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    told = [name for name in names if name != FINGERPRINT] or names
    return [
        f"{of}{name} was {shown(before.get(name))} and is {shown(now.get(name))}" for name in told
    ]


def all_differences(
    before: tuple[Facts, Mapping[str, Facts]], now: tuple[Facts, Mapping[str, Facts]]
) -> list[str]:
    """Of a workload and the providers by name."""
    told = differences(before[0], now[0])
    for name in dict.fromkeys([*before[1], *now[1]]):
        if name not in now[1]:
            told.append(f"provider {shown(name)} is gone")
        elif name not in before[1]:
            told.append(f"provider {shown(name)} is new")
        else:
            told += differences(before[1][name], now[1][name], f"{name}: ")
    return told


def joined_briefly(changes: list[str]) -> str:
    """The first few changes, and the number of the others."""
    more = len(changes) - _MOST_NAMED
    return "; ".join([*changes[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
