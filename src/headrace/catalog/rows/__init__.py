"""The kinds of rows there are, by name."""

from __future__ import annotations

from headrace.catalog.rows.constant import Constant
from headrace.catalog.rows.decision import Decision
from headrace.catalog.rows.hardware import Hardware
from headrace.catalog.rows.measurement import Measurement
from headrace.catalog.rows.model import Model
from headrace.catalog.rows.price import Price
from headrace.catalog.rows.provider import Provider
from headrace.catalog.rows.quantization import Quantization
from headrace.catalog.rows.row import Row
from headrace.catalog.rows.rule import Rule
from headrace.catalog.rows.runtime import Runtime
from headrace.catalog.rows.technique import Technique

__all__ = [
    "KINDS", "Constant", "Decision", "Hardware", "Measurement", "Model", "Price", "Provider",
    "Quantization", "Row", "Rule", "Runtime", "Technique",
]  # fmt: skip

KINDS: dict[str, type[Row]] = {
    "model": Model,
    "hardware": Hardware,
    "quantization": Quantization,
    "runtime": Runtime,
    "provider": Provider,
    "price": Price,
    "technique": Technique,
    "measurement": Measurement,
    "constant": Constant,
    "decision": Decision,
    "rule": Rule,
}
