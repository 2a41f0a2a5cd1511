"""Bytes of the weights: exactly from a header, else parameters times the bits of a storage kind."""

from __future__ import annotations

from headrace.catalog import Catalog
from headrace.catalog.rows import Quantization
from headrace.errors import ConfigError
from headrace.plan.machine.hardware_memory import constant
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.quantity import Input, Quantity, input_of_fact

# Kinds of these families leave embedding and head at 16 bits, as what is on the hub does.
_WIDE_ENDS = ("gpu",)
_WIDE_BITS = 16.0


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
    wide = _wide_parts(shape, row)
    wider = sum(wide.values())
    value = round(((shape.parameters.total - wider) * bits + wider * _WIDE_BITS) / 8)
    inputs = [
        _parameters(shape),
        input_of_fact(row, path, row.facts[path]),
    ]
    error = 0.0
    if row.family != "float" and catalog is not None:
        error, error_input = constant(catalog, _error_id(row, stated))
        inputs.append(error_input)
    inputs += [
        Input(f"{part}, at 16 bits", count, "parameters", shape.origin, "exact")
        for part, count in wide.items()
    ]
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


def default_kind(shape: ModelShape) -> str:
    """The kind, by id, of weights of which no header is read and no kind is chosen.

    Raises ConfigError for a checkpoint that is published in a kind that the catalog does not have.
    """
    published = shape.published
    if published is None:
        return "bf16"
    if not published.id:
        raise ConfigError(
            f"{shape.name} is published in a storage kind that is not known here "
            f"({published.stated}); name one with --quantization (`headrace catalog list "
            "quantization`)"
        )
    return published.id


def _wide_parts(shape: ModelShape, row: Quantization) -> dict[str, int]:
    """Parameters that stay at 16 bits, by part."""
    if row.family not in _WIDE_ENDS:
        return {}
    parts, published = shape.parameters, shape.published
    wide = {"embedding and head": parts.embedding + parts.head}
    if published is not None and published.id == row.id:
        counts = {"attention": parts.attention, "ffn": parts.ffn}
        wide |= {part: counts[part] for part in sorted(published.wide)}
    return {part: count for part, count in wide.items() if count}


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
