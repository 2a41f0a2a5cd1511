"""What an import found, and the file it becomes.

Nothing is guessed: a price that cannot be said in this catalog's words is left out and counted
under its name, so that people see what was lost.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.catalog.fact import Source

Number = float | int

# What tables call providers that this catalog has under another id.
_PROVIDERS = {
    "gemini": "google",
    "vertex-ai": "google-vertex",
    "vertex-ai-language-models": "google-vertex",
    "bedrock": "aws-bedrock",
    "bedrock-converse": "aws-bedrock",
    "amazon-bedrock": "aws-bedrock",
    "azure": "azure-openai",
    "together-ai": "together",
    "togetherai": "together",
    "fireworks-ai": "fireworks",
    "cohere-chat": "cohere",
    "text-completion-openai": "openai",
}


class ImportedPrice(NamedTuple):
    """A price row that an import makes."""

    id: str
    name: str
    provider: str
    model: str
    prices: Mapping[str, Number]
    """By field of a price row."""
    above: Mapping[str, Mapping[int, Number]]
    """By field and boundary in tokens."""


class ImportedRows(NamedTuple):
    """The rows an import found, and those it had to omit."""

    rows: list[ImportedPrice]
    unknown: Counter[str]
    """Fields about prices that have no place here, with how many rows had them."""
    skipped: Counter[str]
    """Rows that were left out, counted by reason."""


def slug(text: str) -> str:
    """`text` as an id: small letters, digits and single dashes or dots."""
    return re.sub(r"[^a-z0-9]+", "-", text.casefold().replace(".", "-")).strip("-")


def provider_id(name: str) -> str:
    """The provider as this catalog calls it; its own slug where the catalog does not know it."""
    own = slug(name)
    return _PROVIDERS.get(own, own)


def per_million(per_token: Number) -> float:
    """USD per million tokens, without what binary fractions add."""
    return float(f"{per_token * 1e6:.9g}")


def file_text(imported: ImportedRows, source: Source, day: dt.date) -> str:
    """The TOML of a user's file that says the rows, their source and the day they hold from."""
    lines = [
        f"# Prices imported from {source.title}.",
        "# Rows may be edited; another import writes the file again.",
        "",
        "[defaults]",
        f"source = {_text(source.id)}",
        f"as_of = {day.isoformat()}",
        'confidence = "medium"',
        "",
        "[[source]]",
        f"id = {_text(source.id)}",
        f"title = {_text(source.title)}",
        f"date = {source.date.isoformat()}",
        *([f"url = {_text(source.url)}"] if source.url else []),
    ]
    for row in imported.rows:
        lines += [
            "",
            "[[price]]",
            f"id = {_text(row.id)}",
            f"name = {_text(row.name)}",
            f"provider = {_text(row.provider)}",
            f"model = {_text(row.model)}",
            f"effective_from = {day.isoformat()}",
            *(f"{field} = {_number(value)}" for field, value in row.prices.items()),
        ]
        for field, tiers in row.above.items():
            pairs = ", ".join(
                f'"{boundary}" = {_number(value)}' for boundary, value in tiers.items()
            )
            lines.append(f"{field}_above = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    # JSON's strings are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _number(value: Number) -> str:
    return msgspec.json.encode(value).decode()
