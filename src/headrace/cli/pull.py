"""`headrace pull`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.weights.store.fetch import FetchProgress


@click.command()
@click.argument("model")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each file and one at the end, in place of a progress bar.",
)
def pull(model: str, as_json: bool) -> None:
    """Fetch MODEL from the hub, or update the copy on this disk.

    MODEL is org/name (safetensors), org/name:Q4_K_M or org/name/file.gguf (GGUF; all pieces of a
    split file), each with @revision if it is not main; hf:// or the hub's address may precede it.

    Files go to Hugging Face's cache (HF_HOME, HF_HUB_CACHE), where other tools find them. Files
    that are already there are not fetched again, and the download of a large file that was
    interrupted continues where it stopped. HF_TOKEN is for gated and private repositories,
    HF_ENDPOINT for a mirror.

    \b
    headrace pull Qwen/Qwen3-0.6B
    headrace pull Qwen/Qwen3-0.6B-GGUF:Q8_0
    headrace pull Qwen/Qwen3-0.6B@main --json
    """
    from headrace.cli.fetch_bar import fetch_bar, size_text
    from headrace.errors import ConfigError
    from headrace.weights.store.hub_cache import offline_variable
    from headrace.weights.store.model_name import hub_model
    from headrace.weights.store.resolve import fetch

    named = None if model.startswith("ollama://") else hub_model(model)
    if named is None:
        raise ConfigError(
            f"{model} is not a model of the hub; write org/name, org/name:Q4_K_M or "
            "org/name/file.gguf"
        )
    if (variable := offline_variable(os.environ)) is not None:
        raise ConfigError(f"{variable} is set, and pull needs the network: unset it")
    start_s = time.perf_counter()
    if as_json:
        fetched = fetch(named, os.environ, _print_event)
    else:
        with fetch_bar() as show:
            fetched = fetch(named, os.environ, show)
    seconds = time.perf_counter() - start_s
    if as_json:
        fields = {
            "event": "done", "model": str(named), "path": str(fetched.path),
            "commit": fetched.commit, "files": fetched.num_files,
            "total_bytes": fetched.total_bytes, "fetched_bytes": fetched.fetched_bytes,
            "wall_s": round(seconds, 3),
        }  # fmt: skip
        print_json(fields)
        return
    files = "1 file" if fetched.num_files == 1 else f"{fetched.num_files} files"
    of_all = f"{files}, {size_text(fetched.total_bytes)}"
    if fetched.fetched_bytes:
        come = f"{size_text(fetched.fetched_bytes)} fetched in {seconds:.1f} s"
        click.echo(f"{named}: {of_all}; {come}")
    else:
        click.echo(f"{named}: {of_all}; nothing had to be fetched")
    click.echo(str(fetched.path))


def _print_event(at: FetchProgress) -> None:
    if at.state == "coming":
        return
    fields = {
        "event": "file", "state": at.state, "file": at.file, "number": at.number,
        "files": at.num_files, "size_bytes": at.size_bytes, "done_bytes": at.done_bytes,
        "total_bytes": at.total_bytes,
    }  # fmt: skip
    print_json(fields)
