"""models.dev's catalogue: its api.json, or its `providers` tree of TOML files, packed or not.

Costs are USD per million tokens. Source: the files and the README of the models.dev repository.
"""

from __future__ import annotations

import re
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from headrace.catalog.files import MAX_FILE_BYTES
from headrace.catalog.importing.rows_file import (
    ImportedPrice,
    ImportedRows,
    Number,
    provider_id,
    slug,
)
from headrace.errors import CatalogError

# One file describes one model; the largest of those there are has 20 kB.
_MAX_MODEL_BYTES = 2**18
_PRICES = {
    "input": "input_usd_per_million_tokens",
    "output": "output_usd_per_million_tokens",
    "cache_read": "cache_read_usd_per_million_tokens",
    "cache_write": "cache_write_5m_usd_per_million_tokens",
    "reasoning": "reasoning_usd_per_million_tokens",
    "input_audio": "input_audio_usd_per_million_tokens",
    "output_audio": "output_audio_usd_per_million_tokens",
}
_LENGTHS = {"context": "context_tokens", "output": "max_output_tokens"}
_OVER = re.compile(r"context_over_(\d+)k")


class _Model(NamedTuple):
    provider: str
    model: str
    table: Mapping[str, Any]


def read_models_dev(path: Path) -> ImportedRows:
    """The rows of `path`: api.json, a folder or a tar archive. Raises CatalogError for others."""
    rows: dict[str, ImportedPrice] = {}
    unknown: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for model in _models(path):
        cost = model.table.get("cost")
        if not isinstance(cost, dict) or not {"input", "output"} & cost.keys():
            skipped["no price per token"] += 1
            continue
        row = _row(model, cost, unknown)
        if row.id in rows:
            skipped["another row has the same name"] += 1
        rows.setdefault(row.id, row)
    if not rows:
        raise CatalogError(
            f"{path}: no model with a cost in it; give models.dev's api.json, or its repository "
            "as a folder or a .tar.gz"
        )
    return ImportedRows(list(rows.values()), unknown, skipped)


def _models(path: Path) -> Iterator[_Model]:
    try:
        if path.is_dir():
            yield from _of_tree(
                (PurePosixPath(file.relative_to(path).as_posix()), file.read_bytes())
                for file in sorted(path.rglob("*.toml"))
                if file.stat().st_size <= _MAX_MODEL_BYTES
            )
        elif tarfile.is_tarfile(path):
            yield from _of_tree(_of_archive(path))
        else:
            yield from _of_api(path)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}") from error


def _of_archive(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Files are read where they are; nothing is unpacked."""
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and member.size <= _MAX_MODEL_BYTES:
                yield PurePosixPath(member.name), file.read()


def _of_tree(files: Iterator[tuple[PurePosixPath, bytes]]) -> Iterator[_Model]:
    for name, content in files:
        parts = name.parts
        if name.suffix != ".toml" or "providers" not in parts or "models" not in parts:
            continue
        provider = parts[parts.index("providers") + 1]
        model = "/".join(parts[parts.index("models") + 1 :]).removesuffix(".toml")
        try:
            yield _Model(provider, model, tomllib.loads(content.decode("utf-8")))
        except ValueError as error:  # of UTF-8 and of TOML
            raise CatalogError(f"{name}: not valid TOML: {error}") from error


def _of_api(path: Path) -> Iterator[_Model]:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    try:
        table = msgspec.json.decode(content[:MAX_FILE_BYTES], type=dict[str, _Provider])
    except msgspec.MsgspecError as error:
        raise CatalogError(f"{path}: not models.dev's api.json: {error}") from error
    for provider, entry in table.items():
        for model, description in entry.models.items():
            yield _Model(provider, model, description)


class _Provider(msgspec.Struct):
    models: dict[str, dict[str, Any]]


def _row(model: _Model, cost: Mapping[str, Any], unknown: Counter[str]) -> ImportedPrice:
    prices: dict[str, Number] = {}
    above: dict[str, dict[int, Number]] = {}
    for name, value in cost.items():
        over = _OVER.fullmatch(name)
        if name in _PRICES and _is_price(value):
            prices[_PRICES[name]] = value
        elif name == "tiers" and isinstance(value, list):
            for tier in value:
                _tier(tier, above, unknown)
        elif over and isinstance(value, dict):
            _prices_above(int(over[1]) * 1000, value, above, unknown)
        else:
            unknown[f"cost.{name}"] += 1
    limit = model.table.get("limit")
    for name, field in _LENGTHS.items():
        length = limit.get(name) if isinstance(limit, dict) else None
        if isinstance(length, int) and length > 0:
            prices[field] = length
    if "experimental" in model.table:
        unknown["experimental (prices of other modes)"] += 1
    return ImportedPrice(
        slug(f"models-dev-{model.provider}-{model.model}"),
        f"{model.model} at {model.provider} (models.dev)",
        provider_id(model.provider), model.model, prices, above,
    )  # fmt: skip


def _tier(tier: object, above: dict[str, dict[int, Number]], unknown: Counter[str]) -> None:
    limit = tier.get("tier") if isinstance(tier, dict) else None
    size = limit.get("size") if isinstance(limit, dict) else None
    if not isinstance(tier, dict) or not isinstance(limit, dict) or not isinstance(size, int):
        unknown["cost.tiers (without a size)"] += 1
    elif limit.get("type", "context") != "context":
        unknown[f"cost.tiers of type {limit['type']!r}"] += 1
    else:
        prices = {name: value for name, value in tier.items() if name != "tier"}
        _prices_above(size, prices, above, unknown)


def _prices_above(
    boundary: int,
    prices: Mapping[str, Any],
    above: dict[str, dict[int, Number]],
    unknown: Counter[str],
) -> None:
    for name, value in prices.items():
        if name in _PRICES and name not in ("reasoning", "input_audio", "output_audio"):
            if _is_price(value):
                above.setdefault(_PRICES[name], {})[boundary] = value
        else:
            unknown[f"cost.tiers.{name}"] += 1


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
