"""Which rotary embedding a config asks for, whatever words it uses.

transformers 5 writes `rope_parameters`, for some families one object per kind of layer; older files
have `rope_theta` and `rope_scaling`. What GGUF files say arrives here in the older words. A kind or
key that is not implemented stops the load. What frequencies follow is the business of
`headrace.models.rope`.

Sources: transformers modeling_rope_utils.py (keys, defaults, attention factors), vLLM
config/model.py (how far a scaled model reaches).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace.errors import UnsupportedModelError
from headrace.weights.model_config.config_reader import ConfigReader

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"]

KINDS: dict[str, RopeKind] = {
    "default": "default",
    "linear": "linear",
    "dynamic": "dynamic",
    "llama3": "llama3",
    "yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",
    "proportional": "proportional",
}
"""By the names configs use; Phi-3 first called longrope "su"."""

FULL, WINDOWED = "full_attention", "sliding_attention"
CHUNKED = "chunked_attention"
"""Kinds of layers in `layer_types`, that may also have a rope each."""

# Far above float32's error of a share times a head's width, far below one dimension.
_SHARE_ROUNDING = 1e-3


@dataclass(frozen=True)
class RopeConfig:
    """One rotary embedding. Lengths in tokens; numbers are those float32 can hold."""

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    """By how much linear, dynamic, llama3 and yarn stretch the positions."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    """With `low_freq_factor`: llama3's, shares of `original_max_positions` in a wave."""
    original_max_positions: int = 8192
    """What the model was trained for before it was stretched."""
    partial: float = 1.0
    """Share of a head's dimensions that are rotated: the first ones, or of proportional the first
    pairs of those that stand half a head apart."""
    attention_factor: float = 1.0
    """Of cos and sin, and so its square of the scores (yarn, longrope)."""
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    """With `beta_fast`: turns within the original length above which yarn keeps a frequency, and
    below which it divides it."""
    mscale_all_dim: float = 0.0
    """DeepSeek's statement that the scale of the scores grows with yarn's factor; 0 where a config
    makes none. Only latent attention has it."""
    truncate: bool = True
    """Whether the bounds between are whole dimensions."""
    alpha: float = 1.0
    """The base is multiplied by alpha^(d / (d - 2)), for d rotated dimensions (Hunyuan)."""
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    """With `short_factor`: divisors of longrope, rotary_dim / 2 of each."""

    @classmethod
    def read(
        cls,
        config: ConfigReader,
        *,
        default_theta: float = 10000.0,
        default_partial: float | None = None,
        rotary_dim_of: int | None = None,
        with_alpha: bool = False,
        top_keys: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
    ) -> RopeConfig:
        """From `rope_parameters`, or `rope_scaling` and `rope_theta`, whichever the file has.

        default_partial: `partial_rotary_factor` where it is not stated, for families that may
        rotate a part of each head; None for those that rotate all of it. rotary_dim_of: the width
        of a head, in families that state the rotated part in dimensions too, as `rotary_dim`.
        with_alpha: whether the family may have an `alpha` beside rope_type dynamic.
        top_keys: names of theta and of the rotated share outside these objects.
        """
        newer, older = config.section("rope_parameters"), config.section("rope_scaling")
        parts = [part for part in (newer, older) if part is not None]
        theta = _agreed(config, parts, "rope_theta", top_keys[0])
        partial = _agreed(config, parts, "partial_rotary_factor", top_keys[1])
        if rotary_dim_of is not None:
            partial = _rotated_share(config, partial, rotary_dim_of)
        found = [
            (_read_alpha(part, config) if with_alpha else None) or _read_kind(part, config)
            for part in parts
        ]
        stated = default_theta if theta is None else theta
        for fields in found:
            _check_theta(config, fields, stated)
        if not found:
            config.unused("original_max_position_embeddings")
        if len(found) == 2 and found[0] != found[1]:
            raise UnsupportedModelError(
                "config keys rope_parameters and rope_scaling contradict each other: "
                f"{found[0]} and {found[1]}; keep one of them"
            )
        return cls(
            theta=stated,
            partial=_partial(config, partial, default_partial),
            **(found[0] if found else {}),
        )

    @classmethod
    def read_pair(
        cls,
        config: ConfigReader,
        *,
        default_theta: float,
        default_local_theta: float,
        default_partial: float | None = None,
        local_key: str = "rope_local_base_freq",
    ) -> tuple[RopeConfig, RopeConfig]:
        """Ropes of layers that see everything and of those with a window.

        transformers 5 has an object for each in `rope_parameters`; older files have `rope_theta`
        and `rope_scaling` for the first and `rope_local_base_freq` for the second. One object for
        both is refused: which layers it speaks of, readers disagree about.
        default_partial: as in `read`, for each of them. local_key: another name of that last key.
        """
        both = config.raw("rope_parameters")
        if isinstance(both, dict) and both and not both.keys() & {FULL, WINDOWED}:
            config.refuse("rope_parameters", both, f"objects of {FULL} and {WINDOWED}")
        if not isinstance(both, dict) or not both:
            local = config.positive(local_key, default_local_theta)
            full = cls.read(config, default_theta=default_theta, default_partial=default_partial)
            return full, cls(local, partial=full.partial if default_partial is not None else 1.0)
        parts = config.section("rope_parameters")
        thetas = {FULL: default_theta, WINDOWED: default_local_theta}
        outer = {FULL: "rope_theta", WINDOWED: local_key}
        found = []
        for name, default in thetas.items():
            part = None if parts is None else parts.section(name)
            theta = None if part is None else part.optional("rope_theta", float)
            if theta is None:
                theta = config.positive(outer[name], default)
            elif config.positive(outer[name], theta) != theta:
                config.refuse(outer[name], config.raw(outer[name]), f"{theta}, as {name} has it")
            fields = {} if part is None else _read_kind(part, config)
            if part is not None:
                _check_theta(part, fields, theta)
                stated = _agreed(part, [], "partial_rotary_factor", "partial_rotary_factor")
                whole = 1.0 if fields["kind"] == "proportional" else default_partial
                fields["partial"] = _partial(part, stated, whole)
            found.append(cls(theta=theta, **fields))
        return found[0], found[1]

    def rotary_dim(self, head_dim: int) -> int:
        """Dimensions of a head that are rotated: whole ones, an even number at least 2. All of them
        with proportional, some of them by nothing.

        Raises UnsupportedModelError where the share of this width is no such number.
        """
        if self.kind == "proportional":
            return head_dim
        # The share went through float32, which may have rounded it down.
        dims = int(head_dim * self.partial + _SHARE_ROUNDING)
        if dims < 2 or dims % 2:
            raise UnsupportedModelError(
                f"config key partial_rotary_factor = {self.partial} of head_dim {head_dim} leaves "
                f"{dims} dimensions to rotate; an even number of at least 2 is required"
            )
        return dims

    def turning_pairs(self, head_dim: int) -> int:
        """Pairs of dimensions that proportional rotates by more than nothing."""
        return int(head_dim * self.partial + _SHARE_ROUNDING) // 2

    def grown_theta(self, dims: int) -> float:
        """The base, as alpha has grown it for so many rotated dimensions, as float32 has it."""
        if self.alpha == 1.0:
            return self.theta
        if dims < 4:
            raise UnsupportedModelError(
                f"rope_scaling has an alpha and {dims} dimensions of a head are rotated; at least "
                "4 are required. Use a checkpoint with wider heads, or without an alpha"
            )
        return _float32(self.theta * self.alpha ** (dims / (dims - 2)))

    def llama3(self) -> dict[str, Any]:
        """The numbers of llama3 as config.json has them."""
        return {
            "factor": self.factor,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_position_embeddings": self.original_max_positions,
        }

    def reach(self, max_positions: int) -> int:
        """How long a request may be where config.json states `max_positions`.

        The kinds that follow from the length served reach `factor` times as far as the model was
        trained, which configs do not always say (Qwen2.5's yarn is added by hand); as vLLM.
        """
        if self.kind not in ("yarn", "dynamic"):
            return max_positions
        return max(max_positions, int(self.original_max_positions * self.factor))


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """YaRN's 0.1 m ln(s) + 1, as float32 has it."""
    return 1.0 if factor <= 1 else _float32(0.1 * mscale * math.log(factor) + 1.0)


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _agreed(
    config: ConfigReader, parts: list[ConfigReader], key: str, top_key: str
) -> float | None:
    """A number stated at the top, in the parts, or nowhere; all statements must agree."""
    places = [(config, top_key), *((part, key) for part in parts)]
    values = {
        part.positive(name) for part, name in places if part.optional(name, float) is not None
    }
    if len(values) > 1:
        raise UnsupportedModelError(
            f"config states {key} more than once, as {sorted(values)}; keep one of them"
        )
    return values.pop() if values else None


def _rotated_share(config: ConfigReader, stated: float | None, head_dim: int) -> float | None:
    """The share that `rotary_dim` is of a head; `stated` where there is no such key."""
    if config.optional("rotary_dim", int) is None:
        return stated
    share = _float32(config.size("rotary_dim") / head_dim)
    if stated not in (None, share):
        config.refuse("rotary_dim", config.raw("rotary_dim"), f"partial_rotary_factor {stated}")
    return share


def _partial(config: ConfigReader, stated: float | None, default: float | None) -> float:
    partial = stated or default or 1.0
    if partial > 1 or (default is None and partial != 1):
        limit = "1.0" if default is None else "numbers of at most 1"
        config.refuse("partial_rotary_factor", partial, limit)
    return partial


def _read_kind(part: ConfigReader, config: ConfigReader) -> dict[str, Any]:
    """Fields of RopeConfig that one object states. `config`: what lies around it."""
    name = part.get("rope_type", str, part.get("type", str, "default"))
    kind = KINDS.get(name)
    if kind is None:
        part.refuse("rope_type", name, ", ".join(KINDS))
    fields: dict[str, Any] = {"kind": kind}
    _read_axes(part)
    if kind in ("llama3", "yarn", "longrope"):
        fields["original_max_positions"] = _original(part, config)
    else:
        # Stated beside a kind that does not look at it.
        config.unused("original_max_position_embeddings")
        if kind == "linear":
            part.unused("original_max_position_embeddings")
    if kind == "default":
        return fields
    if kind == "dynamic":
        fields["original_max_positions"] = config.size("max_position_embeddings")
    if kind == "proportional":
        fields["factor"] = part.positive("factor", 1.0)
    elif kind in ("yarn", "longrope") and part.optional("factor", float) is None:
        reached = config.size("max_position_embeddings")
        fields["factor"] = _float32(reached / fields["original_max_positions"])
    else:
        fields["factor"] = part.positive("factor")
    if kind != "longrope" and fields["factor"] < 1:
        part.refuse("factor", fields["factor"], "numbers of at least 1")
    more = {"llama3": _read_llama3, "yarn": _read_yarn, "longrope": _read_longrope}.get(kind)
    return fields if more is None else fields | more(part, fields)


def _read_alpha(part: ConfigReader, config: ConfigReader) -> dict[str, Any] | None:
    """The fields of a rope whose base an alpha has grown; None where there is none."""
    stated = part.raw("rope_type") or part.raw("type")
    if stated != "dynamic" or part.raw("alpha") is None:
        return None
    part.unused("rope_type", "type")
    config.unused("original_max_position_embeddings")
    # What else published files have there belongs to other kinds.
    part.unused("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    return {"alpha": part.positive("alpha")}


def _read_axes(part: ConfigReader) -> None:
    """Shares of the rotated pairs that follow each axis of a position, and whether these alternate.

    A token of text has the same position along all axes, so both change nothing there.
    """
    shares = part.raw("mrope_section")
    is_list = isinstance(shares, (list, tuple))
    if shares is not None and not (
        is_list and all(type(share) is int and share >= 0 for share in shares)
    ):
        part.refuse("mrope_section", shares, "lists of whole numbers")
    part.optional("mrope_interleaved", bool)


def _original(part: ConfigReader, config: ConfigReader) -> int:
    """transformers takes the statement at the top (Phi-3's) before that in the object."""
    key = "original_max_position_embeddings"
    inner, outer = part.optional(key, int), config.optional(key, int)
    if outer is not None:
        return config.size(key)
    return config.size("max_position_embeddings") if inner is None else part.size(key)


def _check_theta(reader: ConfigReader, fields: dict[str, Any], theta: float) -> None:
    """yarn looks for the dimension that turns so many times; with theta 1 all turn alike."""
    if fields.get("kind") == "yarn" and theta <= 1:
        reader.refuse("rope_theta", theta, "numbers above 1 beside rope_type yarn")


def _read_llama3(part: ConfigReader, fields: dict[str, Any]) -> dict[str, Any]:
    low, high = part.positive("low_freq_factor"), part.positive("high_freq_factor")
    if not low <= high:
        part.refuse("high_freq_factor", high, "at least low_freq_factor")
    return {"low_freq_factor": low, "high_freq_factor": high}


def _read_yarn(part: ConfigReader, fields: dict[str, Any]) -> dict[str, Any]:
    fast, slow = part.positive("beta_fast", 32.0), part.positive("beta_slow", 1.0)
    if not slow <= fast:
        part.refuse("beta_fast", fast, f"at least beta_slow {slow}")
    # The names are DeepSeek's; only both together mean anything.
    mscale, all_dims = (part.optional(key, float) for key in ("mscale", "mscale_all_dim"))
    if all_dims:
        all_dims = part.positive("mscale_all_dim")
    stated, factor = part.optional("attention_factor", float), fields["factor"]
    # Whether training saw the scaling; the arithmetic is the same.
    part.unused("finetuned")
    if stated is not None:
        attention = part.positive("attention_factor")
    elif mscale and all_dims:
        above = yarn_attention_factor(factor, part.positive("mscale"))
        below = yarn_attention_factor(factor, part.positive("mscale_all_dim"))
        attention = _float32(above / below)
    else:
        # DeepSeek-R1-0528-Qwen3-8B has the reciprocal here; as vLLM, transformers passes over it.
        attention = _float32(yarn_attention_factor(factor) * part.positive("attn_factor", 1.0))
    if not 0 < attention < math.inf:
        part.refuse("factor", factor, "numbers whose attention factor is finite in float32")
    return {
        "attention_factor": attention,
        "beta_fast": fast,
        "beta_slow": slow,
        "mscale_all_dim": all_dims or 0.0,
        "truncate": part.get("truncate", bool, True),
    }


def _read_longrope(part: ConfigReader, fields: dict[str, Any]) -> dict[str, Any]:
    factor, original = fields["factor"], fields["original_max_positions"]
    attention = 1.0
    # The names are Phi-3.5-MoE's: the factor up to the original length, and beyond it.
    short, long = (part.optional(key, float) for key in ("short_mscale", "long_mscale"))
    if short != long:
        part.refuse("long_mscale", long, f"{short}, as short_mscale has it")
    if short is not None:
        attention = part.positive("short_mscale")
    elif part.optional("attention_factor", float) is not None:
        attention = part.positive("attention_factor")
    elif factor > 1 and original < 2:
        part.refuse("original_max_position_embeddings", original, "at least 2 beside longrope")
    elif factor > 1:
        attention = _float32(math.sqrt(1 + math.log(factor) / math.log(original)))
    return {
        "attention_factor": attention,
        "short_factor": part.positives("short_factor"),
        "long_factor": part.positives("long_factor"),
    }
