"""Write the model card from what a checkpoint says of its own run: no figure is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .config import ModelConfig

CARD = """\
# {name}

A small model that completes Python code, embedded in headrace so that `headrace serve` has
something to serve without a download. The project trained it from scratch with the script in
`tools/train/`. It exists to try and to test the engine; it is not a coding assistant.

## Data

{n_files} files ({n_bytes} bytes) of Python source, and nothing else:
{origin}, without tests, third-party packages and data tables.
The text is copyright of the Python Software Foundation and contributors and is licensed under
{licence}; the weights are distributed under the same licence. {n_heldout} files, chosen by a hash
of their path, were held out of training and of the tokenizer. `tools.train.corpus` writes the list
of files with their SHA-256 as `provenance.json`; the SHA-256 of that list was
`{provenance_sha256}`.

## Shape

| | |
| --- | --- |
| architecture | Llama (pre-norm, RoPE, grouped-query attention, SwiGLU, tied embedding) |
| parameters | {n_parameters:,} |
| hidden, layers, feed-forward | {hidden_size}, {num_hidden_layers}, {intermediate_size} |
| query heads, KV heads, head width | {num_attention_heads}, {num_key_value_heads}, {head_dim} |
| vocabulary | {vocab_size} entries, byte-level BPE, GPT-2's pre-tokenizer |
| context | {max_position_embeddings} tokens |
| storage | {storage} |

## Training

| | |
| --- | --- |
| tokens seen | {tokens:,} ({epochs:.1f} passes over {train_tokens:,}) |
| steps | {step:,} of {step_tokens:,} tokens |
| sequence length | {length}, and {long_length} in the last {long_share:.0%} of the run |
| optimizer | AdamW, cosine decay from {learning_rate}, weight decay {weight_decay} |
| time in steps | {counted_minutes:.0f} minutes, at low priority beside other work |
| machine | {machine} |
| held-out loss | {heldout_loss:.4f} nats per token |
| held-out bits per byte | {heldout_bits_per_byte:.4f} |

The figures are of the float32 weights, before they were stored as Q8_0.

## Use

It continues text. It follows no instructions and has no turns: its chat template passes the last
user message on, verbatim and alone. Prompts that look like the beginning of a Python file or
definition give the most sensible continuations.

## What it is not good for

Anything whose result matters. It writes plausible Python that often does not run, invents names,
knows almost no English beyond docstrings and comments, and no other language; it can repeat
passages of its training data, which are under {licence}. It sees at most
{max_position_embeddings} tokens. It was not trained to be safe, truthful or helpful.

## Rebuilding it

{rebuild}
"""

REBUILD = """\
With PyTorch installed, from the root of the repository:

```sh
python -m tools.train.corpus --out build/train/corpus
python -m tools.train.tokenizer --corpus build/train/corpus --out build/train/tokenizer
python -m tools.train.train --corpus build/train/corpus --tokenizer build/train/tokenizer \\
    --out build/train/run {budget} --sequences {sequences} --learning-rate {learning_rate} \\
    --seed {seed} --workers 2 {flags}
python -m tools.train.export --run build/train/run --corpus build/train/corpus \\
    --tokenizer build/train/tokenizer --hugging-face build/train/hf \\
    --gguf src/headrace/embedded/{file_name} --card src/headrace/embedded/CARD.md \\
    --machine "{machine}"
```

The corpus follows the Python that runs the script, and a budget in minutes follows the machine's
speed: another Python or machine gives a slightly different model."""


def render_card(
    *,
    name: str,
    file_name: str,
    machine: str,
    storage: str,
    n_parameters: int,
    train_tokens: int,
    note: Mapping[str, Mapping[str, Any]],
    provenance: Mapping[str, Any],
    provenance_sha256: str,
) -> str:
    """The card's text.

    `note` is a checkpoint's note (`config.read_note`), `provenance` the corpus's provenance.json,
    `train_tokens` the length of one pass over the training split.
    """
    progress, settings = note["progress"], note["settings"]
    files = provenance["files"]
    if settings["minutes"] is not None:
        budget = f"--minutes {settings['minutes']:g}"
    else:
        budget = f"--tokens {settings['tokens']}"
    flags = [f"--{'' if settings[flag] else 'no-'}{flag}" for flag in ("bfloat16", "compile")]
    rebuild = REBUILD.format(
        budget=budget,
        sequences=settings["sequences"],
        learning_rate=settings["learning_rate"],
        seed=settings["seed"],
        flags=" ".join(flags),
        file_name=file_name,
        machine=machine,
    )
    return CARD.format(
        name=name,
        n_files=len(files),
        n_bytes=f"{sum(file['n_bytes'] for file in files):,}",
        n_heldout=sum(file["split"] == "heldout" for file in files),
        origin=provenance["origin"],
        licence=provenance["licence"],
        provenance_sha256=provenance_sha256,
        n_parameters=n_parameters,
        storage=storage,
        machine=machine,
        tokens=progress["tokens"],
        epochs=progress["tokens"] / train_tokens,
        train_tokens=train_tokens,
        step=progress["step"],
        step_tokens=settings["sequences"] * settings["length"],
        long_share=1.0 - settings["long_from"],
        length=settings["length"],
        long_length=settings["long_length"],
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
        counted_minutes=progress["counted_s"] / 60.0,
        heldout_loss=progress["heldout_loss"],
        heldout_bits_per_byte=progress["heldout_bits_per_byte"],
        rebuild=rebuild,
        **{key: getattr(ModelConfig(**note["model"]), key) for key in note["model"]},
    )
