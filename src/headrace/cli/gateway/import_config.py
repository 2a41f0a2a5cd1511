"""`headrace gateway import`: another gateway's file as ours."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("import", short_help="Convert a config of LiteLLM's proxy to a gateway.yaml.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_file(file: Path, as_json: bool) -> None:
    """Write LiteLLM's proxy config FILE as a gateway.yaml, to standard output.

    Settings without a counterpart are listed in comments at the top. Secrets stay where they are
    (os.environ/NAME).

    \b
    headrace gateway import litellm.yaml > gateway.yaml
    headrace gateway check
    """
    import yaml

    from headrace.config.text_file import read_text_file
    from headrace.config.yaml_file import read_yaml
    from headrace.gateway.importing.litellm import import_litellm
    from headrace.gateway.settings.read import MAX_FILE_BYTES

    documents = read_yaml(read_text_file(file, "FILE", MAX_FILE_BYTES), str(file))
    found = import_litellm(documents[0].loaded if documents else None)
    if as_json:
        click.echo(json.dumps({"settings": found.settings, "notes": list(found.notes)}))
        return
    for note in found.notes:
        click.echo(f"# differs: {note}")
    click.echo(yaml.safe_dump(found.settings, sort_keys=False, allow_unicode=True), nl=False)
