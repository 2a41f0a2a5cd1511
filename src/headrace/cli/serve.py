"""`headrace serve`."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.options import CONFIGS, collect, settings
from headrace.cli.sections import SectionedCommand
from headrace.config import EngineConfig, ServerConfig
from headrace.engine.process.spawn import EngineProcess


@click.command(cls=SectionedCommand)
@click.argument("model", required=False)
@settings(EngineConfig, ServerConfig, skip=frozenset({"model"}))
@click.option(
    "--json", "as_json", is_flag=True, help="Print the server's address and model as one JSON line."
)
@click.pass_context
def serve(ctx: click.Context, /, model: str | None, as_json: bool, **_settings: object) -> None:
    """Serve MODEL over the APIs of OpenAI, Anthropic and Ollama.

    Of llama-server's own endpoints there are /completion and /infill.

    MODEL is a GGUF file, a Hugging Face folder, or a name. Names are org/name and
    org/name:Q4_K_M of the hub, which are fetched if they are not on this disk (see
    `headrace pull`), and name:tag of Ollama's store.

    Without MODEL, the small model that ships in the package is served.

    \b
    headrace serve ./Qwen3-0.6B-Q8_0.gguf
    headrace serve Qwen/Qwen3-0.6B --port 8080 --max-model-len 8k
    headrace serve qwen3:0.6b --threads 4 --max-num-seqs 16
    """
    engine = collect(ctx, EngineConfig, among=CONFIGS, overrides={"model": model})
    server = collect(ctx, ServerConfig, among=CONFIGS)
    from headrace.cli.obtain import obtain

    engine, name = obtain(engine)
    if name is not None and not server.served_model_name:
        server = msgspec.structs.replace(server, served_model_name=(name,))
    process = ctx.find_object(EngineProcess)
    if process is not None:
        # Before the server's own imports: from here on both processes work.
        process.configure(engine, server.log_format)
    from headrace.server.run import serve as run_server

    ctx.exit(run_server(engine, server, as_json=as_json, process=process))
