"""`headrace plan recommend`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import integer
from headrace.cli.plan.options import catalog_of, catalog_options, hardware_named
from headrace.cli.plan.output import keep_for_explain, page_options, plan_about, write_page

if TYPE_CHECKING:
    import datetime as dt

TASKS = ("chat", "code", "rag", "agent", "batch")
ORDERS = ("balance", "cost", "latency", "size")


@click.command(short_help="Recommend what to run for a task, with the commands.")
@click.option("--task", type=click.Choice(TASKS), required=True, help="Task that the model is for.")
@click.option(
    "--slo",
    metavar="LIMITS",
    help='Limits on ttft, tpot and e2e: ttft:500,tpot:50 for means in ms, or ttft:p95<300ms. "" '
    "for none. [default: the catalog's for chat]",
)
@click.option(
    "--rate", type=float, default=1.0, help="Requests per second at the peak. [default: 1]"
)
@click.option(
    "--mean-rate",
    type=float,
    help="Mean requests per second over the month, by which APIs are paid. [default: --rate]",
)
@click.option(
    "--prompt", metavar="INTEGER", callback=integer, help="Tokens of a prompt. [default: by task]"
)
@click.option(
    "--output", metavar="INTEGER", callback=integer, help="Tokens of an answer. [default: by task]"
)
@click.option(
    "--context", metavar="INTEGER", callback=integer,
    help="Maximum tokens of a request. [default: prompt and output]",
)  # fmt: skip
@click.option(
    "--cached", type=float, default=0.0,
    help="Share of the prompt found in a prefix cache, 0 to 1. [default: 0]",
)  # fmt: skip
@click.option("--budget", type=float, help="Maximum US dollars per month. [default: no limit]")
@click.option("--private", is_flag=True, help="Data must not leave the premises: no APIs.")
@click.option(
    "--edge",
    is_flag=True,
    help="Consider only laptops, phones and desktops, no data-centre hardware.",
)
@click.option(
    "--hardware", "hardware", multiple=True,
    help="Hardware to consider, `this` machine (its cards where nvidia-smi lists any, else its "
        "CPU), or `cpu`, its CPU. [may be repeated; default: all that has a price, and this "
        "machine]",
)  # fmt: skip
@click.option("--model", "models", multiple=True, help="Model to consider. [may be repeated]")
@click.option(
    "--quantization", "quantizations", multiple=True,
    help="Kind of weights to consider. [may be repeated; default: those that checkpoints exist in]",
)  # fmt: skip
@click.option(
    "--min-quality", metavar="PARAMETERS", callback=integer,
    help="Minimum size of a model, such as 8g: √(total · active parameters), which stands for "
        "quality; 0 for any. [default: by task]",
)  # fmt: skip
@click.option("--min-bits", type=float, help="Minimum bits per weight.")
@click.option(
    "--any-licence", is_flag=True, help="Also consider licences that exclude commercial use."
)
@click.option(
    "--headroom", type=float,
    help="Share of its capacity that a replica is planned to use. [default: the catalog's, 0.7]",
)  # fmt: skip
@click.option(
    "--max-devices", type=int, default=64, help="Maximum number of devices. [default: 64]"
)
@click.option(
    "--sort", "order", type=click.Choice(ORDERS), default="balance",
    help="Criterion that options are ranked by. [default: balance]",
)  # fmt: skip
@click.option("--top", type=int, default=10, help="Number of options listed. [default: 10]")
@click.option(
    "--on", type=click.DateTime(["%Y-%m-%d"]),
    help="Use the prices of this day, YYYY-MM-DD. [default: today]",
)  # fmt: skip
@click.option(
    "--calibration/--no-calibration",
    default=True,
    help="Plan headrace on this machine with the results of `headrace plan calibrate`. [default: "
    "on]",
)
@catalog_options
@page_options
def recommend(**options: Any) -> None:
    """Recommend what to run: model, quantization, runtime, hardware and count, or an API.

    Every combination is planned as `plan fit`, `plan speed` and `plan cost` plan it, and excluded
    if it breaks a rule of the catalog (`headrace catalog list rule`). The others are ranked, with
    the commands that run them. If none is left, the nearest misses show what would help.

    \b
    headrace plan recommend --task chat --rate 5 --budget 3000
    headrace plan recommend --task code --private --slo 'ttft:p95<800ms,tpot:30' --min-quality 30g
    headrace plan recommend --task chat --edge --hardware this --hardware rtx-4090
    """
    from headrace.cli.counting import counting
    from headrace.plan.calibration.stored import stored_calibration
    from headrace.plan.recommendation import question_of
    from headrace.plan.recommendation import recommend as recommended
    from headrace.telemetry.machine import stored_machine
    from headrace.telemetry.nvidia_cards import nvidia_cards

    known = catalog_of(options["folders"])
    day: dt.date = (options["on"] or datetime.now(UTC)).date()
    question = question_of(
        known,
        options["task"],
        day,
        slo=options["slo"],
        rate=options["rate"],
        mean_rate=options["mean_rate"],
        prompt_tokens=options["prompt"],
        output_tokens=options["output"],
        context_tokens=options["context"],
        headroom=options["headroom"],
        budget_usd=options["budget"],
        private=options["private"],
        edge=options["edge"],
        hardware=options["hardware"],
        models=options["models"],
        quantizations=options["quantizations"],
        least_parameters=options["min_quality"],
        least_bits=options["min_bits"],
        any_licence=options["any_licence"],
        cached_prompt_share=options["cached"],
        max_devices=options["max_devices"],
    )
    calibration = None
    if options["calibration"]:
        calibration = stored_calibration(os.environ, datetime.now(UTC))
    for name in dict.fromkeys(question.hardware):
        hardware_named(known, name, None)  # says what `this` is
    with counting("models") as progress:
        found = recommended(
            known, question, machine=stored_machine(os.environ), calibration=calibration,
            cards=nvidia_cards(os.environ), order=options["order"], most=max(1, options["top"]),
            progress=progress,
        )  # fmt: skip
    about = plan_about("recommend", options["folders"])
    if options["keep"]:
        keep_for_explain(found.as_dict(), about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        from headrace.cli.plan.tables.recommend import print_recommendation

        print_recommendation(found)
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        write_page(options["html"], plan_page(known, about, recommendation=found))
