"""A draft model of `--speculative-config`: opened, held to its target's vocabulary, loaded, and
given a pool of K and V beside the target's."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config.settings import EngineConfig
from headrace.engine.drafts.model.draft_model import MAX_STEP_TOKENS, DraftModel
from headrace.engine.drafts.model.same_tokens import check_same_tokens
from headrace.engine.memory.draft_memory import plan_draft_cache
from headrace.engine.memory.kv_memory import CachePlan, plan_kv_cache
from headrace.engine.model import Model
from headrace.errors import CheckpointError, HeadraceError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import resolve_model


def open_draft(name: str | None, target: Checkpoint, config: EngineConfig) -> Checkpoint | None:
    """The draft of that name; None without one. name: as of --model.

    Raises HeadraceError (its kinds) for what cannot be opened, and where its ids are not those of
    the target.
    """
    if name is None:
        return None
    checkpoint = open_checkpoint(resolve_model(name))
    check_same_tokens(target, checkpoint, config.tokenizer_pre)
    return checkpoint


def load_draft(checkpoint: Checkpoint | None, ops: Ops, config: EngineConfig) -> Model | None:
    """Its weights, handed to the backend. Raises what `load_model` does, naming the draft."""
    if checkpoint is None:
        return None
    try:
        return load_model(checkpoint, ops, ignore_config_keys=config.ignore_config_keys)
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(
            f"--speculative-config: the draft model {checkpoint.path} cannot be used: {error}"
        ) from error


def draft_beside(
    target: Model,
    model: Model,
    ops: Ops,
    config: EngineConfig,
    plan: CachePlan,
    *,
    num_tokens: int,
    reserved_bytes: int,
    clock: Callable[[], float],
) -> tuple[DraftModel, CachePlan]:
    """The draft with its own K and V, and the plan of the target's, which is smaller than `plan`
    where both do not fit and no size was asked for.

    reserved_bytes: of memory, of steps. Raises ConfigError where there is no room.
    """

    def beside(plan: CachePlan) -> CachePlan:
        return plan_draft_cache(
            model, config, plan, reserved_bytes=reserved_bytes, max_step_tokens=MAX_STEP_TOKENS
        )

    is_stated = config.num_gpu_blocks_override or config.kv_cache_memory_bytes
    try:
        own = beside(plan)
    except HeadraceError:
        if is_stated:
            raise
        # As much for the target as leaves a half of what there is to the draft and to steps.
        least = reserved_bytes + (plan.available_bytes - reserved_bytes) // 2
        plan = plan_kv_cache(target, config, reserved_bytes=least)
        own = beside(plan)
    draft = DraftModel(
        model,
        ops,
        own,
        num_tokens=num_tokens,
        vocab_size=target.vocab_size,
        prefix_caching=config.enable_prefix_caching,
        clock=clock,
    )
    return draft, plan
