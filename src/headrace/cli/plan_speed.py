"""`headrace plan speed`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.plan_options import (
    catalog_of,
    catalog_options,
    integers,
    parallel_options,
    place_options,
    replica_named,
    request_options,
    storage_of,
    storage_options,
)
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.plan.replica import Replica
    from headrace.plan.speed_plan import Draft


@click.command()
@click.argument("model")
@place_options
@request_options
@click.option("--batch", type=int, default=1, help="Requests decoded together. [default: 1]")
@click.option(
    "--batches",
    callback=integers,
    help="Batches of the table, such as 1,8,64. [default: powers of 2 to 256 that fit]",
)
@click.option(
    "--contexts",
    callback=integers,
    help="Tokens in the cache for which the table is printed, such as 1k,8k,32k. [default: those "
    "half way through an answer]",
)
@storage_options
@parallel_options
@click.option(
    "--draft-acceptance",
    type=float,
    help="Share of drafted tokens that are accepted, 0 to 1: tells what speculation gains.",
)
@click.option(
    "--draft-model",
    help="Model that drafts, named as MODEL is. [default: drafts take no time, as n-grams do]",
)
@click.option("--draft-tokens", type=int, default=4, help="Tokens of a draft. [default: 4]")
@catalog_options
def speed(model: str, **options: Any) -> None:
    """Tell how fast MODEL answers: TTFT, TPOT, E2E, throughput, the bottleneck and the knee.

    MODEL is named as for `headrace plan fit`. Times come from the roofline of bytes and operations
    with stated efficiencies, whose range is the band.
    """
    from headrace.plan.model_named import shape_named
    from headrace.plan.speed import Load
    from headrace.plan.speed_plan import speed_plan

    known = catalog_of(options["folders"])
    shape = shape_named(known, model, os.environ)
    replica = replica_named(known, shape, options)
    load = Load(
        prompt_tokens=options["prompt"],
        output_tokens=options["output"],
        batch=options["batch"],
        cached_prompt_share=options["cached"],
    )
    found = speed_plan(
        replica,
        load,
        batches=options["batches"],
        contexts=options["contexts"],
        draft=_draft(known, replica, options),
    )
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
        return
    from headrace.cli.plan_speed_tables import print_speed

    print_speed(found)


def _draft(known: Catalog, replica: Replica, options: dict[str, Any]) -> Draft | None:
    from headrace.plan.model_named import shape_named
    from headrace.plan.speed_plan import Draft

    name, acceptance = options["draft_model"], options["draft_acceptance"]
    if acceptance is None:
        if name is not None:
            raise ConfigError(
                "draft_acceptance is not given; what a draft model gains depends on it: add "
                "--draft-acceptance (0.6 to 0.8 is usual)"
            )
        return None
    if name is None:
        return Draft(
            name="drafts that take no time", acceptance=acceptance, tokens=options["draft_tokens"]
        )
    shape = shape_named(known, name, os.environ)
    kind = options["quantization"] if shape.weight_bytes is None else None
    storage = storage_of(known, shape, kind, options["kv_type"], options["block_size"])
    return Draft(
        name=shape.name,
        acceptance=acceptance,
        tokens=options["draft_tokens"],
        model=replica.beside(shape, storage),
    )
