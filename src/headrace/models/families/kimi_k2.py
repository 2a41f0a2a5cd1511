"""Kimi K2, and the text part of K2.5 and later: DeepSeek-V3 with other numbers, and no groups.

Its folders name a type of their own and DeepSeek-V3's class, whose arithmetic it has.
Source: arXiv 2507.20534; published configs.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.families.deepseek_v3 import DeepseekV3, Defaults, read_deepseek
from headrace.weights.model_config.config_reader import ConfigReader


class KimiK2(DeepseekV3):
    """DeepseekV3ForCausalLM, under the type of Moonshot's folders."""

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        interleaved = reader.get("rope_interleave", bool, True)
        return read_deepseek(reader, "kimi_k2", Defaults(), interleaved=interleaved)
