"""The formats of reasoning that are known, most particular first, as in call_formats/."""

from __future__ import annotations

from headrace.answer_formats.call_formats.json_formats import COMMAND_RESPONSE
from headrace.answer_formats.call_syntax import HarmonyCalls, ReasoningFormat, ThinkTags
from headrace.answer_formats.harmony_marks import CHANNEL, MESSAGE

_CALLS_END_REASONING = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<｜tool▁calls▁begin｜>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>",
    "<minimax:tool_call>",
)
"""Marks that no model writes within reasoning, and some write instead of its end."""
_THINK = ThinkTags(begin="<think>", end="</think>", also_ended_by=_CALLS_END_REASONING)

REASONING_FORMATS = (
    ReasoningFormat(name="harmony", tags=HarmonyCalls(), traits=((CHANNEL, MESSAGE),)),
    ReasoningFormat(
        name="gemma4",
        tags=ThinkTags(
            begin="<|channel>thought\n",
            end="<channel|>",
            other_begins=("<|channel>thought", "<|channel>"),
            also_ended_by=("<|tool_call>",),
        ),
        dropped=("<|channel>thought\n<channel|>", "<channel|>"),
        traits=(("<|channel>", "<channel|>"),),
    ),
    ReasoningFormat(
        name="kimi_k3",
        tags=ThinkTags(
            begin="<|open|>think<|sep|>",
            end="<|close|>think<|sep|>",
            also_ended_by=("<|open|>response<|sep|>", "<|open|>tools<|sep|>"),
        ),
        wraps=(("<|open|>response<|sep|>", "<|close|>response<|sep|>"),),
        dropped=("<|close|>message<|sep|>",),
        traits=(("<|open|>", "<|sep|>"),),
    ),
    ReasoningFormat(
        name="inkling",
        tags=ThinkTags(
            begin="<|content_thinking|>",
            end="<|end_message|>",
            other_begins=("<|message_model|><|content_thinking|>",),
            other_ends=("<|content_model_end_sampling|>",),
        ),
        wraps=(
            ("<|content_text|>", "<|end_message|>"),
            ("<|message_model|><|content_text|>", "<|end_message|>"),
        ),
        dropped=("<|message_model|>", "<|content_model_end_sampling|>"),
        traits=(("<|content_thinking|>",),),
    ),
    ReasoningFormat(
        name="mistral",
        tags=ThinkTags(begin="[THINK]", end="[/THINK]"),
        traits=(("[THINK]",),),
    ),
    ReasoningFormat(
        name="command",
        tags=ThinkTags(
            begin="<|START_THINKING|>",
            end="<|END_THINKING|>",
            also_ended_by=("<|START_ACTION|>", "<|START_RESPONSE|>", "<|START_TEXT|>"),
        ),
        wraps=(COMMAND_RESPONSE[:2], COMMAND_RESPONSE[2:]),
        traits=(("<|START_THINKING|>",),),
    ),
    ReasoningFormat(
        name="apriel",
        tags=ThinkTags(begin="Here are my reasoning steps:", end="[BEGIN FINAL RESPONSE]"),
        dropped=("[END FINAL RESPONSE]",),
        traits=(("[BEGIN FINAL RESPONSE]",),),
    ),
    ReasoningFormat(
        name="seed",
        tags=ThinkTags(
            begin="<seed:think>", end="</seed:think>", also_ended_by=("<seed:tool_call>",)
        ),
        traits=(("<seed:think>",),),
    ),
    ReasoningFormat(
        name="apertus",
        tags=ThinkTags(begin="<|inner_prefix|>", end="<|inner_suffix|>"),
        traits=(("<|inner_prefix|>",),),
    ),
    ReasoningFormat(
        name="minimax_m3",
        tags=ThinkTags(begin="<mm:think>", end="</mm:think>"),
        traits=(("<mm:think>",),),
    ),
    ReasoningFormat(
        name="k2_horizon",
        tags=ThinkTags(
            begin="<ifm|think>",
            end="</ifm|think>",
            other_begins=("<ifm|think_fast>", "<ifm|think_faster>"),
            other_ends=("</ifm|think_fast>", "</ifm|think_faster>"),
            also_ended_by=("<ifm|tool_calls>",),
        ),
        traits=(("<ifm|think",),),
    ),
    ReasoningFormat(
        name="plamo3",
        tags=ThinkTags(
            begin="<|plamo:begin_think:plamo|>",
            end="<|plamo:end_think:plamo|>",
            also_ended_by=("<|plamo:begin_tool_requests:plamo|>",),
        ),
        traits=(("<|plamo:begin_think:plamo|>",),),
    ),
    ReasoningFormat(
        name="hunyuan",
        tags=_THINK,
        wraps=(("<answer>", "</answer>"),),
        traits=(("<think>", "<answer>"),),
    ),
    ReasoningFormat(
        name="granite",
        tags=ThinkTags(
            begin="<think>",
            end="</think>",
            other_begins=("Here is my thought process:", "Here's my thought process:"),
            other_ends=("Here is my response:", "Here's my response:"),
        ),
        wraps=(("<response>", "</response>"),),
        traits=(("<think>", "<response>"), ("Here is my thought process:",)),
    ),
    ReasoningFormat(name="think", tags=_THINK, traits=(("<think>",), ("</think>",))),
    ReasoningFormat(
        name="think_assumed",
        tags=ThinkTags(
            begin="<think>", end="</think>", also_ended_by=_CALLS_END_REASONING, assumed=True
        ),
    ),
)
