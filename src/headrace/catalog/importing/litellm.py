"""LiteLLM's table: a JSON object of models, each with costs in USD per token.

Source: model_prices_and_context_window.json of the LiteLLM repository, its `sample_spec` and the
fields that its entries have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.catalog.importing.rows_file import (
    ImportedPrice,
    ImportedRows,
    Number,
    per_million,
    provider_id,
    slug,
)
from headrace.errors import CatalogError, shown

# Of these, tokens are what is paid for.
_MODES = {"chat", "completion", "responses", "embedding", "rerank", None}
_PRICES = {
    "input_cost_per_token": "input_usd_per_million_tokens",
    "output_cost_per_token": "output_usd_per_million_tokens",
    "cache_read_input_token_cost": "cache_read_usd_per_million_tokens",
    "cache_creation_input_token_cost": "cache_write_5m_usd_per_million_tokens",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h_usd_per_million_tokens",
    "output_cost_per_reasoning_token": "reasoning_usd_per_million_tokens",
    "input_cost_per_audio_token": "input_audio_usd_per_million_tokens",
    "output_cost_per_audio_token": "output_audio_usd_per_million_tokens",
}
_LENGTHS = {
    "max_input_tokens": "context_tokens",
    "max_output_tokens": "max_output_tokens",
    "prompt_cache_min_tokens": "cache_minimum_tokens",
}
# LiteLLM's own older name for the same price.
_SAME = {"input_cost_per_token_cache_hit": "cache_read_input_token_cost"}
_FACTORS = {"_batches": "batch_factor", "_flex": "flex_factor", "_priority": "priority_factor"}
_TIERED = frozenset(list(_PRICES)[:5])
_TIER = re.compile(r"(.+)_above_(\d+)k_tokens")


def read_litellm(content: bytes) -> ImportedRows:
    """The rows of LiteLLM's table. Raises CatalogError for anything else."""
    try:
        table = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CatalogError(f"not LiteLLM's table: not valid JSON: {error}") from error
    if not isinstance(table, dict) or not any(_is_model(entry) for entry in table.values()):
        raise CatalogError(
            "not LiteLLM's table: expected an object of models, as in "
            "model_prices_and_context_window.json"
        )
    rows: dict[str, ImportedPrice] = {}
    unknown: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for key, entry in table.items():
        if key == "sample_spec":
            continue
        if not isinstance(entry, dict):
            # Copies of the table have the day of the copy and the like beside the models.
            skipped["not a model"] += 1
            continue
        reason = _unusable(key, entry)
        if reason:
            skipped[reason] += 1
            continue
        row = _row(key, entry, unknown)
        if row.id in rows:
            skipped["another row has the same name"] += 1
        rows.setdefault(row.id, row)
    return ImportedRows(list(rows.values()), unknown, skipped)


def _is_model(entry: object) -> bool:
    return isinstance(entry, dict) and "litellm_provider" in entry


def _unusable(key: str, entry: Mapping[str, Any]) -> str | None:
    if not isinstance(entry.get("litellm_provider"), str) or not slug(key):
        return "no provider"
    if entry.get("mode") not in _MODES:
        return f"mode {shown(entry.get('mode'))}"
    if not any(_is_price(entry.get(name)) for name in ("input_cost_per_token",
                                                       "output_cost_per_token")):  # fmt: skip
        return "no price per token"
    return None


def _row(key: str, entry: Mapping[str, Any], unknown: Counter[str]) -> ImportedPrice:
    provider = entry["litellm_provider"]
    prices: dict[str, Number] = {}
    above: dict[str, dict[int, Number]] = {}
    for name, value in entry.items():
        tier = _TIER.fullmatch(name)
        if name in _PRICES and _is_price(value):
            prices[_PRICES[name]] = per_million(value)
        elif name in _LENGTHS and _is_price(value) and value >= 1 and value == int(value):
            prices[_LENGTHS[name]] = int(value)
        elif tier and tier[1] in _TIERED and _is_price(value):
            above.setdefault(_PRICES[tier[1]], {})[int(tier[2]) * 1000] = per_million(value)
        elif not _is_factor(name) and not _is_same(name, value, entry) and _is_cost(name):
            unknown[name] += 1
    prices |= _factors(entry, unknown)
    # Names of other sellers' models often have the provider in front.
    model = key.removeprefix(f"{provider}/")
    return ImportedPrice(
        slug(f"litellm-{provider}-{model}"), f"{model} at {provider} (LiteLLM)",
        provider_id(provider), model, prices, above,
    )  # fmt: skip


def _factors(entry: Mapping[str, Any], unknown: Counter[str]) -> dict[str, Number]:
    """Service tiers as factors of the list price, where input and output have the same."""
    found: dict[str, Number] = {}
    for suffix, field in _FACTORS.items():
        ratios = set()
        for name in ("input_cost_per_token", "output_cost_per_token"):
            base, other = entry.get(name), entry.get(name + suffix)
            if _is_price(base) and _is_price(other) and base:
                ratios.add(float(f"{other / base:.6g}"))
        discount = field != "priority_factor"
        if len(ratios) == 1 and (not discount or max(ratios) <= 1):
            found[field] = ratios.pop()
        elif ratios:
            unknown[f"*{suffix} (not one factor)"] += 1
    return found


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _is_factor(name: str) -> bool:
    return any(name in (f"input_cost_per_token{end}", f"output_cost_per_token{end}")
               for end in _FACTORS)  # fmt: skip


def _is_same(name: str, value: object, entry: Mapping[str, Any]) -> bool:
    return name in _SAME and entry.get(_SAME[name], value) == value


def _is_cost(name: str) -> bool:
    """Whether a field is about money; capabilities and limits are not what is imported."""
    return "cost" in name or "price" in name or "pricing" in name or "multiplier" in name
