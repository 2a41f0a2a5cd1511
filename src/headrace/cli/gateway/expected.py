"""What `gateway explain` says of a model made of others: the decision, cost and time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.visible import visible
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from headrace.gateway.building.gateway import Gateway
    from headrace.gateway.serving.composed.estimator import CompositeEstimate
    from headrace.gateway.serving.composed.explanation import CompositeExplanation


def of_composed(
    built: Gateway, config: Path, said: CompositeExplanation, name: str, body: bytes
) -> tuple[CompositeExplanation, CompositeEstimate]:
    """What the composed model `name` is expected to cost and how long it takes. Reads the ledger of
    the file, if it keeps one."""
    from headrace.gateway.ledger.schema import reading
    from headrace.gateway.routing.query import query_from_body
    from headrace.gateway.serving.composed.estimator import Estimator
    from headrace.protocol.json_object import JsonObject

    ways = built.serving.ways
    assert ways is not None
    ask = query_from_body(JsonObject.read(body), name)
    asked = ask.wanted.models[0]
    model = ways.model(asked)
    assert model is not None
    settings = built.settings
    ledger = None if settings.ledger.path is None else config.parent / settings.ledger.path
    if ledger is None or not ledger.exists():
        return said, Estimator(built.router, ask, lambda targets: None, None).of(model)
    from headrace.gateway.ledger.stages import lasted_s, stages_of

    with reading(ledger) as connection:
        own = settings.aliases.get(asked, asked)
        seen = stages_of(connection, own, (), "", lambda usage: None)
        estimator = Estimator(
            built.router, ask, lambda targets: lasted_s(connection, targets), seen
        )
        return said, estimator.of(model)


def as_dict(said: CompositeExplanation, expected: CompositeEstimate) -> dict[str, Any]:
    """The expectation as JSON."""
    import msgspec

    return {
        "choice": {
            "model": said.model,
            "said": list(said.said),
            "question": [{"role": role, "content": text} for role, text in said.question],
        },
        "expected": msgspec.to_builtins(expected),
    }


def print_composed(said: CompositeExplanation, expected: CompositeEstimate) -> None:
    """Print the expectation for people."""
    from rich.console import Console
    from rich.table import Table

    for one in said.said:
        click.echo(visible(one))
    for role, text in said.question:
        click.echo(f"  {role}: {visible(text)}")
    title = f"expected for {expected.input_tokens:,} tokens in and {expected.output_tokens:,} out"
    table = Table("answered by", "asks", "share", "from", "USD", "s", title=title)
    for path in expected.paths:
        table.add_row(
            path.answered_by,
            " -> ".join(path.asks),
            f"{path.share:.0%}",
            path.share_from,
            dollars_of(path.cost_nusd),
            seconds_of(path.lasts_s),
        )
    mean = ("mean of all", "", "", "", dollars_of(expected.cost_nusd), seconds_of(expected.lasts_s))
    table.add_row(*mean, style="bold")
    baseline = dollars_of(expected.baseline_nusd)
    table.add_row(f"always {expected.baseline}", expected.baseline, "", "", baseline, "")
    Console().print(table)
    for note in expected.notes:
        click.echo(f"note: {visible(note)}")


def dollars_of(nusd: float | None) -> str:
    """Dollars with six places; `unknown` for None."""
    return "unknown" if nusd is None else f"{nusd / NUSD_PER_USD:.6f}"


def seconds_of(seconds: float | None) -> str:
    """Seconds with two places; `unknown` for None."""
    return "unknown" if seconds is None else f"{seconds:.2f}"
