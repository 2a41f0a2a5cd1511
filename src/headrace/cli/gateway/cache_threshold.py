"""`headrace gateway cache-threshold`: how like questions must be to share an answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.numbers import NumberRange

if TYPE_CHECKING:
    from headrace.gateway.cache.semantic.threshold import Pair, Rate, Row

_BATCH = 64


@click.command("cache-threshold", short_help="Measure at which similarity the semantic cache errs.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
@click.option(
    "--model",
    help="Model that embeds: a model of the file, or provider/model. [default: "
    "cache.semantic.embedding_model]",
)
@click.option(
    "--pairs",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Labelled pairs, one JSON object per line. [default: 124 pairs that come with headrace]",
)
@click.option(
    "--false-hits",
    type=NumberRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="The false-hit rate that must not be reached, with 95 % confidence.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cache_threshold(
    config: Path, model: str | None, pairs: Path | None, false_hits: float, as_json: bool
) -> None:
    """Measure the similarity from which the semantic cache gives wrong answers.

    Embeds pairs of questions that a person has labelled ({"a": "...", "b": "...", "same": false})
    and reports for each threshold how many pairs that are the same would hit, and how many that are
    not, with an interval of 95 %. It recommends the lowest threshold whose false-hit rate is below
    --false-hits even at the upper end of its interval. Only sends the texts to the embedding model;
    no ledger is written.

    \b
    headrace gateway cache-threshold --model own/embedder
    headrace gateway cache-threshold --pairs ours.jsonl --false-hits 0.005 --json
    """
    from headrace.errors import ConfigError
    from headrace.gateway.cache.semantic.threshold import (
        SHIPPED_PAIRS,
        pairs_needed,
        read_pairs,
        recommended,
        similarities_of,
        table_of,
    )
    from headrace.gateway.settings.read import read_settings

    settings = read_settings(config)
    if model is None and settings.cache.semantic is not None:
        model = settings.cache.semantic.embedding_model
    if model is None:
        raise ConfigError("--model: the file has no cache.semantic; name the model that embeds")
    judged = read_pairs(SHIPPED_PAIRS if pairs is None else pairs)
    vectors = asyncio.run(
        _vectors(config, model, [text for one in judged for text in (one.a, one.b)])
    )
    similarities = similarities_of(judged, vectors)
    rows = table_of(judged, similarities)
    found = recommended(rows, false_hits)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "model": model,
                    "pairs": len(judged),
                    "false_hits": false_hits,
                    "recommended": None if found is None else found.threshold,
                    "thresholds": [_as_dict(row) for row in rows],
                }
            )
        )
        return
    _print(rows, found)
    if found is not None:
        click.echo(
            f"threshold: {found.threshold:g} (false hits below {found.false_hits.high:.1%}, "
            f"hits {found.hits.share:.0%})"
        )
        return
    different = rows[0].false_hits.total
    click.echo(
        f"no threshold is certain to stay below {false_hits:g}: that takes "
        f"{pairs_needed(false_hits):,} different pairs without a false hit, and there are "
        f"{different:,}"
    )
    _print_nearest(judged, similarities)


async def _vectors(config: Path, model: str, texts: list[str]) -> list[bytes]:
    from dataclasses import replace

    from headrace.errors import ConfigError
    from headrace.gateway.assemble import made
    from headrace.gateway.cache.semantic.arithmetic import normalised
    from headrace.gateway.routing.preferences import read_wanted
    from headrace.gateway.serving.embed import embed, embeddings_of
    from headrace.gateway.serving.embedding_request import EmbeddingRequest
    from headrace.gateway.serving.target_failures import AllTargetsFailedError
    from headrace.gateway.settings.read import read_settings
    from headrace.protocol.neutral.embedding import EmbeddingCall

    built = made(config, read_settings(config), None)
    serving = replace(built.serving, on_entry=lambda _: None)
    found: list[bytes] = []
    try:
        for at in range(0, len(texts), _BATCH):
            asked = EmbeddingRequest(
                id=f"cache-threshold-{at}",
                dialect="openai-chat",
                call=EmbeddingCall(
                    dialect="openai-chat", model=model, inputs=tuple(texts[at : at + _BATCH])
                ),
                wanted=read_wanted(model, {}),
                caller=None,
                received_ns=serving.clock_ns(),
            )
            try:
                told = await embed(serving, asked, embeddings_of)
            except AllTargetsFailedError as error:
                raise ConfigError(f"{model}: {error}") from error
            found += [one for each in told.reply.vectors if (one := normalised(each)) is not None]
    finally:
        built.close()
    if len(found) != len(texts) or len({len(one) for one in found}) != 1:
        raise ConfigError(
            f"{model}: {len(found):,} vectors of one size were returned for {len(texts):,} texts"
        )
    return found


def _as_dict(row: Row) -> dict[str, Any]:
    def told(rate: Rate) -> dict[str, Any]:
        return {"count": rate.count, "of": rate.total, "low": rate.low, "high": rate.high}

    return {
        "threshold": row.threshold,
        "hits": told(row.hits),
        "false_hits": told(row.false_hits),
    }


def _print(rows: list[Row], found: Row | None) -> None:
    from rich.console import Console
    from rich.table import Table

    def told(rate: Rate) -> str:
        return f"{rate.count}/{rate.total} = {rate.share:.1%} [{rate.low:.1%}..{rate.high:.1%}]"

    table = Table("threshold", "hits of the same", "false hits of the different", "")
    for row in rows:
        mark = "recommended" if row is found else ""
        table.add_row(f"{row.threshold:g}", told(row.hits), told(row.false_hits), mark)
    Console().print(table)


def _print_nearest(judged: list[Pair], similarities: list[float | None]) -> None:
    """Print the most similar pairs of different questions, which a threshold has to tell apart."""
    nearest = sorted(
        ((one, pair) for one, pair in zip(similarities, judged, strict=True)
         if one is not None and not pair.same),
        key=lambda each: -each[0],
    )  # fmt: skip
    for similarity, pair in nearest[:3]:
        click.echo(f"  {similarity:.3f}  {pair.a!r} is not {pair.b!r}")
