"""From an EngineConfig to an engine that can serve, with the time of every phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.config.settings import EngineConfig
from headrace.embedded import resolve_model
from headrace.engine.core import EngineCore
from headrace.engine.memory import plan_kv_cache
from headrace.errors import CheckpointError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.checkpoint import Checkpoint, TokenizerData
from headrace.weights.open import open_checkpoint

GGUF_UNUSED = 5
"""Type of a token nobody may produce, in tokenizer.ggml.token_type."""

Progress = Callable[[int, int], None]


class LoadedEngine(NamedTuple):
    """An engine ready to serve and the checkpoint it is of (for the tokenizer and template)."""

    core: EngineCore
    checkpoint: Checkpoint


def load_engine(
    config: EngineConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    started_s: float | None = None,
    progress: Progress | None = None,
) -> LoadedEngine:
    """Open the checkpoint, load the weights, size the KV cache, compute one token.

    started_s: by `clock`, when the process or command began; the time since then is the phase
    "import". progress: called with bytes of weights done and in all. Raises HeadraceError (its
    kinds CheckpointError, UnsupportedModelError, ConfigError) with what is wrong and what helps.
    """
    phases = _Phases(clock)
    if started_s is not None:
        phases.seconds["import"] = clock() - started_s
    with phases("open"):
        checkpoint = open_checkpoint(resolve_model(config.model))
    with phases("backend"):
        ops = make_ops(config.backend, cpu_level=config.cpu_level, threads=config.threads)
    with phases("weights"):
        model = load_model(
            checkpoint,
            ops,
            max_positions=config.max_model_len,
            ignore_config_keys=config.ignore_config_keys,
            progress=progress,
        )
    with phases("kv_cache"):
        core = EngineCore(
            model,
            ops,
            config,
            num_tokens=count_tokens(checkpoint.tokenizer, model.vocab_size),
            eos_token_ids=checkpoint.eos_token_ids,
            clock=clock,
            plan=plan_kv_cache(model, config),
        )
    with phases("warm_up"):
        core.warm_up()
    core.phases_s = phases.seconds
    return LoadedEngine(core, checkpoint)


def count_tokens(tokenizer: TokenizerData, vocab_size: int) -> int:
    """How many ids the tokenizer knows, at most `vocab_size`: those from there on are padding.

    GGUF files list the padding too, as unused tokens at the end.
    """
    if tokenizer.kind == "gguf":
        known = _count_gguf(tokenizer.gguf)
    elif tokenizer.kind == "tokenizer.json" and tokenizer.json_path is not None:
        known = _count_json(tokenizer.json_path)
    else:
        return vocab_size
    return min(known, vocab_size)


def _count_gguf(entries: Mapping[str, Any]) -> int:
    known = len(entries["tokens"])
    kinds = entries.get("token_type")
    while kinds is not None and known and kinds[known - 1] == GGUF_UNUSED:
        known -= 1
    return known


class _Added(msgspec.Struct):
    id: int


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerJson(msgspec.Struct):
    """The two places in tokenizer.json that give ids; the rest is skipped unread."""

    model: _Vocabulary
    added_tokens: list[_Added] = []


def _count_json(path: Path) -> int:
    try:
        parsed = msgspec.json.decode(path.read_bytes(), type=_TokenizerJson)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read as a tokenizer: {error}") from error
    vocabulary = parsed.model.vocab
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [token.id for token in parsed.added_tokens]
    highest: int = max([-1, *added, *ids])
    return 1 + highest


class _Phases:
    """Seconds of each named phase, in the order they came."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start_s = self._clock()
        yield
        self.seconds[name] = self._clock() - start_s
