"""What the commands of `headrace eval` share: options, models loaded, JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from headrace.cli.device_options import device_options

if TYPE_CHECKING:
    from headrace.config import EngineConfig
    from headrace.models import Model
    from headrace.ops.interface import Ops
    from headrace.weights.checkpoint import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])

KV_CODECS = ("f32", "bf16", "fp8", "int8", "q8_0", "q4_0")
"""Those of headrace.ops.kv, written out so that --help imports no NumPy."""


_OF_ENGINE = (
    "backend", "device", "gpu_memory_utilization", "cpu_level", "threads", "kv_cache_dtype",
    "kv_cache_dtype_v", "kv_cache_dtype_sliding", "kv_cache_dtype_sliding_v", "kv_cache_near",
)  # fmt: skip


def text_options(command: F) -> F:
    """Options of all commands that read a text; those of the engine are one argument `settings`."""

    @wraps(command)
    def with_settings(**given: Any) -> Any:
        from headrace.config import EngineConfig

        of_engine = {name: given.pop(name) for name in _OF_ENGINE}
        return command(settings=EngineConfig(**of_engine), **given)

    codecs = click.Choice(("auto", *KV_CODECS))
    options = [
        click.option(
            "--text",
            required=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="UTF-8 file to predict.",
        ),
        click.option(
            "--context",
            type=click.IntRange(min=4),
            default=512,
            show_default=True,
            help="Tokens in a window; its second half is scored.",
        ),
        click.option(
            "--windows",
            "limit",
            type=click.IntRange(min=1),
            help="Number of windows to score. [default: the whole text]",
        ),
        click.option(
            "--kv-cache-dtype",
            type=codecs,
            default="auto",
            help="Type that K and V are stored in. [default: f32 for F32 weights, else bf16]",
        ),
        click.option(
            "--kv-cache-dtype-v",
            type=codecs,
            default="auto",
            help="Type that V is stored in. [default: that of K]",
        ),
        click.option(
            "--kv-cache-dtype-sliding",
            type=codecs,
            default="auto",
            help="Type of K and V in layers with a window. [default: as in other layers]",
        ),
        click.option(
            "--kv-cache-dtype-sliding-v",
            type=codecs,
            default="auto",
            help="Type of V in layers with a window. [default: as of `serve`]",
        ),
        click.option(
            "--kv-cache-near",
            type=click.Choice(("auto", "bf16", "none")),
            default="auto",
            help="Whether what is near is kept in bf16 too. [default: as of `serve`]",
        ),
        click.option(
            "--tokenizer-pre",
            help="Rule by which text is split, as in `serve`, in place of a wrong one in a GGUF "
            "file.",
        ),
        device_options,
        click.option("--cpu-level", default="auto", help="Dispatch level. [default: the best]"),
        click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]
    made: Any = with_settings
    for option in reversed(options):
        made = option(made)
    return cast(F, made)


def load_named(
    models: Sequence[str], settings: EngineConfig, context: int
) -> tuple[list[Checkpoint], Ops, tuple[Model, ...]]:
    """The checkpoints that MODELs name, fetched where they are not on this disk, and their models
    on one backend.
    """
    import msgspec

    from headrace.cli.obtain import obtain
    from headrace.eval.load import load_models
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    checkpoints = []
    for model in models:
        config, _ = obtain(msgspec.structs.replace(settings, model=model))
        checkpoints.append(open_checkpoint(resolve_model(config.model)))
    return checkpoints, *load_models(checkpoints, settings, context)


def located(model: str) -> Path:
    """The file or folder that MODEL names, fetched where it is not on this disk."""
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=model))
    return Path(resolve_model(config.model))
