"""Mixes: which kind a matrix gets by its role, its layer and the model.

A mix has one kind for most matrices and rules for those whose rounding costs more than their bytes:
V of attention, the down projections of some layers, the output. For each role the first rule that
holds decides. What is declared here are llama-quantize's decisions, so that a file of a mix has
the size and the kinds that its name says elsewhere; `tests/weights/quantize/` compares them with
what it decided on recorded models.

Source: llama.cpp, llama-quant.cpp (llama_tensor_get_type_impl, tensor_type_fallback,
llama_ftype_get_default_type), llama.h (llama_ftype).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.weights.quantize.roles import Role


@dataclass(frozen=True)
class Shape:
    """The facts of a model that mixes depend on."""

    architecture: str
    """general.architecture."""
    layers: int
    experts: int
    """Experts of a layer; 0 without."""
    queries_per_kv: int
    """Query heads that share a head of K and V."""
    wide_sharing: bool
    """A model of the class of 70 billion parameters, whose V are small beside Q."""
    tied: bool
    """Whether the embedding is the output, too."""
    has_importance: bool


@dataclass(frozen=True)
class Position:
    """The place of a matrix among those of its role."""

    number: int
    """From 0."""
    count: int


Condition = Callable[[Position, Shape], bool]


def always(place: Position, shape: Shape) -> bool:
    """For every matrix."""
    del place, shape
    return True


def outer_and_thirds(place: Position, shape: Shape) -> bool:
    """The first and last eighth of the layers, and every third one between."""
    del shape
    eighth = place.count // 8
    outer = place.number < eighth or place.number >= 7 * place.count // 8
    return outer or (place.number - eighth) % 3 == 2


def _first(part: int) -> Condition:
    return lambda place, shape: place.number < place.count // part


def _below(number: int) -> Condition:
    return lambda place, shape: place.number < number


first_eighth, first_sixteenth = _first(8), _first(16)


def shared_values(place: Position, shape: Shape) -> bool:
    """V is small where four heads or more of Q share it."""
    del place
    return shape.queries_per_kv >= 4


def shared_values_or_experts(place: Position, shape: Shape) -> bool:
    """V is small, too, beside four experts or more."""
    return shared_values(place, shape) or shape.experts >= 4


def middle(place: Position, shape: Shape) -> bool:
    """All but the first and last eighth of the layers."""
    del shape
    return place.count // 8 <= place.number < 7 * place.count // 8


def falcon(place: Position, shape: Shape) -> bool:
    """Falcon's own rules."""
    del place
    return shape.architecture == "falcon"


def eight_experts(place: Position, shape: Shape) -> bool:
    """The mixtures of eight experts, beside which attention is small."""
    del place
    return shape.experts == 8


def with_importance(place: Position, shape: Shape) -> bool:
    """Where importance is given."""
    del place
    return shape.has_importance


def _both(*conditions: Condition) -> Condition:
    return lambda place, shape: all(holds(place, shape) for holds in conditions)


def _not(condition: Condition) -> Condition:
    return lambda place, shape: not condition(place, shape)


Rules = tuple[tuple[Condition, str], ...]


@dataclass(frozen=True)
class Mix:
    """One mix."""

    file_type: int
    """general.file_type."""
    kind: str
    """Of matrices that no rule names."""
    rules: Mapping[Role, Rules] = field(default_factory=dict)
    wide_attention_output: bool = False
    """Whether the output of attention is Q5_K in mixtures of eight experts."""
    stacks: str | None = None
    """Kind of stacks of experts where it is another, as in MXFP4_MOE."""
    output: str = "Q6_K"
    """Of the output, and of an embedding that is the output, too."""
    rules_alone: bool = False
    """Whether `rules` say all: what mixtures of eight experts and models of 70B get, too."""

    def kind_of(self, role: Role, place: Position, shape: Shape) -> str:
        """The kind of a matrix whose rows are whole blocks."""
        if role is Role.OUTPUT or (role is Role.EMBEDDING and shape.tied):
            plain = self.kind == "Q8_0" or shape.architecture == "falcon"
            return "Q8_0" if plain or self.stacks else self.output
        if self.stacks:
            return self.kind
        rules = self.rules.get(role, ())
        kind = next((kind for holds, kind in rules if holds(place, shape)), self.kind)
        if self.rules_alone:
            return kind
        if role in (Role.VALUES, Role.KEYS) and eight_experts(place, shape):
            return "Q8_0"
        bare = eight_experts(place, shape) and not falcon(place, shape)
        if role is Role.ATTENTION_OUTPUT and bare:
            return "Q5_K" if self.wide_attention_output else self.kind
        if role is Role.VALUES and shape.wide_sharing and kind in ("Q3_K", "Q4_K"):
            return "Q5_K"
        return kind


_IQ4: Mapping[Role, Rules] = {
    Role.VALUES: ((shared_values, "Q5_K"),),
    Role.DOWN: ((_both(first_eighth, _not(with_importance)), "Q5_K"),),
}
_TERNARY: Mapping[Role, Rules] = {Role.EMBEDDING: ((always, "Q4_K"),)}


def _two_bits(file_type: int, kind: str, more: str, attention_output: str = "") -> Mix:
    """more: kind of the embedding, of V and of the first down projections."""
    return Mix(file_type, kind, {
        Role.EMBEDDING: ((always, more),),
        Role.VALUES: ((shared_values_or_experts, "Q4_K"), (always, more)),
        Role.KEYS: ((eight_experts, "Q4_K"),),
        Role.DOWN: ((first_eighth, more),),
        Role.ATTENTION_OUTPUT: ((eight_experts, "Q5_K"), (always, attention_output or kind)),
    }, output="Q5_K", rules_alone=True)  # fmt: skip


MIXES: Mapping[str, Mix] = {
    "F32": Mix(0, "F32"),
    "F16": Mix(1, "F16"),
    "BF16": Mix(32, "BF16"),
    "Q8_0": Mix(7, "Q8_0"),
    "Q4_0": Mix(2, "Q4_0", {Role.DOWN: ((_both(first_eighth, with_importance), "Q4_1"),)}),
    "Q4_1": Mix(3, "Q4_1"),
    "Q5_0": Mix(8, "Q5_0", {Role.DOWN: ((_both(first_eighth, with_importance), "Q5_1"),)}),
    "Q5_1": Mix(9, "Q5_1"),
    "Q2_K": Mix(10, "Q2_K", {
        Role.VALUES: ((shared_values, "Q4_K"), (always, "Q3_K")),
        Role.DOWN: ((always, "Q3_K"),),
        Role.ATTENTION_OUTPUT: ((_not(falcon), "Q3_K"),),
    }, wide_attention_output=True),
    "Q2_K_S": Mix(21, "Q2_K", {
        Role.VALUES: ((shared_values, "Q4_K"),),
        Role.DOWN: ((first_eighth, "Q4_K"),),
    }),
    "Q3_K_S": Mix(11, "Q3_K", wide_attention_output=True),
    "Q3_K_M": Mix(12, "Q3_K", {
        Role.VALUES: ((_below(2), "Q5_K"), (always, "Q4_K")),
        Role.DOWN: (
            (first_sixteenth, "Q5_K"), (_not(falcon), "Q4_K"), (outer_and_thirds, "Q4_K"),
        ),
        Role.ATTENTION_OUTPUT: ((_not(falcon), "Q4_K"),),
    }, wide_attention_output=True),
    "Q3_K_L": Mix(13, "Q3_K", {
        Role.VALUES: ((always, "Q5_K"),),
        Role.DOWN: ((falcon, "Q4_K"), (always, "Q5_K")),
        Role.ATTENTION_OUTPUT: ((falcon, "Q4_K"), (always, "Q5_K")),
    }),
    "Q4_K_S": Mix(14, "Q4_K", {
        Role.VALUES: ((_below(4), "Q5_K"),),
        Role.DOWN: ((_both(first_eighth, _not(falcon)), "Q5_K"),),
    }, wide_attention_output=True),
    "Q4_K_M": Mix(15, "Q4_K", {
        Role.VALUES: ((outer_and_thirds, "Q6_K"),),
        Role.DOWN: (
            (_both(falcon, first_sixteenth), "Q6_K"), (_both(falcon, outer_and_thirds), "Q5_K"),
            (_both(_not(falcon), outer_and_thirds), "Q6_K"),
        ),
    }, wide_attention_output=True),
    "Q5_K_S": Mix(16, "Q5_K"),
    "Q5_K_M": Mix(17, "Q5_K", {
        Role.VALUES: ((outer_and_thirds, "Q6_K"),),
        Role.DOWN: ((outer_and_thirds, "Q6_K"),),
    }),
    "Q6_K": Mix(18, "Q6_K"),
    "IQ4_NL": Mix(25, "IQ4_NL", _IQ4, wide_attention_output=True),
    "IQ4_XS": Mix(30, "IQ4_XS", _IQ4, wide_attention_output=True),
    "IQ3_M": Mix(27, "IQ3_S", {
        Role.VALUES: ((always, "Q4_K"),),
        Role.DOWN: ((first_eighth, "Q4_K"), (_both(eight_experts, outer_and_thirds), "Q4_K")),
        Role.ATTENTION_OUTPUT: ((_not(falcon), "Q4_K"),),
    }, wide_attention_output=True),
    "IQ3_S": Mix(
        26, "IQ3_S", {Role.VALUES: ((shared_values, "Q4_K"),)}, wide_attention_output=True
    ),
    "IQ3_XS": Mix(22, "IQ3_S", {
        Role.VALUES: ((shared_values, "Q4_K"),),
        Role.KEYS: ((always, "IQ3_XXS"),),
        Role.QUERIES: ((always, "IQ3_XXS"),),
        Role.GATE: ((middle, "IQ3_XXS"),),
        Role.UP: ((middle, "IQ3_XXS"),),
    }, wide_attention_output=True),
    "IQ3_XXS": Mix(23, "IQ3_XXS", {
        Role.EMBEDDING: ((always, "IQ3_S"),),
        Role.VALUES: ((shared_values, "Q4_K"), (_not(with_importance), "IQ3_S")),
        Role.KEYS: ((always, "IQ2_S"),),
        Role.QUERIES: ((always, "IQ2_S"),),
        Role.DOWN: (
            (with_importance, "IQ3_XXS"), (first_eighth, "Q4_K"), (always, "Q3_K"),
        ),
        Role.ATTENTION_OUTPUT: ((_not(falcon), "IQ3_S"),),
    }, wide_attention_output=True, output="Q5_K"),
    "IQ2_M": _two_bits(29, "IQ2_S", "IQ3_S", "IQ3_S"),
    "IQ2_S": _two_bits(28, "IQ2_XS", "IQ3_S", "IQ3_S"),
    "IQ2_XS": _two_bits(20, "IQ2_XS", "Q2_K"),
    "IQ2_XXS": _two_bits(19, "IQ2_XXS", "Q2_K"),
    "IQ1_M": _two_bits(31, "IQ1_M", "Q2_K", "IQ2_XXS"),
    "IQ1_S": _two_bits(24, "IQ1_S", "Q2_K", "IQ2_XXS"),
    "MXFP4_MOE": Mix(38, "Q8_0", stacks="MXFP4"),
    "TQ1_0": Mix(36, "TQ1_0", _TERNARY),
    "TQ2_0": Mix(37, "TQ2_0", _TERNARY),
    "NVFP4": Mix(39, "NVFP4"),
    "Q1_0": Mix(40, "Q1_0"),
    "Q2_0": Mix(41, "Q2_0", _TERNARY),
}  # fmt: skip
"""By the names llama-quantize has for them; NVFP4 it has as a kind of single tensors alone."""

ALIASES: Mapping[str, str] = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

NARROWER: Mapping[str, str] = {
    "IQ4_XS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL", "IQ2_S": "IQ4_NL",
    "IQ2_XS": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "IQ1_M": "IQ4_NL", "IQ1_S": "IQ4_NL",
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0",
    "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "Q2_0": "Q4_0", "Q1_0": "Q4_0",
    "NVFP4": "IQ4_NL",
}  # fmt: skip
"""The kind of blocks of 32 that is taken where rows are not whole blocks of 256 (or of 64 or 128;
of Q1_0 and NVFP4 llama-quantize makes no file then)."""

UNSAFE_WITHOUT_IMPORTANCE = frozenset({"IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"})
"""Kinds of so few bits that a matrix without importance is of no use, but for embedding and output
(llama-quant.cpp, tensor_requires_imatrix)."""
