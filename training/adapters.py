"""Train a style's adapter on headrace-base, fold it into its base, and measure what it changes.

    python -m training.adapters typed --base build/train/base --out build/train/typed
    python -m training.adapters merge --base build/train/base \\
        --adapter build/train/typed/adapter --out build/train/typed/merged
    python -m training.adapters measure --base build/train/base \\
        --adapter typed=build/train/typed/adapter --out build/train/typed/measures.json

A run's folder gets its documents, its checkpoint and, at the end, the adapter in PEFT's layout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import torch
from tokenizers import Tokenizer

from training.data.answers_only import answers_only
from training.data.corpus import Split, read_documents
from training.data.cut_words import cut_words
from training.data.packing import Sampler, pack
from training.export import write_hugging_face
from training.loop.checkpoint import load_weights
from training.loop.launch import HeldOut, arguments_of, launch
from training.loop.parallel import Workers
from training.loop.trainer import Settings, Trainer
from training.models.config import CHECKPOINT_NAME, ModelConfig, read_note
from training.models.lora import LoraConfig, add_lora, lora_tensors, merge, save_adapter
from training.models.model import LanguageModel
from training.styles.documents import STYLES, Style, style_documents, suits
from training.styles.report import held_out_windows, report
from training.turns.conversations import read_conversations

BASE_NAME = "headrace-base"
TOKENS = 1_000_000
# More than the corpus has for a token, so that a run sees few documents twice.
BYTES_PER_TOKEN = 4
LORA = LoraConfig()
# Conversations among the documents, where there are any: an adapter is there for a style of code
# and should not unlearn to answer.
TURNS_SHARE = 0.1
HELD_OUT_WINDOWS = 32
SPLITS: tuple[Split, ...] = get_args(Split)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """What an adapter's run has that a model's has not.

    Short windows all the way, as nearly every document fits one; and AdamW with a rate that is
    high for weights, but not for factors that start at zero.
    """
    has_turns = (arguments.data / "turns" / "train.jsonl").exists()
    return Settings(
        tokens=arguments.tokens or TOKENS,
        step_tokens=8192,
        long_length=512,
        turns_from=0.0,
        turns_share=TURNS_SHARE if has_turns else 0.0,
        adamw_learning_rate=arguments.learning_rate,
        warm_up=0.05,
        bfloat16=arguments.bfloat16,
        compile=arguments.compile,
        device=arguments.device,
    )


def write_texts(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def read_texts(path: Path) -> list[str]:
    with path.open() as lines:
        return [str(json.loads(line)["text"]) for line in lines]


def write_documents(data: Path, style: Style, settings: Settings, out: Path) -> None:
    """Write what a run reads, so that all its workers read the same.

    train.jsonl and heldout.jsonl are the style's; turns.jsonl is the conversations that suit it.
    """
    out.mkdir(parents=True, exist_ok=True)
    n_bytes = settings.tokens * BYTES_PER_TOKEN
    for split in SPLITS:
        texts = read_documents(data / "corpus", split)
        documents = style_documents(texts, style, settings.seed, n_bytes)
        write_texts(out / f"{split}.jsonl", documents)
    if settings.turns_share:
        wanted = round(n_bytes * settings.turns_share)
        write_texts(out / "turns.jsonl", suited_conversations(data / "turns", style, wanted))


def suited_conversations(turns: Path, style: Style, wanted_bytes: int) -> Iterator[str]:
    """Conversations without code of another style, of at least `wanted_bytes` if there are."""
    n_bytes = 0
    for text in read_conversations(turns, "train"):
        if n_bytes >= wanted_bytes:
            return
        if suits(text, style):
            n_bytes += len(text.encode())
            yield text


def build(arguments: argparse.Namespace, workers: Workers) -> tuple[Trainer, HeldOut]:
    settings = settings_of(arguments)
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer" / "tokenizer.json"))
    documents = arguments.out / "documents"
    code = pack(tokenizer, read_texts(documents / "train.jsonl"), settings.seed, settings.fim_share)
    code = cut_words(code, tokenizer, settings.cut_share, settings.seed)
    sources = {"code": Sampler(code, settings.seed)}
    if settings.turns_share:
        turns = pack(tokenizer, read_texts(documents / "turns.jsonl"), settings.seed)
        turns = answers_only(turns, tokenizer)
        sources["turns"] = Sampler(turns, settings.seed)
    held_out = held_out_windows(
        tokenizer,
        read_texts(documents / "heldout.jsonl"),
        settings.seed,
        HELD_OUT_WINDOWS,
        settings.length,
    )
    torch.manual_seed(settings.seed)
    base = arguments.base / CHECKPOINT_NAME
    config = ModelConfig(**read_note(base)["model"])
    model = LanguageModel(config)
    load_weights(base, model)
    add_lora(model, LORA)
    # A run that goes on has to have begun from the same base.
    shape = {
        "base": asdict(config),
        "base_sha256": weights_digest(model),
        "lora": {**asdict(LORA), "targets": list(LORA.targets)},
    }
    return Trainer(model, model.loss, settings, sources, shape, workers), held_out


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 of the frozen weights."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            digest.update(name.encode())
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def export_adapter(run: Path, adapter: Path) -> int:
    """Write the adapter of a run's checkpoint as a PEFT folder; return the bytes of its weights."""
    checkpoint = run / CHECKPOINT_NAME
    shape = read_note(checkpoint)["model"]
    config = LoraConfig(**{**shape["lora"], "targets": tuple(shape["lora"]["targets"])})
    model = LanguageModel(ModelConfig(**shape["base"]))
    add_lora(model, config)
    load_weights(checkpoint, model)
    return save_adapter(adapter, lora_tensors(model), config, BASE_NAME)


def train(arguments: argparse.Namespace) -> None:
    documents = arguments.out / "documents"
    write_documents(arguments.data, arguments.command, settings_of(arguments), documents)
    launch(build, arguments)
    adapter = arguments.adapter or arguments.out / "adapter"
    print(f"{adapter}: {export_adapter(arguments.out, adapter):,} bytes")


def merge_command(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_hugging_face(arguments.base / CHECKPOINT_NAME, arguments.data / "tokenizer", base)
        merge(arguments.adapter, base, arguments.out)


def measure(arguments: argparse.Namespace) -> None:
    adapters = dict(part.split("=", 1) for part in arguments.adapter)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        write_hugging_face(arguments.base / CHECKPOINT_NAME, arguments.data / "tokenizer", base)
        members = {"base": base}
        for name, adapter in adapters.items():
            members[name] = Path(folder) / name
            merge(Path(adapter), base, members[name])
        result = report(
            members,
            arguments.data,
            n_heads=arguments.heads,
            n_windows=arguments.windows,
            max_tokens=arguments.max_tokens,
            temperature=arguments.temperature,
            seed=arguments.seed,
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: of["shares"] for name, of in result["members"].items()}, indent=1))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description="Adapters of headrace-base for a style of code.")
    commands = result.add_subparsers(dest="command", required=True)
    for style in STYLES:
        what = f"train headrace-{style}"
        command = commands.add_parser(
            style, help=what, parents=[arguments_of(what)], conflict_handler="resolve"
        )
        command.add_argument("--base", type=Path, required=True, help="folder of the base's run")
        command.add_argument("--adapter", type=Path, help="folder to write, default OUT/adapter")
        command.add_argument("--learning-rate", type=float, default=Settings.adamw_learning_rate)
        command.set_defaults(call=train)
    merging = commands.add_parser("merge", help="write base and adapter as one model")
    merging.add_argument("--adapter", type=Path, required=True)
    merging.add_argument("--out", type=Path, required=True, help="Hugging Face folder to write")
    merging.set_defaults(call=merge_command)
    measuring = commands.add_parser("measure", help="what adapters change, as JSON")
    measuring.add_argument("--adapter", action="append", default=[], metavar="NAME=FOLDER")
    measuring.add_argument("--out", type=Path, required=True, help="JSON file to write")
    measuring.add_argument("--heads", type=int, default=60)
    measuring.add_argument(
        "--windows", type=int, default=32, help="of 1,024 tokens, per kind of text"
    )
    measuring.add_argument("--max-tokens", type=int, default=160)
    measuring.add_argument("--temperature", type=float, default=0.6)
    measuring.add_argument("--seed", type=int, default=20261121)
    measuring.set_defaults(call=measure)
    for command in (merging, measuring):
        command.add_argument("--base", type=Path, required=True, help="folder of the base's run")
        command.add_argument("--data", type=Path, default=Path("build/train"))
    return result


def main() -> None:
    arguments = parser().parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
