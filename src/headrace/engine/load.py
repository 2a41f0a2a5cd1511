"""From an EngineConfig to an engine that can serve, with the time of every phase."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.proposer import Proposer
from headrace.engine.drafts.speculative_config import SpeculativeConfig, read_speculative_config
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.engine.memory.device_memory import device_room, step_bytes
from headrace.engine.memory.expert_memory import PlannedModel, WeightPlan
from headrace.engine.memory.expert_placement import plan_places
from headrace.engine.memory.kv_memory import MIB, plan_kv_cache
from headrace.models import load_model
from headrace.ops import choose_backend, device_memory, make_ops
from headrace.ops.placement import ALL_LAYERS
from headrace.telemetry.machine import stored_machine
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.dtype import held_as
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import resolve_model
from headrace.weights.tokenizer.data import TokenizerData

if TYPE_CHECKING:
    from headrace.engine.drafts.load import OpenedDraft

Progress = Callable[[int, int], None]

logger = logging.getLogger(__name__)


class LoadedEngine(NamedTuple):
    """An engine ready to serve and the checkpoint it is of (for the tokenizer and template)."""

    core: EngineCore
    checkpoint: Checkpoint


def load_engine(
    config: EngineConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
    started_s: float | None = None,
    begun_s: float | None = None,
    progress: Progress | None = None,
    on_phase: Callable[[str], None] | None = None,
    proposers: Sequence[Proposer] = (),
) -> LoadedEngine:
    """Open the checkpoint, load the weights, size the KV cache, compute one token.

    started_s: by `clock`, when the process or command began; the time since then is the phase
    "import", but for what passed until begun_s, when its first line ran, which is "spawn".
    progress: called with bytes of weights done and in all. on_phase: called with the name of each
    phase as it begins. proposers: of drafts, beside those of the settings. Raises HeadraceError
    (its kinds CheckpointError, UnsupportedModelError, ConfigError) with what is wrong and what
    helps.
    """
    # Refused before minutes of reading.
    spec = read_speculative_config(config.speculative_config or "auto")
    phases = _Phases(clock, on_phase)
    if started_s is not None and begun_s is not None:
        phases.seconds["spawn"] = begun_s - started_s
        started_s = begun_s
    if started_s is not None:
        phases.seconds["import"] = clock() - started_s
    with phases("open"):
        choice = choose_backend(config.backend, config.device)
        config = replace(config, backend=choice.backend, device=choice.device)
        checkpoint = held_as(open_checkpoint(resolve_model(config.model)), config.dtype)
        opened = _open_draft(spec, checkpoint, config)
        planned = [PlannedModel(checkpoint, config)]
        if opened is not None and opened.checkpoint is not None:
            planned.append(PlannedModel(opened.checkpoint, config))
        memory = device_memory(choice)
        weights = plan_places(
            planned,
            None if memory is None else device_room(memory, config.gpu_memory_utilization),
            beside_bytes=0 if opened is None else opened.beside_bytes,
        )
        _note_placement(weights, config)
    with phases("backend"):
        ops = make_ops(
            config.backend,
            device=config.device,
            cpu_level=config.cpu_level,
            threads=config.threads,
            expert_cache_bytes=weights.expert_cache_bytes,
            expert_layers=weights.cpu_layers,
            reproducible=config.reproducible,
        )
        if config.backend == "torch" and not config.reproducible:
            # A warning, since the process of an engine logs no less.
            logger.warning(
                "answers may depend on what else is computed beside them (--no-reproducible): the "
                "device's libraries choose how they multiply by the number of rows"
            )
    with phases("weights"):
        model = load_model(
            checkpoint,
            ops,
            max_positions=config.max_model_len,
            ignore_config_keys=config.ignore_config_keys,
            progress=progress,
        )
        loaded = None if opened is None else opened.load(model, ops, config)
    with phases("kv_cache"):
        num_tokens = count_tokens(checkpoint.tokenizer, model.vocab_size)
        memory, reserved = ops.memory(), weights.reserved_bytes
        if memory is not None:
            # What experts here take is of another memory than the KV cache.
            tables = model.cache_layout.num_tables
            reserved = step_bytes(model.config, model.vocab_size, config, recorded_tables=tables)
            if loaded is not None:
                reserved += step_bytes(loaded.config, model.vocab_size, config)
        plan = plan_kv_cache(model, config, reserved_bytes=reserved, device=memory)
        draft = None
        if loaded is not None:
            from headrace.engine.drafts.load import DraftSetting, draft_beside

            setting = DraftSetting(ops, config, num_tokens, clock)
            draft, plan = draft_beside(model, loaded, plan, setting, reserved_bytes=reserved)
        core = EngineCore(
            model,
            ops,
            config,
            num_tokens=num_tokens,
            eos_token_ids=checkpoint.eos_token_ids,
            clock=clock,
            plan=plan,
            draft=draft,
            machine=stored_machine(os.environ),
            vocabulary=vocabulary_maker(checkpoint.tokenizer, num_tokens, config.tokenizer_pre),
            proposers=proposers,
        )
    with phases("warm_up"):
        core.warm_up()
    core.phases_s = phases.seconds
    return LoadedEngine(core, checkpoint)


def _open_draft(
    spec: SpeculativeConfig, target: Checkpoint, config: EngineConfig
) -> OpenedDraft | None:
    """As `open_draft`, which is imported, with every kind of head, where there is one to open."""
    if spec.model is None and not spec.has_own_mtp:
        return None
    from headrace.engine.drafts.load import open_draft

    return open_draft(spec, target, config)


def _note_placement(weights: WeightPlan, config: EngineConfig) -> None:
    """Say in the log what was chosen where the settings left it open."""
    if not weights.cpu_layers or config.cpu_moe or config.n_cpu_moe is not None:
        return
    which = "all layers"
    if weights.cpu_layers < ALL_LAYERS:
        which = f"the first {weights.cpu_layers} layers"
    # A warning, since the process of an engine logs no less.
    logger.warning(
        "the experts of %s are computed on the CPU (%d MiB there), because the device does not "
        "hold all; --n-cpu-moe sets of how many layers",
        which,
        weights.expert_bytes // MIB,
    )


def count_tokens(tokenizer: TokenizerData, vocab_size: int) -> int:
    """How many ids the tokenizer knows, at most `vocab_size`: those from there on are padding."""
    known = tokenizer.num_tokens
    return vocab_size if known is None else min(known, vocab_size)


class _Phases:
    """Seconds of each named phase, in the order they came."""

    def __init__(
        self, clock: Callable[[], float], on_phase: Callable[[str], None] | None = None
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._on_phase = on_phase

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start_s = self._clock()
        if self._on_phase is not None:
            self._on_phase(name)
        yield
        self.seconds[name] = self._clock() - start_s
