"""What a family's files say, and in which words: the declaration that readers and writers go by.

One `Architecture` is one value of `general.architecture` and one `model_type`. It holds names of
tensors, keys of the config in both containers, and the conventions of both. It computes nothing;
`gguf_config` reads by it, `gguf_metadata` writes by it, `conversion` puts tensors in order by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal

from headrace.errors import UnsupportedModelError
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import RopeConfig

UNKNOWN_PREFIX = "gguf."
"""Stands before names of GGUF that have no Hugging Face name, so that models refuse them."""

ROPE_FACTORS = "rope_freqs.weight"
LONGROPE_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
ROPE_FACTOR_NAMES = (ROPE_FACTORS, *LONGROPE_FACTORS)
"""Divisors of the rotary frequencies. Hugging Face has them in the config and not as tensors, so
their GGUF names are the canonical ones."""


class Missing(Enum):
    """The action for a key that a file lacks, other than taking a default value."""

    REFUSED = "refused"
    LEFT_OUT = "left out"


REFUSED: Final = Missing.REFUSED
LEFT_OUT: Final = Missing.LEFT_OUT


@dataclass(frozen=True)
class Key:
    """An entry `<architecture>.{gguf}` of GGUF and its key in config.json; one value, two names."""

    gguf: str
    config: str
    kind: Literal["size", "positive", "largest"] = "size"
    """"size" is a whole number of at least 1, "positive" a finite float above 0, "largest" a size
    for which GGUF may have an array with a number for each layer, of which it is the largest."""
    in_gguf: Any = REFUSED
    in_config: Any = REFUSED
    """With `in_gguf`: what is taken where that side is silent; REFUSED stops the reading, LEFT_OUT
    leaves the key out on the other side too. A value of in_config is transformers' default."""
    same_as: str | None = None
    """Key of config.json whose value is taken where GGUF is silent, and where config.json is silent
    without an in_config, or says null."""
    off: Any = None
    """Value in GGUF that means "not used"; null in config.json, which is then not written."""


Reads = Callable[[GGUFKeys, dict[str, Any]], None]
"""Completes a config, in place, from the keys of a GGUF file."""

Writes = Callable[[ConfigReader, dict[str, Any]], None]
"""Completes entries of a GGUF file (without `<architecture>.`), in place, from a config."""


@dataclass(frozen=True)
class Variant:
    """The differences in files of one architecture whose layers have a module that others lack."""

    block: Mapping[str, str]
    """Names of other modules in them, from GGUF to canonical."""
    implied: Mapping[str, Any]
    """As in Architecture, but only added when reading."""


@dataclass(frozen=True)
class Architecture:
    """One family, in GGUF and as a Hugging Face folder."""

    name: str
    """Value of `general.architecture`. Two families may share one, as Llama and Mistral do;
    `is_this` then decides by the file's keys which it is, and the first that says yes is taken."""
    model_type: str
    hf_class: str
    block: Mapping[str, str]
    """With `top`: modules without ".weight" and ".bias", from GGUF to canonical; those of `block`
    stand behind "blk.N." there and `layers` + ".N." here."""
    top: Mapping[str, str]
    keys: tuple[Key, ...]
    """One line per key both sides have."""
    layers: str = "model.layers"
    rope: bool = True
    head_dim: bool = True
    """With `rope`: whether there are rotary embeddings, and whether config.json has a key for the
    width of a head (else it is hidden / heads)."""
    silent_head_dim: int | None = None
    """Width of a head where config.json has a key for it and says nothing, in families for which
    that is not hidden / heads."""
    null_head_dim: bool = False
    """With `silent_head_dim`: whether null means hidden / heads all the same."""
    rope_theta: float = 10000.0
    """Transformers' default base."""
    local_theta: float | None = None
    """That of layers with a window, in families where it is another."""
    local_theta_key: str = "rope_local_base_freq"
    """Its key in config.json, where that has no rope for each kind of layer."""
    halved_rope: bool = False
    """Whether layers that see everything rotate half of what GGUF states, which is what those with
    a window do."""
    ropes: Callable[[ConfigReader], tuple[RopeConfig, RopeConfig]] | None = None
    """Reads both ropes of config.json, in families with words of their own for them."""
    value_dim_key: str | None = None
    """Key of config.json for the width of values, in families where keys may have another."""
    partial: float | None = None
    """Its default share of a head that is rotated, in families that may rotate a part; None in
    those that rotate all of it."""
    rotary_dim_key: bool = False
    """Whether config.json may state that part in dimensions, as `rotary_dim`."""
    full_head_dim: str | None = None
    """Key of config.json for the width of heads in layers that see everything, in families where
    those with a window have another; it is then the one that GGUF has under the usual key."""
    absences: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Keys of config.json that are true where some layer has the first of two modules and not the
    second, which is all that GGUF says of them."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """Keys of config.json GGUF has no word for, with the value each file of this architecture
    stands for. Put into what is read; any other value is refused when writing."""
    accepted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of config.json that writing passes over, with the values they, or each entry of a list,
    may have (null always may); () where any will do because something else says it."""
    neutral: Mapping[str, Any] = field(default_factory=dict)
    """Keys of GGUF that say nothing with this value, and are left unknown with any other."""
    is_this: Callable[[GGUFKeys], bool] = lambda keys: True
    variants: Mapping[str, Variant] = field(default_factory=dict)
    """By the GGUF module of the first layer that tells them apart."""
    fused_heads: Callable[[ConfigReader], tuple[int, int]] | None = None
    """Heads of Q, and of K and V, in families that store them as one matrix whose rows the two
    containers order differently."""
    reads: Reads | None = None
    writes: Writes | None = None
    """With `reads`: what no table can say. They run after the tables."""
    gguf: Conventions = field(default_factory=Conventions)
    hf: Conventions = field(default_factory=Conventions)
    """With `gguf`: conventions of the two containers."""
    hf_prefix: str = "model."
    """What names in a folder begin with; old folders leave it out, and it is put back."""
    bias_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of config.json that stand for biases, and the modules of a layer they speak of."""
    head_bias_key: str | None = None
    """The same for the bias of lm_head, in families that may have one."""
    norm_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same for norms that a family has or has not."""
    gguf_only: tuple[str, ...] = ()
    """Modules of a layer, by canonical name, that only GGUF files of some converters have."""
    experts: Mapping[str, str] = field(default_factory=dict)
    """Modules that GGUF files hold as one tensor for all experts of a layer, and the canonical name
    of one of them with {} for its number; see `weights.tensors.expert_stacks`."""
    fused_experts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Modules that GGUF files may hold in their stead, several matrices of each expert one after
    another; they are not written."""
    folder_experts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors that folders may hold for all experts of a layer, by their names within it, and the
    canonical names of their parts, with {} for the number: for each expert the rows of its first
    part, then those of the next."""
    stacked_in_folders: bool = False
    """Whether folders of the family hold experts in no other way, so that they are written so."""
    turned_stacks: Literal["", "in_turn", "joined"] = ""
    """Whether these stacks are [experts, columns, rows], and how the rows of several parts lie
    there: in turn (gate, up, gate, up, ...), or all of one and then all of the next. In turn,
    folders may hold weights as MXFP4 too, in other tensors (see
    `weights.tensors.turned_stacks`)."""
    rope_alpha: bool = False
    """Whether config.json may have an alpha, by which the base of a rope grows; GGUF has the base
    that has grown."""
    folder_modules: Mapping[str, str] = field(default_factory=dict)
    """Whole names of modules that folders call otherwise, from canonical to theirs."""
    folder_blocks: Mapping[str, str] = field(default_factory=dict)
    """The same of modules within a layer."""
    folder_qkv: str | None = None
    """Module of a layer in which folders hold Q, K and V as one matrix, where the canonical names
    are those of three; heads of Q stand with those of K and V that they share."""
    folder_heads: Mapping[str, str] = field(default_factory=dict)
    """Modules of a layer with a row for each head that folders hold as one vector for each, and the
    name of one of them with {} for its number; see `weights.hugging_face.forms`."""
    rope_keys: tuple[str, str] = ("rope_theta", "partial_rotary_factor")
    """Names of the base and of the rotated share at the top of config.json."""
    yarn_truncates: bool = True
    """Whether the bounds of yarn are whole dimensions, which GGUF has no key for."""
    layers_differ: bool = False
    """Whether layers may have numbers of heads of their own, or none, which the tensors show."""
    single_rows: tuple[str, ...] = ()
    """Modules of a layer, by canonical name, that are vectors in GGUF and matrices of one row in
    folders."""
    vectors: Mapping[str, str] = field(default_factory=dict)
    """Whole names of vectors that are called "weight" or "bias" in one container alone, from GGUF
    to canonical. Both keep them in F32."""
    latent: bool = False
    """Whether layers have latent attention: `keys` and the functions state its widths, and what is
    rotated is as wide as `qk_rope_head_dim` says."""
    routers: tuple[str, ...] = ()
    """Modules of a layer, by canonical name, that GGUF files keep in F32 whatever the kind."""

    def of_file(self, gguf_names: Collection[str]) -> Architecture:
        """This architecture as a GGUF file with tensors of these names has it."""
        found = self
        for module, variant in self.variants.items():
            if f"blk.0.{module}.weight" in gguf_names:
                block = {**found.block, **variant.block}
                found = replace(found, block=block, implied={**found.implied, **variant.implied})
        return found

    def config_key(self, gguf: str) -> str:
        """The key of config.json for a key of GGUF; KeyError where there is none."""
        return self._config_keys[gguf]

    def canonical_name(self, gguf_name: str) -> str:
        """The canonical name, or "gguf." before the given one when the tables lack it."""
        if gguf_name in ROPE_FACTOR_NAMES:
            return gguf_name
        if match := _GGUF_BLOCK.fullmatch(gguf_name):
            layer, module, kind = match.groups()
            if vector := self.vectors.get(f"{module}.{kind}"):
                return f"{self.layers}.{int(layer)}.{vector}"
            if kind == "scale":
                return UNKNOWN_PREFIX + gguf_name
            if canonical := self.block.get(module):
                return f"{self.layers}.{int(layer)}.{canonical}.{kind}"
            # Files of 2023 and early 2024 hold each expert apart.
            single = _SINGLE_EXPERT.fullmatch(module)
            if single and (expert := self.experts.get(f"{single[1]}_exps")):
                return f"{self.layers}.{int(layer)}.{expert.format(int(single[2]))}.{kind}"
        elif (match := _GGUF_TOP.fullmatch(gguf_name)) and (canonical := self.top.get(match[1])):
            return f"{canonical}.{match[2]}"
        return UNKNOWN_PREFIX + gguf_name

    def gguf_name(self, canonical_name: str) -> str:
        """The name in GGUF files; raises UnsupportedModelError when the tables lack it."""
        if canonical_name in ROPE_FACTOR_NAMES:
            return canonical_name
        match = _KIND.fullmatch(canonical_name)
        if match and (gguf := self._gguf_top.get(match[1])):
            return f"{gguf}.{match[2]}"
        layer = self.in_layer(canonical_name)
        if layer and (vector := self._gguf_vectors.get(layer[1])):
            return f"blk.{layer[0]}.{vector}"
        match = layer and _KIND.fullmatch(layer[1])
        if layer and match and (gguf := self._gguf_block.get(match[1])):
            return f"blk.{layer[0]}.{gguf}.{match[2]}"
        raise UnsupportedModelError(
            f"tensor {canonical_name!r} has no name in GGUF files of architecture {self.name!r}"
        )

    def in_layer(self, canonical_name: str) -> tuple[int, str] | None:
        """(layer, name within it) of a canonical name, or None where it is of no layer."""
        start = f"{self.layers}."
        if not canonical_name.startswith(start):
            return None
        index, _, rest = canonical_name.removeprefix(start).partition(".")
        return (int(index), rest) if rest and _INDEX.fullmatch(index) else None

    def expert_names(self, gguf_name: str) -> tuple[str, ...]:
        """Canonical names, with {} for the expert's number, of what one tensor of GGUF holds for
        each expert; empty where it is not of experts.
        """
        match = _GGUF_BLOCK.fullmatch(gguf_name)
        if match is None or f"{match[2]}.{match[3]}" in self.vectors:
            return ()
        single = self.experts.get(match[2])
        names = (single,) if single else self.fused_experts.get(match[2], ())
        return tuple(f"{self.layers}.{int(match[1])}.{name}.{match[3]}" for name in names)

    def expert_place(self, canonical_name: str) -> tuple[str, int] | None:
        """(name of the tensor of GGUF, place in it) of one expert's tensor; None: it is of none."""
        layer = self.in_layer(canonical_name)
        match = layer and self.experts and _EXPERT.fullmatch(layer[1])
        if not layer or not match:
            return None
        before, number, after, kind = match.groups()
        gguf = self._gguf_experts.get(f"{before}.{{}}.{after}")
        return None if gguf is None else (f"blk.{layer[0]}.{gguf}.{kind}", int(number))

    def folder_parts(self, name: str) -> tuple[str, ...] | None:
        """Canonical names, with {} for the expert's number, of what one tensor of a folder holds
        for each expert; None where it is not of experts.
        """
        layer = self.in_layer(name) if self.folder_experts else None
        parts = layer and self.folder_experts.get(layer[1])
        return (
            tuple(f"{self.layers}.{layer[0]}.{part}" for part in parts) if layer and parts else None
        )

    def folder_place(self, canonical_name: str) -> tuple[str, int] | None:
        """(name of the tensor of a folder, place among its parts) of one expert's tensor, in
        families whose folders stack them; None: it is of none.
        """
        layer = self.in_layer(canonical_name) if self.stacked_in_folders else None
        match = layer and _EXPERT.fullmatch(layer[1])
        if not layer or not match:
            return None
        before, number, after, kind = match.groups()
        for name, parts in self.folder_experts.items():
            if (part := f"{before}.{{}}.{after}.{kind}") in parts:
                place = int(number) * len(parts) + parts.index(part)
                return f"{self.layers}.{layer[0]}.{name}", place
        return None

    @property
    def has_folder_forms(self) -> bool:
        """Whether folders hold some tensors in another form than the canonical one."""
        return bool(self.folder_modules or self.folder_qkv or self.folder_heads)

    def from_folder(self, name: str) -> str:
        """The canonical name of a tensor of a folder."""
        return self._renamed(name, self._canonical_modules, self._canonical_blocks)

    def to_folder(self, canonical_name: str) -> str:
        """The name in folders of a tensor."""
        return self._renamed(canonical_name, self.folder_modules, self.folder_blocks)

    def _renamed(self, name: str, whole: Mapping[str, str], within: Mapping[str, str]) -> str:
        layer = self.in_layer(name)
        module, _, kind = (name if layer is None else layer[1]).rpartition(".")
        if layer is None:
            return f"{whole[module]}.{kind}" if module in whole else name
        return f"{self.layers}.{layer[0]}.{within[module]}.{kind}" if module in within else name

    def folder_head(self, name: str) -> tuple[str, int] | None:
        """(canonical name, place in it) of one head's vector in a folder; None: it is not one."""
        layer = self.in_layer(name) if self.folder_heads else None
        match = layer and _FOLDER_HEAD.fullmatch(layer[1])
        for module, names in self.folder_heads.items():
            if layer and match and names == f"{match[1]}.{{}}":
                return f"{self.layers}.{layer[0]}.{module}.weight", int(match[2])
        return None

    @property
    def embedding(self) -> str:
        """Canonical name of the embedding table."""
        return f"{self.top['token_embd']}.weight"

    @cached_property
    def _gguf_top(self) -> Mapping[str, str]:
        return {canonical: gguf for gguf, canonical in self.top.items()}

    @cached_property
    def _gguf_block(self) -> Mapping[str, str]:
        blocks = (*(variant.block for variant in self.variants.values()), self.block)
        return {canonical: gguf for block in blocks for gguf, canonical in block.items()}

    @cached_property
    def _canonical_modules(self) -> Mapping[str, str]:
        return {theirs: canonical for canonical, theirs in self.folder_modules.items()}

    @cached_property
    def _canonical_blocks(self) -> Mapping[str, str]:
        return {theirs: canonical for canonical, theirs in self.folder_blocks.items()}

    @cached_property
    def _gguf_experts(self) -> Mapping[str, str]:
        return {canonical: gguf for gguf, canonical in self.experts.items()}

    @cached_property
    def _gguf_vectors(self) -> Mapping[str, str]:
        return {canonical: gguf for gguf, canonical in self.vectors.items()}

    @cached_property
    def _config_keys(self) -> Mapping[str, str]:
        return {key.gguf: key.config for key in self.keys}


_INDEX = re.compile(r"\d{1,5}", re.ASCII)
_EXPERT = re.compile(r"(.+)\.(\d{1,5})\.(.+)\.(weight|bias)", re.ASCII)
_FOLDER_HEAD = re.compile(r"(.+)\.(\d{1,5})\.weight", re.ASCII)
_SINGLE_EXPERT = re.compile(r"(.+)\.(\d{1,5})", re.ASCII)
_KIND = re.compile(r"(.+)\.(weight|bias)", re.ASCII)
_GGUF_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)\.(weight|bias|scale)", re.ASCII)
_GGUF_TOP = re.compile(r"(.+)\.(weight|bias)", re.ASCII)
