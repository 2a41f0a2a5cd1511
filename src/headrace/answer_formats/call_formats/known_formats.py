"""The formats of tool calls that are known, most particular first.

A template that writes a conversation's calls has the marks of its model's format in it. The order
is that of the choice: marks that only one format has come before shared ones.
"""

from __future__ import annotations

from headrace.answer_formats.call_formats.json_formats import JSON_FORMATS
from headrace.answer_formats.call_formats.other_formats import OTHER_FORMATS
from headrace.answer_formats.call_formats.tagged_formats import TAGGED_FORMATS

_BY_NAME = {format.name: format for format in (*TAGGED_FORMATS, *JSON_FORMATS, *OTHER_FORMATS)}
_ORDER = (
    "harmony dsml gemma4 functiongemma kimi_k3 kimi_k2 step3 deepseek seed_oss minimax_m3 "
    "minimax_m2 dots k2_horizon hunyuan_v3 glm minicpm5 functionary_v3_1 functionary_v3_2 "
    "qwen3_coder command_r7b command_r mistral olmo3 lfm2 apertus plamo3 longcat "
    "internlm2 inkling gigachat3 granite_20b granite phi4 nemotron minimax hermes llama4 "
    "pythonic llama3_json xlam generic_json"
)

CALL_FORMATS = tuple(_BY_NAME[name] for name in _ORDER.split())
