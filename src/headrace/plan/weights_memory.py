"""Bytes of the weights: exactly from a header, else parameters times the bits of a storage kind."""

from __future__ import annotations

from headrace.catalog import Catalog
from headrace.catalog.rows import Quantization
from headrace.errors import ConfigError
from headrace.plan.hardware_memory import constant
from headrace.plan.model_shape import ModelShape
from headrace.plan.quantity import Input, Quantity, input_of_fact

# Kinds of these families leave embedding and head at 16 bits, as what is on the hub does.
_WIDE_ENDS = ("gpu",)
_END_BITS = 16.0


def weights_quantity(
    shape: ModelShape, quantization: Quantization | None, catalog: Catalog | None = None
) -> Quantity:
    """Bytes of all weights on all devices together, without copies.

    quantization: None takes the header's own tensors, exactly. catalog: of the errors that make
    the band (constants weights-error-…); without it there is none. Raises ConfigError where there
    is no header, or no bits are known of the kind.
    """
    if quantization is None:
        return _of_header(shape)
    row = quantization
    stated = _file_bits(shape, row)
    path = "bits_per_weight" if stated is None else f"file_bits_per_weight.{stated}"
    bits = row.bits_per_weight if stated is None else row.file_bits_per_weight[stated]
    if bits is None:
        raise ConfigError(
            f"bits_per_weight of {row.name} is not known: it is a method, or varies by model; "
            "choose a storage kind (`headrace catalog list quantization`)"
        )
    parts = shape.parameters
    ends = parts.embedding + parts.head if row.family in _WIDE_ENDS else 0
    value = round(((parts.total - ends) * bits + ends * _END_BITS) / 8)
    inputs = [
        _parameters(shape),
        input_of_fact(row, path, row.facts[path]),
    ]
    error = 0.0
    if row.family != "float" and catalog is not None:
        error, error_input = constant(catalog, _error_id(row, stated))
        inputs.append(error_input)
    if ends:
        inputs.append(
            Input("embedding and head, at 16 bits", ends, "parameters", shape.origin, "exact")
        )
    return Quantity(
        id="weights",
        name=f"weights, {row.name}",
        value=value,
        unit="byte",
        formula="F6",
        inputs=tuple(inputs),
        low=value * (1 - error),
        high=value * (1 + error),
    )


def _error_id(row: Quantization, stated: str | None) -> str:
    """A mix differs by model, a kind of its own only by norms and the like."""
    if row.family != "gguf-mix":
        return "weights-error-kind"
    return "weights-error-mix" if stated is None else "weights-error-file"


def _of_header(shape: ModelShape) -> Quantity:
    if shape.weight_bytes is None:
        raise ConfigError(
            f"{shape.name}: a {shape.source} does not state how weights are stored; choose "
            "with --quantization"
        )
    inputs = tuple(
        Input(f"tensors of {kind}", size, "byte", shape.origin, "exact")
        for kind, size in shape.weight_bytes.items()
    )
    kinds = ", ".join(shape.weight_bytes)
    return Quantity(
        "weights", f"weights as stored ({kinds})", sum(shape.weight_bytes.values()), "byte", "M1",
        inputs,
    )  # fmt: skip


def _parameters(shape: ModelShape) -> Input:
    return Input(
        "parameters", shape.parameters.total, "parameters", shape.origin, "exact", shape.as_of
    )


def _file_bits(shape: ModelShape, row: Quantization) -> str | None:
    """The model under which the row has bits of a real file of this very model."""
    name = shape.origin.removeprefix("catalog model ")
    return name if name in row.file_bits_per_weight else None
