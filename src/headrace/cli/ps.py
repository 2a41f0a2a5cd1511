"""`headrace ps`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.cli.server_url import API_KEY_VARIABLE, base_url, first_key
from headrace.cli.visible import visible
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    import httpx2

# Where `serve` and `gateway` listen if nothing else is said.
DEFAULT_URLS = ("http://127.0.0.1:8000", "http://127.0.0.1:4000")

# A server whose machine is busy is late; one that is not there refuses at once.
_TIMEOUT_S = 5.0
_WIDE_COLUMNS = 240


class Row(NamedTuple):
    """A server, or one of its models; None for what it does not report."""

    url: str
    status: str
    model: str | None = None
    context_tokens: int | None = None
    open_requests: int | None = None
    uptime_s: float | None = None


@click.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per model.")
def ps(urls: tuple[str, ...], as_json: bool) -> None:
    """List the models that running servers serve.

    Each URL is that of a `headrace serve`, a `headrace gateway` or another server of OpenAI's API;
    without one, the ports are tried at which serve and gateway listen by default. The status is
    that of /health; requests carry the key of HEADRACE_API_KEY. The exit code is 1 if
    a server that was named, or every one, cannot be reached.

    \b
    headrace ps
    headrace ps http://127.0.0.1:8000 https://llm.example.com
    headrace ps --json
    """
    rows = [row for url in urls or DEFAULT_URLS for row in _rows(url, os.environ)]
    absent = [row for row in rows if row.status == UNREACHABLE]
    if not urls:
        rows = [row for row in rows if row.status != UNREACHABLE]
        if not rows:
            raise HeadraceError(
                f"no server answers at {' or '.join(DEFAULT_URLS)}; start one with "
                "`headrace serve`, or give the URL of one"
            )
    if as_json:
        import msgspec

        for row in rows:
            click.echo(msgspec.json.encode(row._asdict()))
    else:
        _print(rows)
    if urls and absent:
        raise SystemExit(1)


UNREACHABLE = "unreachable"


def _rows(url: str, environ: Any) -> Iterator[Row]:
    base = base_url(url, "URL")
    import httpx2

    from headrace.cli.server_client import open_client

    with open_client(first_key(environ), _TIMEOUT_S) as client:
        try:
            yield from _rows_of(client, url, base)
        except httpx2.HTTPError:
            yield Row(url, UNREACHABLE)


def _rows_of(client: httpx2.Client, url: str, base: str) -> list[Row]:
    from headrace.cli.server_client import count, get, number, objects

    root = base.removesuffix("/v1")
    health = get(client, f"{root}/health", timeout_s=_TIMEOUT_S).object
    status = health.get("status")
    load = get(client, f"{root}/load", timeout_s=_TIMEOUT_S).object
    server = Row(
        url,
        status if isinstance(status, str) else "ok",
        open_requests=count(load.get("server_load")),
        uptime_s=number(health.get("uptime_s")),
    )
    listed = get(client, f"{base}/models", timeout_s=_TIMEOUT_S)
    if listed.status in (401, 403):
        return [server._replace(model=f"(needs a key: {API_KEY_VARIABLE})")]
    rows = [
        server._replace(
            model=str(model.get("id")), context_tokens=count(model.get("max_model_len"))
        )
        for model in objects(listed.object.get("data"))
    ]
    return rows or [server]


def _print(rows: list[Row]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("model", "URL"):
        table.add_column(title, overflow="fold")
    table.add_column("status", no_wrap=True)
    for title in ("context", "open", "up"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            visible(row.model or "-"), visible(row.url), visible(row.status),
            _number(row.context_tokens), _number(row.open_requests), _time(row.uptime_s),
        )  # fmt: skip
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE_COLUMNS
    console.print(table)


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _time(seconds: float | None) -> str:
    """As days, hours, minutes or seconds, whichever is the largest."""
    if seconds is None:
        return "-"
    for size_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size_s:
            return f"{seconds / size_s:.1f} {unit}"
    return f"{seconds:.0f} s"
