"""`headrace plan report`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.plan.options import (
    catalog_of,
    catalog_options,
    parallel_options,
    place_options,
    replica_named,
    request_options,
    storage_options,
)
from headrace.cli.plan.output import keep_for_explain, output_options, plan_about, write_page
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.plan.report import PlanReport
    from headrace.plan.speed.replica import Replica


@click.command(short_help="Plan fit, speed and cost of one load on one page.")
@click.argument("model")
@place_options
@request_options
@click.option(
    "--batch",
    type=int,
    help="Number of requests at once. [default: the most that fit and meet the TPOT target of "
    "chat]",
)
@storage_options
@parallel_options
@click.option(
    "--utilization",
    type=float,
    help="Share of hours in which the hardware is in use. [default: 0.5]",
)
@click.option(
    "--rent", type=float, help="Rent of a device in USD per hour. [default: the catalog's]"
)
@click.option("--price", type=float, help="Price of a device in USD. [default: the catalog's]")
@click.option("--api-model", help="Model whose API prices are compared. [default: MODEL]")
@click.option(
    "--on",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Use the prices of this day, YYYY-MM-DD. [default: today]",
)
@catalog_options
@output_options
def report(model: str, **options: Any) -> None:
    """Show whether MODEL fits, how fast it is and what it costs, for one load.

    MODEL is named as for `headrace plan fit`. With --html the report is one page with tables and
    plots. If one question has no answer, such as the speed of a model that does not fit, the report
    says so and answers the others. `headrace plan cost` has more options for cost.

    \b
    headrace plan report llama-3.1-8b --hardware h100 --batch 32
    headrace plan report qwen3-8b --hardware rtx-4090 --price 1800 --html plan.html
    headrace plan report llama-3.3-70b --quantization fp8 --hardware h100 --count 4 --batch 64
    """
    from headrace.plan.cost.cost_plan import ApiChoice
    from headrace.plan.cost.cost_terms import CostTerms
    from headrace.plan.model.find_model import shape_named
    from headrace.plan.report import plan_report
    from headrace.plan.speed.speed import Load

    known = catalog_of(options["folders"])
    shape = shape_named(known, model, os.environ)
    replica = replica_named(known, shape, options)
    batch, said = _batch(known, replica, options)
    load = Load(
        prompt_tokens=options["prompt"],
        output_tokens=options["output"],
        batch=batch,
        cached_prompt_share=options["cached"],
    )
    stated = {
        "utilization": options["utilization"],
        "rent_usd_per_hour": options["rent"],
        "price_usd": options["price"],
    }
    terms = CostTerms(**{name: value for name, value in stated.items() if value is not None})
    day = (options["on"] or datetime.now(UTC)).date()
    apis = ApiChoice(model=options["api_model"] or shape.name, on=day)
    found = _noted(plan_report(known, replica, load, terms, apis), said)
    about = plan_about("report", options["folders"])
    if options["keep"]:
        keep_for_explain(found.as_dict(), about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        _print(found, options["plot"])
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        page = plan_page(
            known, about, fit=found.fit, speed=found.speed, cost=found.cost, refused=found.refused
        )
        write_page(options["html"], page)


def _batch(known: Catalog, replica: Replica, options: dict[str, Any]) -> tuple[int, str]:
    """Requests at once and why so many; "" where they were asked for."""
    from headrace.plan.speed.default_batch import default_batch

    if options["batch"] is not None:
        return options["batch"], ""
    try:
        chosen = default_batch(known, replica, options["prompt"], options["output"])
    except ConfigError:  # without times there is no TPOT to keep, and the report says why
        return 1, ""
    return chosen.batch, chosen.said


def _noted(found: PlanReport, said: str) -> PlanReport:
    """With that note at the first plan that goes by the batch."""
    if not said:
        return found
    if found.speed is not None:
        return replace(found, speed=replace(found.speed, notes=(said, *found.speed.notes)))
    if found.cost is not None:
        return replace(found, cost=replace(found.cost, notes=(said, *found.cost.notes)))
    return found


def _print(found: PlanReport, plot: bool | None) -> None:
    from headrace.cli.plan.tables.cost import print_cost
    from headrace.cli.plan.tables.fit import print_fit
    from headrace.cli.plan.tables.speed import print_speed
    from headrace.cli.visible import visible

    print_fit(found.fit, plot)
    if found.speed is not None:
        click.echo()
        print_speed(found.speed, plot)
    if found.cost is not None:
        click.echo()
        print_cost(found.cost, every_volume=False, plot=plot)
    for one in found.refused:
        click.echo(f"\n{visible(one)}")
