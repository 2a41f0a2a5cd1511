"""Statements of INT8 as SGLang has them: a scale for each row, or for each block.

Sources: SGLang layers/quantization (w8a8_int8.py, blockwise_int8.py), published configs.
"""

from __future__ import annotations

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.reading import activations_of, block_of, unquantised
from headrace.weights.storage.storage import Storage, WeightFormat


def rows_of_int8(stated: ConfigReader, method: str) -> Storage:
    """Of w8a8_int8: rows of weights and of activations have a scale each."""
    stated.unused("is_dynamic", "packed_modules_mapping", "activation_scheme")
    stored = WeightFormat("int", 8, "channel", activations="dynamic", rounds_rows=True)
    return Storage(method, stored, unquantised=unquantised(stated))


def blocks_of_int8(stated: ConfigReader, method: str) -> Storage:
    """Of blockwise_int8: blocks of weights, and runs of activations of their width.

    Raises UnsupportedModelError where no size of blocks is stated.
    """
    block = block_of(stated, "weight_block_size")
    if block is None:
        stated.refuse("weight_block_size", None, "rows and columns of a block")
    stored = WeightFormat("int", 8, "block", *block, activations=activations_of(stated))
    return Storage(method, stored, unquantised=unquantised(stated))
