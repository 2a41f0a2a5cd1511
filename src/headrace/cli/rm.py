"""`headrace rm`."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.argument("model")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes.")
def rm(model: str, yes: bool, as_json: bool) -> None:
    """Remove MODEL, a name that `headrace list` shows, from Hugging Face's cache.

    org/name removes a whole repository, org/name@revision one revision, org/name:Q4_K_M or
    org/name/file.gguf one GGUF model. Other tools that use the cache lose it too. Models of Ollama
    and files outside the cache are not touched.

    \b
    headrace rm Qwen/Qwen3-0.6B
    headrace rm Qwen/Qwen3-0.6B-GGUF:Q8_0 --yes
    """
    if not yes and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("there is no terminal to confirm in; add --yes")
    from headrace.cli.fetch_bar import size_text
    from headrace.weights.store.removal import plan_removal

    removal = plan_removal(model, os.environ)
    freed = size_text(removal.freed_bytes)
    if not yes:
        click.confirm(f"Remove {removal.what} and free {freed}?", abort=True)
    removal.execute()
    if as_json:
        import msgspec

        fields = {"model": removal.name, "freed_bytes": removal.freed_bytes}
        click.echo(msgspec.json.encode(fields))
    else:
        click.echo(f"removed {removal.what}; {freed} freed")
