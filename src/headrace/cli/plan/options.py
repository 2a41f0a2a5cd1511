"""Options that several commands of `headrace plan` take, and what they name."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.options import integer
from headrace.config import parse_int

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.plan.memory.memory import Storage
    from headrace.plan.model.model_shape import ModelShape
    from headrace.plan.speed.replica import Replica

F = TypeVar("F", bound=Callable[..., Any])


def integers(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Option callback: whole numbers above 0 separated by commas, each also as 32k or 1g."""
    if value is None:
        return None
    try:
        found = [parse_int(part.strip()) for part in value.split(",")]
    except (ValueError, OverflowError):
        message = f"{value!r} is not a list such as 1,8,32 or 1k,8k"
        raise click.BadParameter(message, ctx=ctx, param=param) from None
    if min(found) < 1:
        raise click.BadParameter(f"{min(found)} is below 1", ctx=ctx, param=param)
    return found


def _together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator of several, whose options are listed in that order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


place_options = _together(
    click.option(
        "--hardware",
        default="this",
        help="A device or machine of the catalog, `this` machine (a card of it where nvidia-smi "
        "lists any, else its CPU), or `cpu`, its CPU. [default: this]",
    ),
    click.option(
        "--count", type=int, default=1, help="Number of devices used together. [default: 1]"
    ),
)

storage_options = _together(
    click.option(
        "--quantization",
        help="Storage kind of the weights, as the catalog names it (q4-k-m, fp8). [default: as the "
        "file has them, or as the checkpoint is published; bf16 where nothing states it]",
    ),
    click.option(
        "--kv-type",
        default="F16",
        help="Storage kind of keys and values (F16, Q8_0, fp8, int8_per_token_head), or of each: "
        "Q8_0,Q4_0. "
        "[default: F16]",
    ),
    click.option(
        "--block-size", type=int, default=16,
        help="Tokens in a block of the KV cache. [default: 16]",
    ),
)  # fmt: skip

step_tokens_option = click.option(
    "--step-tokens",
    type=int,
    default=2048,
    help="Maximum tokens in a step of the engine; activations grow with it. [default: 2048]",
)

catalog_options = _together(
    click.option(
        "--catalog",
        "folders",
        multiple=True,
        type=click.Path(),
        help="Folder of catalog files that override the built-in ones. [may be repeated]",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, with all inputs of each figure."
    ),
)

parallel_options = _together(
    click.option(
        "--tensor-parallel",
        type=int,
        help="Devices that each layer is split over. [default: all, divided by the stages]",
    ),
    click.option(
        "--pipeline-parallel",
        type=int,
        default=1,
        help="Number of pipeline stages that the layers are split into. [default: 1]",
    ),
    click.option(
        "--expert-parallel",
        type=int,
        default=1,
        help="Devices of a stage that the experts are distributed over. [default: 1]",
    ),
    click.option(
        "--compute-type",
        help="Number type of matrix products (bf16, fp8, int8). [default: that of the "
        "quantization if the device supports it, else bf16]",
    ),
    step_tokens_option,
    click.option(
        "--calibration/--no-calibration",
        default=True,
        help="Plan this machine with the results of `headrace plan calibrate`. [default: on]",
    ),
)

request_options = _together(
    click.option(
        "--prompt", metavar="INTEGER", callback=integer, default="1024",
        help="Tokens of a prompt. [default: 1024]",
    ),
    click.option(
        "--output", metavar="INTEGER", callback=integer, default="256",
        help="Tokens of an answer. [default: 256]",
    ),
    click.option(
        "--cached", type=float, default=0.0,
        help="Share of the prompt found in the prefix cache, 0 to 1. [default: 0]",
    ),
)  # fmt: skip


def catalog_of(folders: tuple[str, ...]) -> Catalog:
    """What ships, with the user's own files and those of --catalog."""
    from headrace.catalog import Catalog
    from headrace.catalog.user_folder import folders as user_folders

    return Catalog.load(user_folders(os.environ, folders))


def hardware_named(known: Catalog, name: str, count: int | None) -> str:
    """The row that --hardware asks for, or "this" for the CPU; says on stderr what it found.

    count: as of `named_hardware`. Raises ConfigError where there are not so many cards.
    """
    from headrace.plan.machine.hardware_memory import THIS
    from headrace.plan.machine.this_hardware import named_hardware
    from headrace.telemetry.nvidia_cards import nvidia_cards

    cards = nvidia_cards(os.environ) if name == THIS else ()
    found = named_hardware(known, name, count, cards)
    if found.note:
        click.echo(found.note, err=True)
    return found.name


def storage_of(
    known: Catalog, shape: ModelShape, quantization: str | None, kv_type: str, block_size: int
) -> Storage:
    """What the options of storage name; raises CatalogError or ConfigError."""
    from headrace.plan.memory.kv_cache import kv_kind
    from headrace.plan.memory.memory import Storage
    from headrace.plan.memory.weights_memory import default_kind

    if quantization is None and shape.weight_bytes is None:
        quantization = default_kind(shape)
    weights = None if quantization is None else known.quantizations[quantization]
    keys, _, values = kv_type.partition(",")
    key_kind = kv_kind(keys.strip(), known)
    value_kind = kv_kind(values.strip(), known) if values else key_kind
    return Storage(weights, key_kind, value_kind, block_size)


def replica_named(known: Catalog, shape: ModelShape, options: dict[str, Any]) -> Replica:
    """The replica that options of place, storage and parallelism describe."""
    from headrace.plan.calibration.stored import stored_calibration
    from headrace.plan.machine.hardware_memory import THIS
    from headrace.plan.speed.replica import ReplicaChoice, replica_of
    from headrace.telemetry.machine import stored_machine

    storage = storage_of(
        known, shape, options["quantization"], options["kv_type"], options["block_size"]
    )
    choice = ReplicaChoice(
        hardware=hardware_named(known, options["hardware"], options["count"]),
        count=options["count"],
        tensor=options["tensor_parallel"],
        pipeline=options["pipeline_parallel"],
        expert=options["expert_parallel"],
        compute_type=options["compute_type"],
        step_tokens=options["step_tokens"],
    )
    machine, found = stored_machine(os.environ), None
    if options["calibration"]:
        cards = () if machine is None or choice.hardware == THIS else machine.devices
        row = known.hardware.find(choice.hardware)
        card = next((name for name in cards if known.hardware.find(name) is row), "")
        found = stored_calibration(os.environ, datetime.now(UTC), card)
    return replica_of(known, shape, storage, choice, machine, found)
