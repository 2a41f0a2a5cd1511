"""`headrace serve`."""

from __future__ import annotations

import click

from headrace.cli.options import CONFIGS, collect, settings
from headrace.config import EngineConfig, ServerConfig


@click.command()
@click.argument("model", required=False)
@settings(EngineConfig, ServerConfig, skip=frozenset({"model"}))
@click.option("--json", "as_json", is_flag=True, help="Print what the server is as one JSON line.")
@click.pass_context
def serve(ctx: click.Context, /, model: str | None, as_json: bool, **_settings: object) -> None:
    """Serve MODEL (a GGUF file or Hugging Face folder) over the OpenAI API.

    Without MODEL, the small model that ships in the package is served.
    """
    engine = collect(ctx, EngineConfig, among=CONFIGS, overrides={"model": model})
    server = collect(ctx, ServerConfig, among=CONFIGS)
    from headrace.server.run import serve as run_server

    ctx.exit(run_server(engine, server, as_json=as_json))
