"""`headrace plan cost`."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.plan.options import (
    catalog_of,
    catalog_options,
    integers,
    parallel_options,
    place_options,
    replica_named,
    request_options,
    storage_options,
)
from headrace.cli.plan.output import keep_for_explain, output_options, plan_about, write_page
from headrace.errors import ConfigError, FetchError

if TYPE_CHECKING:
    import datetime as dt

    from headrace.catalog import Catalog
    from headrace.plan.cost.cost_plan import CostPlan
    from headrace.plan.speed.replica import Replica

DEFAULT_ESCALATION = 0.1


@click.command(short_help="Compare owning, renting and APIs, and the break-even.")
@click.argument("model")
@place_options
@request_options
@click.option(
    "--batch",
    type=int,
    help="Requests decoded together. [default: the most that fit and meet the TPOT target of chat]",
)
@storage_options
@parallel_options
@click.option(
    "--tokens-per-s",
    type=float,
    help="Tokens per second that a busy replica serves, prompt and output together, in place of "
    "the prediction.",
)
@click.option(
    "--utilization",
    type=float,
    help="Share of hours in which the hardware is in use. [default: 0.5]",
)
@click.option(
    "--rent", type=float, help="Rent of a device in USD per hour. [default: the catalog's]"
)
@click.option(
    "--vendor", help="Vendor whose rent in the catalog is used. [default: the lowest of the newest]"
)
@click.option(
    "--rent-overhead",
    type=float,
    help="Total cost of renting as a multiple of the rent. [default: 1]",
)
@click.option("--price", type=float, help="Price of a device in USD. [default: the catalog's]")
@click.option(
    "--lifetime",
    type=float,
    help="Years over which a device is written off. [default: the catalog's, 3.5]",
)
@click.option(
    "--power", type=float, help="Power of a device at full load, in W. [default: the catalog's]"
)
@click.option(
    "--pue",
    type=float,
    help="Energy of the site divided by that of the machines. [default: the catalog's, 1.4]",
)
@click.option(
    "--usd-per-kwh",
    type=float,
    help="Price of electricity in USD per kWh. [default: the catalog's, 0.15]",
)
@click.option(
    "--operations",
    type=float,
    help="USD per hour for staff, racks and network of a replica. [default: 0]",
)
@click.option(
    "--idle-power",
    type=float,
    help="Share of the power that an idle device draws, 0 to 1. [default: 1]",
)
@click.option("--api-model", help="Model whose API prices are compared. [default: MODEL]")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    help="Provider to compare with. [may be repeated; default: all that have a price]",
)
@click.option("--batch-api", is_flag=True, help="Use the providers' batch APIs and discounts.")
@click.option(
    "--on",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Use the prices of this day, YYYY-MM-DD. [default: today]",
)
@click.option(
    "--volumes",
    callback=integers,
    help="Tokens per month to compute the break-even for, such as 10m,1g. [default: 1 M to 1 T]",
)
@click.option(
    "--cascade",
    metavar="SMALL",
    help="Model that gets each request first, named as MODEL is: shows what a cascade of both "
    "costs.",
)
@click.option(
    "--escalation",
    type=float,
    help="Share of requests that SMALL passes on to MODEL, 0 to 1. [default: 0.1]",
)
@catalog_options
@output_options
def cost(model: str, **options: Any) -> None:
    """Compare what MODEL costs on your own hardware, rented and by API, and where they break even.

    Costs are in US dollars per million tokens, prompt and output together. MODEL is named as for
    `headrace plan fit`; a model without open weights is compared among APIs only.

    \b
    headrace plan cost llama-3.3-70b --quantization fp8 --hardware h100 --count 4 --utilization 0.4
    headrace plan cost qwen3-8b --hardware rtx-4090 --price 1800 --usd-per-kwh 0.30
    headrace plan cost gpt-5 --prompt 4000 --output 500 --cached 0.8
    """  # fmt: skip
    known = catalog_of(options["folders"])
    found = _cost(known, model, options, options["api_model"])
    if options["cascade"] is not None:
        _cascade(known, found, options)
        return
    if options["escalation"] is not None:
        raise ConfigError("--escalation needs a small model: name one with --cascade")
    about = plan_about("cost", options["folders"])
    if options["keep"]:
        keep_for_explain(found.as_dict(), about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        from headrace.cli.plan.tables.cost import print_cost

        print_cost(found, every_volume=options["volumes"] is not None, plot=options["plot"])
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        write_page(options["html"], plan_page(known, about, cost=found))


def _cost(known: Catalog, model: str, options: dict[str, Any], api_model: str | None) -> CostPlan:
    from headrace.plan.cost.cost_plan import CURVE_TOKENS_PER_MONTH, ApiChoice, cost_plan
    from headrace.plan.cost.cost_terms import CostTerms
    from headrace.plan.speed.default_batch import default_batch
    from headrace.plan.speed.speed import Load

    day: dt.date = (options["on"] or datetime.now(UTC)).date()
    name, replica = _replica(known, model, options)
    batch = 1 if options["batch"] is None else options["batch"]
    said: tuple[str, ...] = ()
    if options["batch"] is None and replica is not None:
        chosen = default_batch(known, replica, options["prompt"], options["output"])
        batch, said = chosen.batch, (chosen.said,)
    load = Load(
        prompt_tokens=options["prompt"],
        output_tokens=options["output"],
        batch=batch,
        cached_prompt_share=options["cached"],
    )
    stated = {
        "utilization": options["utilization"],
        "rent_usd_per_hour": options["rent"],
        "vendor": options["vendor"],
        "rent_overhead": options["rent_overhead"],
        "price_usd": options["price"],
        "lifetime_years": options["lifetime"],
        "power_w": options["power"],
        "pue": options["pue"],
        "usd_per_kwh": options["usd_per_kwh"],
        "operations_usd_per_hour": options["operations"],
        "idle_power_share": options["idle_power"],
    }
    terms = CostTerms(**{name: value for name, value in stated.items() if value is not None})
    apis = ApiChoice(
        model=api_model or name,
        on=day,
        providers=options["providers"],
        batch=options["batch_api"],
    )
    found = cost_plan(
        known, name, replica, load, terms, apis,
        tokens_per_s=options["tokens_per_s"],
        volumes=options["volumes"] or CURVE_TOKENS_PER_MONTH,
    )  # fmt: skip
    return replace(found, notes=(*said, *found.notes))


def _cascade(known: Catalog, large: CostPlan, options: dict[str, Any]) -> None:
    from headrace.plan.cost.cascade_plan import cascade_plan

    if options["tokens_per_s"] is not None:
        raise ConfigError(
            "--tokens-per-s is for one model, and a cascade has two: omit --tokens-per-s"
        )
    small = _cost(known, options["cascade"], options, None)
    share = options["escalation"]
    found = cascade_plan(small, large, DEFAULT_ESCALATION if share is None else share)
    about = plan_about("cost", options["folders"])
    if options["keep"]:
        keep_for_explain(found.as_dict(), about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        from headrace.cli.plan.cost_cascade import print_cascade

        print_cascade(found)
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        write_page(options["html"], plan_page(known, about, cascade=found))


def _replica(known: Catalog, model: str, options: dict[str, Any]) -> tuple[str, Replica | None]:
    """The model's name and its replica; None for a model that only APIs have."""
    from headrace.plan.model.find_model import shape_named

    row = known.models.find(model)
    try:
        shape = shape_named(known, model, os.environ)
    except (ConfigError, FetchError):
        if not known.prices_of(model):
            raise
        return (model if row is None else row.name), None
    return shape.name, replica_named(known, shape, options)
