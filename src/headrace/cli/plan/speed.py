"""`headrace plan speed`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
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
    storage_of,
    storage_options,
)
from headrace.cli.plan.output import keep_for_explain, output_options, plan_about, write_page
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.plan.speed.disaggregation import Pools
    from headrace.plan.speed.replica import Replica
    from headrace.plan.speed.speed_plan import Draft


@click.command(short_help="Predict prefill, TPOT and throughput, and what limits them.")
@click.argument("model")
@place_options
@request_options
@click.option("--batch", type=int, default=1, help="Requests decoded together. [default: 1]")
@click.option(
    "--batches",
    callback=integers,
    help="Batch sizes of the table, such as 1,8,64. [default: powers of 2 to 256 that fit]",
)
@click.option(
    "--contexts",
    callback=integers,
    help="Context lengths of the table, in tokens, such as 1k,8k,32k. [default: halfway through "
    "an answer]",
)
@storage_options
@parallel_options
@click.option(
    "--draft-acceptance",
    metavar="SHARE|SHARES|URL|FILE",
    help="Share of drafted tokens that are accepted, 0 to 1: shows what speculation gains. With "
    "commas, of the first draft, of the second where the first is accepted, and so on; or where it "
    "was measured: a server, a text of its /metrics, a result of `headrace bench load`, or a "
    "draft's card.",
)
@click.option(
    "--draft-model",
    help="Draft model, named as MODEL is. [default: drafting takes no time, as with n-grams]",
)
@click.option(
    "--apart",
    metavar="PREFILL:DECODE",
    help="Replicas of the two pools of disaggregated prefill and decode, such as 1:2.",
)
@click.option(
    "--transfer",
    type=float,
    help="GB/s at which a replica's KV cache is sent from pool to pool. [default: the network's]",
)
@click.option(
    "--draft-tokens", type=int, default=4, help="Number of tokens in a draft. [default: 4]"
)
@catalog_options
@output_options
def speed(model: str, **options: Any) -> None:
    """Predict how fast MODEL computes: prefill, TPOT, E2E, throughput, the bottleneck and the knee.

    MODEL is named as for `headrace plan fit`. Times come from the roofline of bytes and operations
    with stated efficiencies; the range of the efficiencies is the error band. Of TTFT only prefill
    is predicted: what a served request waits for is not in it.

    \b
    headrace plan speed llama-3.1-8b --hardware h100 --batch 32
    headrace plan speed deepseek-v3 --hardware h200 --count 8 --prompt 4096
    headrace plan speed llama-3.3-70b --hardware h100 --count 4 --draft-acceptance 0.7
    """
    from headrace.plan.model.find_model import shape_named
    from headrace.plan.speed.speed import Load
    from headrace.plan.speed.speed_plan import speed_plan

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
    if (pools := _pools(options)) is not None:
        from headrace.plan.speed.disaggregation import disaggregated_speed

        found = replace(found, apart=disaggregated_speed(known, replica, load, pools))
    about = plan_about("speed", options["folders"])
    if options["keep"]:
        keep_for_explain(found.as_dict(), about)
    if options["as_json"]:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        from headrace.cli.plan.tables.speed import print_speed

        print_speed(found, options["plot"])
    if options["html"] is not None:
        from headrace.plan.page import plan_page

        write_page(options["html"], plan_page(known, about, speed=found))


def _pools(options: dict[str, Any]) -> Pools | None:
    from headrace.plan.speed.disaggregation import Pools

    asked, transfer = options["apart"], options["transfer"]
    if asked is None:
        if transfer is not None:
            raise ConfigError("--transfer needs pools: name them with --apart 1:2")
        return None
    prefill, _, decode = asked.partition(":")
    try:
        return Pools(
            prefill=int(prefill),
            decode=int(decode),
            bandwidth_bytes_per_s=None if transfer is None else transfer * 1e9,
        )
    except ValueError:
        raise ConfigError(
            f"--apart {shown(asked)} is not PREFILL:DECODE; write 1:2 for a replica that prefills "
            "and two that decode"
        ) from None


def _draft(known: Catalog, replica: Replica, options: dict[str, Any]) -> Draft | None:
    from headrace.cli.plan.metrics_text import metrics_text
    from headrace.plan.model.find_model import shape_named
    from headrace.plan.speed.measured_acceptance import read_acceptance
    from headrace.plan.speed.speed_plan import Draft

    name, stated = options["draft_model"], options["draft_acceptance"]
    if stated is None:
        if name is not None:
            raise ConfigError(
                "--draft-acceptance is missing, and what a draft model gains depends on it: "
                "add --draft-acceptance (0.6 to 0.8 is usual)"
            )
        return None
    measured = read_acceptance("--draft-acceptance", stated, metrics_text)
    acceptance = (
        measured.shares[0]
        if len(measured.shares) == 1
        else measured.same_for_all(options["draft_tokens"])
    )
    passes = _passes(replica, name)
    if name is None or passes is not None:
        return Draft(
            name=passes or "drafting that takes no time",
            acceptance=acceptance,
            tokens=options["draft_tokens"],
            source=measured.source,
            passes=passes,
        )
    shape = shape_named(known, name, os.environ)
    kind = options["quantization"] if shape.weight_bytes is None else None
    storage = storage_of(known, shape, kind, options["kv_type"], options["block_size"])
    return Draft(
        name=shape.name,
        acceptance=acceptance,
        tokens=options["draft_tokens"],
        model=replica.beside(shape, storage),
        source=measured.source,
    )


def _passes(replica: Replica, name: str | None) -> str | None:
    """The name of a draft whose passes were measured beside the model."""
    steps = replica.model.setup.measured_steps
    if steps is None or name is None:
        return None
    wanted = Path(name).name
    return next((known.draft for known in steps.drafts if known.draft == wanted), None)
