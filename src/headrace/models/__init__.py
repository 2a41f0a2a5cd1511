"""Architectures as declarations over ops: `load_model` makes a `Model` of a checkpoint."""

from headrace.models.config import DecoderConfig
from headrace.models.families import FAMILIES
from headrace.models.model import Model
from headrace.models.registry import load_model, read_config, read_shape

__all__ = ["FAMILIES", "DecoderConfig", "Model", "load_model", "read_config", "read_shape"]
