"""What `--speculative-config` names to make drafts: opened, held to the target, loaded, and given a
pool of K and V beside the target's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from headrace.config.settings import EngineConfig
from headrace.engine.drafts.heads.few_bits import check_finite, few_bits_bytes, in_few_bits
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.drafts.model.draft_model import DraftModelChain
from headrace.engine.drafts.model.same_tokens import check_same_tokens
from headrace.engine.drafts.passes.draft_chain import MAX_STEP_TOKENS, DraftChain
from headrace.engine.drafts.speculative_config import SpeculativeConfig, head_kind_of
from headrace.engine.memory.draft_memory import plan_draft_cache
from headrace.engine.memory.kv_memory import CachePlan, CacheShape, plan_kv_cache
from headrace.errors import (
    CheckpointError,
    FetchError,
    HeadraceError,
    UnsupportedModelError,
    shown,
)
from headrace.models import DecoderConfig, Model, load_model, read_config
from headrace.models.heads import (
    DraftHead,
    MtpFolder,
    check_vocabulary,
    load_dflash,
    load_eagle3,
    load_medusa,
    load_mtp,
    open_mtp_folder,
)
from headrace.models.heads.mtp import mtp_checkpoint
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.dtype import held_as
from headrace.weights.hugging_face.head_folder import HeadFolder, HeadKind, open_head_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import resolve_model
from headrace.weights.tokenizer.data import TokenizerData

_FLAG = "--speculative-config"
_REMEDY = "Use one that was made for this model, or method ngram or suffix, which need none"
_LOADERS: Mapping[HeadKind, Callable[[HeadFolder, Model, Ops], DraftHead]] = {
    "eagle3": load_eagle3,
    "dflash": load_dflash,
    "medusa": load_medusa,
}


@dataclass(frozen=True)
class DraftSetting:
    """The facts of an engine that a draft's own K and V are planned and made with."""

    ops: Ops
    config: EngineConfig
    num_tokens: int
    """Ids of the tokenizer."""
    clock: Callable[[], float]


@dataclass(frozen=True)
class LoadedDraft:
    """A maker of drafts, still without K and V."""

    shape: CacheShape
    """It itself, as what it keeps of a request."""
    drafts: Callable[..., DraftChain[Any]]
    """The class of its drafts."""
    vocab_size: int
    """The target's."""
    config: DecoderConfig
    """Of its layers."""

    def with_cache(self, plan: CachePlan, setting: DraftSetting) -> DraftChain[Any]:
        """The drafts of an engine. Raises ConfigError where its K and V cannot be allocated."""
        return self.drafts(
            self.shape,
            setting.ops,
            plan,
            num_tokens=setting.num_tokens,
            vocab_size=self.vocab_size,
            prefix_caching=setting.config.enable_prefix_caching,
            repeats=not setting.config.enforce_eager,
            clock=setting.clock,
        )


class OpenedDraft(Protocol):
    """A maker of drafts, before its weights are loaded."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """A model of its own, whose weights are planned as the target's are; None for a head."""

    @property
    def beside_bytes(self) -> int:
        """Bytes of the weights of what is no model of its own."""

    def load(self, target: Model, ops: Ops, config: EngineConfig) -> LoadedDraft:
        """Hand its weights to the backend. Raises what `load_model` does, naming the draft."""


@dataclass(frozen=True)
class _OpenedModel:
    """A smaller model."""

    checkpoint: Checkpoint
    beside_bytes: int = 0

    def load(self, target: Model, ops: Ops, config: EngineConfig) -> LoadedDraft:
        with _named(f"the draft model {self.checkpoint.path}"):
            model = load_model(self.checkpoint, ops, ignore_config_keys=config.ignore_config_keys)
        return LoadedDraft(model, DraftModelChain, target.vocab_size, model.config)


@dataclass(frozen=True)
class _OpenedHead:
    """A head, from a folder of its own or from the target's checkpoint."""

    words: str
    """What it is, in errors."""
    beside_bytes: int
    load_head: Callable[[Model, Ops], DraftHead]
    """For its target."""
    checkpoint: None = None

    def load(self, target: Model, ops: Ops, config: EngineConfig) -> LoadedDraft:
        with _named(self.words):
            head = self.load_head(target, ops)
        return LoadedDraft(head, HeadDrafts, target.vocab_size, head.config)


def _load_folder(
    kind: HeadKind, folder: HeadFolder, tokenizer: TokenizerData, target: Model, ops: Ops
) -> DraftHead:
    """tokenizer: the target's."""
    stated, layer = folder.config, folder.config.get("transformer_layer_config")
    if isinstance(layer, dict):
        stated = {**layer, **stated}
    check_vocabulary(folder.path, stated.get("vocab_size"), target.vocab_size, tokenizer)
    return _LOADERS[kind](in_few_bits(folder, ops.num_threads), target, ops)


def _without_keys(folder: HeadFolder, keys: Sequence[str]) -> HeadFolder:
    """The head without keys of config.json that are to be passed over, in the section of its layers
    too."""

    def rest(config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: rest(value) if isinstance(value, dict) else value
            for key, value in config.items()
            if key not in keys
        }

    return replace(folder, config=rest(folder.config)) if keys else folder


def _load_layers(opened: MtpFolder, target: Model, ops: Ops) -> DraftHead:
    folder = in_few_bits(opened.folder, ops.num_threads)
    return load_mtp(folder.checkpoint, target, ops, opened.config, opened.ids)


def _load_own_layers(layers: Checkpoint, target: Model, ops: Ops) -> DraftHead:
    check_finite(layers, ops.num_threads)
    return load_mtp(layers, target, ops)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Errors of what cannot be used say what it is, and what can be used instead."""
    try:
        yield
    except FetchError as error:
        raise FetchError(f"{_FLAG}: {what} cannot be used: {error}") from error
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{_FLAG}: {what} cannot be used: {error}. {_REMEDY}") from error


def open_draft(
    spec: SpeculativeConfig, target: Checkpoint, config: EngineConfig
) -> OpenedDraft | None:
    """What the settings name to make drafts; None where nothing has weights of its own.

    Raises HeadraceError (its kinds) for what cannot be opened, and where it is not of the target.
    """
    decoder = partial(read_config, target, ignore_config_keys=config.ignore_config_keys)
    if spec.has_own_mtp:
        layer = mtp_checkpoint(target, decoder(), spec.most_of_model)
        load = partial(_load_own_layers, layer)
        return _OpenedHead("the layer for further tokens", layer.nbytes, load)
    if spec.model is None:
        return None
    draft = f"model {shown(spec.model)}"
    with _named(draft):
        path = resolve_model(spec.model)
        kind = head_kind_of(spec, path)
    if kind == "mtp":
        words = f"the layer for further tokens of {path}"
        with _named(words):
            opened = open_mtp_folder(
                path, target, decoder(), spec.most_of_model, config.ignore_config_keys
            )
        load = partial(_load_layers, opened)
        return _OpenedHead(words, few_bits_bytes(opened.folder), load)
    if kind is not None:
        with _named(draft):
            folder = _without_keys(open_head_folder(path), config.ignore_config_keys)
        load = partial(_load_folder, kind, folder, target.tokenizer)
        return _OpenedHead(f"the head {path}", few_bits_bytes(folder), load)
    with _named(draft):
        checkpoint = held_as(open_checkpoint(path), config.dtype, may_be_quantised=True)
    check_same_tokens(target, checkpoint, config.tokenizer_pre)
    return _OpenedModel(checkpoint)


def draft_beside(
    target: Model,
    draft: LoadedDraft,
    plan: CachePlan,
    setting: DraftSetting,
    *,
    reserved_bytes: int,
) -> tuple[DraftChain[Any], CachePlan]:
    """The draft with its own K and V, and the plan of the target's, which is smaller than `plan`
    where both do not fit and no size was asked for.

    reserved_bytes: of memory, of steps. Raises ConfigError where there is no room.
    """
    config = setting.config

    def own_plan(plan: CachePlan) -> CachePlan:
        return plan_draft_cache(
            draft.shape,
            config,
            plan,
            reserved_bytes=reserved_bytes,
            max_step_tokens=MAX_STEP_TOKENS,
        )

    is_stated = config.num_gpu_blocks_override or config.kv_cache_memory_bytes
    try:
        own = own_plan(plan)
    except HeadraceError:
        if is_stated:
            raise
        # As much for the target as leaves a half of what there is to the draft and to steps.
        least = reserved_bytes + (plan.available_bytes - reserved_bytes) // 2
        plan = plan_kv_cache(target, config, reserved_bytes=least, device=setting.ops.memory())
        own = own_plan(plan)
    return draft.with_cache(own, setting), plan
