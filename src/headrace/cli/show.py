"""`headrace show`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.weights.checkpoint import Checkpoint


@click.command()
@click.argument("model", required=False, default="")
@click.option("--tensors", "with_tensors", is_flag=True, help="Also list every tensor.")
@click.option("--template", "with_template", is_flag=True, help="Also print the chat templates.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(model: str, with_tensors: bool, with_template: bool, as_json: bool) -> None:
    """Show what MODEL (a path, or a name as for `serve`) holds; weights are not read.

    A model of the hub has to be on this disk already. Also shown: the KV cache bytes per token, and
    how long a request would fit on this machine.

    Without MODEL, the small model that ships in the package is used.

    \b
    headrace show ./Qwen3-0.6B-Q8_0.gguf
    headrace show Qwen/Qwen3-0.6B --template
    headrace show ./model.gguf --tensors --json
    """
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    checkpoint = open_checkpoint(resolve_model(model))
    facts = describe(checkpoint)
    facts["memory"] = _memory(checkpoint)
    if with_tensors:
        facts["tensors"] = [
            {"name": name, "shape": list(tensor.shape), "codec": tensor.codec.name}
            for name, tensor in checkpoint.tensors.items()
        ]
    if with_template:
        facts["chat_templates"] = dict(checkpoint.chat_templates)
    if as_json:
        click.echo(msgspec.json.encode(facts, enc_hook=_plain))
    else:
        _print(facts)


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """What is worth knowing of a checkpoint, ready for JSON; sizes in bytes."""
    from headrace.engine.sampling.defaults import model_defaults
    from headrace.weights.tokenizer.pretokenizers import splitting_of

    bytes_by_codec: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        bytes_by_codec[tensor.codec.name] += tensor.nbytes
    return {
        "path": visible(str(checkpoint.path)),
        "format": checkpoint.format,
        "parameters": sum(tensor.num_values for tensor in checkpoint.tensors.values()),
        "weights_bytes": checkpoint.nbytes,
        "weights_bytes_by_codec": dict(bytes_by_codec.most_common()),
        "config": dict(checkpoint.config),
        "conventions": msgspec.to_builtins(checkpoint.conventions),
        "tokenizer": checkpoint.tokenizer.kind,
        "tokenizer_pre": splitting_of(checkpoint.tokenizer.gguf),
        "eos_token_ids": list(checkpoint.eos_token_ids),
        "chat_templates": sorted(checkpoint.chat_templates),
        "sampling_defaults": dict(model_defaults(checkpoint)),
        "left_out": dict(checkpoint.left_out),
    }


def _memory(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What would fit on this machine; None where the model or the memory is not known."""
    from headrace.engine.memory.fit import fit
    from headrace.errors import ConfigError

    try:
        found = fit(checkpoint)
    except ConfigError:
        return None
    return None if found is None else msgspec.to_builtins(found)


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays of a file's metadata as plain numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def _print(facts: dict[str, Any]) -> None:
    from headrace.engine.sampling.defaults import described
    from headrace.weights.checkpoint import left_out_words

    rows = [
        ("path", facts["path"]),
        ("format", facts["format"]),
        ("parameters", f"{facts['parameters']:,}"),
        ("weights", f"{facts['weights_bytes'] / 1e6:,.3f} MB"),
    ]
    by_codec = facts["weights_bytes_by_codec"]
    rows += [(f"  {codec}", f"{size / 1e6:,.3f} MB") for codec, size in by_codec.items()]
    if facts["left_out"]:
        rows.append(("left out", f"{left_out_words(facts['left_out'])}; text alone is read"))
    rows += [
        ("tokenizer", facts["tokenizer"]),
        *([("text split by", facts["tokenizer_pre"])] if facts["tokenizer_pre"] else []),
        ("end tokens", ", ".join(map(str, facts["eos_token_ids"])) or "none named"),
        ("chat template", ", ".join(facts["chat_templates"]) or "none"),
        ("sampling defaults", described(facts["sampling_defaults"]) or "none named"),
    ]
    rows += _memory_rows(facts["memory"])
    rows += [(key, _shown(value)) for key, value in sorted(facts["config"].items())]
    # One line each, however long: these are copied and searched.
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{click.style(visible(name).ljust(width), bold=True)}  {visible(text)}")
    if isinstance(facts["chat_templates"], dict):
        for name, source in facts["chat_templates"].items():
            click.echo(visible(f"\nchat template {name}:\n{source}"))
    if "tensors" in facts:
        from rich.console import Console
        from rich.table import Table

        listing = Table("tensor", "shape", "codec", box=None, pad_edge=False)
        for tensor in facts["tensors"]:
            shape = " x ".join(map(str, tensor["shape"]))
            listing.add_row(visible(tensor["name"]), shape, tensor["codec"])
        # Names come from the file: [brackets] in them are no markup.
        Console(soft_wrap=True, markup=False, highlight=False).print(listing)


def _memory_rows(memory: dict[str, Any] | None) -> list[tuple[str, str]]:
    if memory is None:
        return []
    rows = [("KV cache", f"{memory['token_bytes']:,} bytes a token in {memory['kv_cache_dtype']}")]
    if memory["expert_cache_bytes"] is not None:
        cached, experts = memory["expert_cache_bytes"] / 1e6, memory["expert_bytes"] / 1e6
        text = f"{cached:,.3f} MB of {experts:,.3f} MB packed at a time"
        rows.append(("experts", text))
    if memory["problem"]:
        return [*rows, ("fits here", f"no: {memory['problem']}")]
    text = f"{memory['default_tokens']:,} of {memory['max_model_len']:,} tokens of context"
    if memory["most_tokens"] > memory["default_tokens"]:
        flag = f"--kv-cache-memory-bytes {memory['kv_cache_memory_bytes']}"
        text += f"; up to {memory['most_tokens']:,} with {flag}"
    return [*rows, ("fits here", text)]


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
