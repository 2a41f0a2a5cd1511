"""What `headrace plan calibrate` prints: rates, errors, latency models, tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.plan.calibration.errors import CheckedRow, Spread
    from headrace.plan.calibration.stored import Calibration

_WORST = 5


def print_calibration(found: Calibration, *, every_row: bool) -> None:
    """The answer for people; --json has all of it."""
    from rich.markup import escape

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    console.print(
        f"{escape(visible(found.runtime))} {escape(visible(found.version))} on "
        f"{escape(visible(found.machine.cpu))}, {found.machine.cpus} CPUs: {found.cpu_level}, "
        f"{found.threads} threads, keys and values {found.kv_type}, measured {found.day}",
        highlight=False,
    )
    _rates(console, found)
    _latency(console, found)
    _served(console, found)
    _drafts(console, found)
    console.print(_said("fitted to the tests below", found.error), highlight=False)
    if found.left_out is not None:
        console.print(
            _said("each test, predicted by a fit without it", found.left_out), highlight=False
        )
    if found.other_model is not None:
        console.print(
            _said("each model, predicted by a fit without it", found.other_model), highlight=False
        )
    if found.is_poor:
        console.print(
            "rates do not explain these tests: something else was running, or the models are "
            "so small that overhead dominates; measure again on an idle machine (--measure: "
            "with --fresh)",
            style="yellow",
        )
    rows = list(found.rows)
    if not every_row:
        rows = sorted(rows, key=lambda row: -abs(row.error))[:_WORST]
    _tests(console, rows, "every test" if every_row else f"the {len(rows)} worst; --rows has all")


def print_checked(rows: Sequence[CheckedRow]) -> None:
    """Predicted beside measured of results that were not fitted to."""
    from headrace.cli.bench.console import wide_console
    from headrace.plan.calibration.errors import spread

    console = wide_console()
    _tests(console, rows, "predicted, not fitted to")
    whole = spread(row.error for row in rows)
    if whole is not None:
        console.print(_said("checked", whole), highlight=False)


def _said(what: str, error: Spread) -> str:
    return (
        f"{what}: off by {error.mean:.1%} on average, nine of ten within {error.tail:.1%}, at "
        f"worst {error.worst:.1%} ({error.rows} tests)"
    )


def _rates(console: Console, found: Calibration) -> None:
    from rich.table import Table

    table = Table("weights", title="rates that this machine reaches")
    for heading in ("read, GB/s", "products, GOPS", "overlap", "KV, GB/s", "attention, GOPS",
                    "a layer, us", "a step, us"):  # fmt: skip
        table.add_column(heading, justify="right")
    for kind, one in found.rates.items():
        table.add_row(
            visible(kind), f"{one.bandwidth_bytes_per_s / 1e9:,.1f}",
            f"{one.operations_per_s / 1e9:,.0f}", f"{one.overlap:.1f}",
            f"{one.kv_bytes_per_s / 1e9:,.1f}", f"{one.attention_operations_per_s / 1e9:,.0f}",
            f"{one.layer_s * 1e6:,.1f}", f"{one.step_s * 1e6:,.0f}",
        )  # fmt: skip
    console.print(table)


def _latency(console: Console, found: Calibration) -> None:
    from rich.table import Table

    table = Table("model", "weights", title="each model as a line: step + tokens + requests")
    for heading in ("step, ms", "prompt token, us", "pair, ns", "request, us", "context, ns",
                    "error"):  # fmt: skip
        table.add_column(heading, justify="right")
    for one in found.models:
        line = one.latency
        if line is None or one.errors is None:
            table.add_row(visible(one.model), visible(one.kind), *["-"] * 5, "too few tests")
            continue
        table.add_row(
            visible(one.model), visible(one.kind), f"{line.step_s * 1e3:,.2f}",
            f"{line.prefill_token_s * 1e6:,.1f}", f"{line.prefill_pair_s * 1e9:,.2f}",
            f"{line.decode_request_s * 1e6:,.1f}", f"{line.decode_context_token_s * 1e9:,.1f}",
            f"{one.errors.mean:.1%}",
        )  # fmt: skip
    console.print(table)


def _served(console: Console, found: Calibration) -> None:
    """Models of which results of `bench load` were named."""
    from rich.markup import escape
    from rich.table import Table

    served = [(one, one.served) for one in found.models if one.served is not None]
    if not served:
        return
    table = Table("model", title="as served: used in simulations of this machine")
    for heading in ("outside, ms", "step, ms", "prompt token, us", "pair, ns", "request, us",
                    "context, ns", "error", "engine's line"):  # fmt: skip
        table.add_column(heading, justify="right")
    for one, fit in served:
        line = fit.latency
        table.add_row(
            visible(one.model), f"{line.request_s * 1e3:,.2f}", f"{line.step_s * 1e3:,.2f}",
            f"{line.prefill_token_s * 1e6:,.1f}", f"{line.prefill_pair_s * 1e9:,.2f}",
            f"{line.decode_request_s * 1e6:,.1f}", f"{line.decode_context_token_s * 1e9:,.1f}",
            "-" if fit.errors is None else f"{fit.errors.mean:.1%}",
            "-" if fit.engine_errors is None else f"{fit.engine_errors.mean:.1%}",
        )  # fmt: skip
    console.print(table)
    for one, fit in served:
        steps = "steps of the streams" if fit.fitted else "steps of the engine's tests"
        console.print(
            f"{escape(visible(one.model))}: {fit.requests:,} requests in {fit.runs} runs, "
            f"time outside of steps from {fit.alone} that ran alone, {steps}",
            highlight=False,
        )
        if fit.server is not None:
            told = fit.server
            console.print(
                f"  the server's own figures: {told.steps:,} steps took {told.step_s:,.1f} s, the "
                f"engine's line says {told.line_s:,.1f} ({told.error:+.1%}); a request waited "
                f"{told.queue_s * 1e3:,.1f} ms and read its prompt in {told.prefill_s * 1e3:,.1f}",
                highlight=False,
            )


def _drafts(console: Console, found: Calibration) -> None:
    """Of models whose steps with drafts were measured."""
    from rich.table import Table

    for model in found.models:
        steps = model.draft_steps
        if steps is None:
            continue
        table = Table(
            "requests",
            title=f"{visible(model.model)} {visible(model.kind)}: a step with so many drafts of "
            "each over one without",
            caption=f"context {steps.context_tokens:,}, measured {steps.day}",
            caption_justify="left",
        )
        table.add_column("without, ms", justify="right")
        counts = (1, 2, 4, 8)
        for count in counts:
            table.add_column(str(count), justify="right")
        for draft in steps.drafts:
            table.add_column(f"pass of {visible(draft.draft)}", justify="right")
        for batch in steps.batches:
            ratios = [
                f"{steps.step_ratio(batch, batch * (1 + count)):.2f}"
                if steps.knows(batch, batch * (1 + count))
                else "-"
                for count in counts
            ]
            passes = [steps.pass_ratio(draft.draft, batch) for draft in steps.drafts]
            table.add_row(
                str(batch), f"{steps.seconds(batch, batch) * 1e3:,.2f}", *ratios,
                *("-" if each is None else f"{each:.3f}" for each in passes),
            )  # fmt: skip
        console.print(table)


def _tests(console: Console, rows: Iterable[CheckedRow], title: str) -> None:
    from rich.table import Table

    table = Table("model", "weights", "test", title=title)
    for heading in ("measured, tokens/s", "predicted", "error", "left out", "without its model"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            visible(row.model), visible(row.kind), row.test,
            f"{row.measured_tokens_per_s:,.1f}", f"{row.predicted_tokens_per_s:,.1f}",
            f"{row.error:+.1%}", _share(row.left_out_error), _share(row.other_model_error),
        )  # fmt: skip
    console.print(table)


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"
