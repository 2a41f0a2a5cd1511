"""Rules that reject an answer without another model's judgement."""

from __future__ import annotations

from headrace.gateway.serving.composed.schema_check import fits
from headrace.gateway.settings.cascade import AnswerRuleSettings
from headrace.protocol.neutral.call import ChatCall, Tool
from headrace.protocol.neutral.part import Refusal, Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

# How models begin a refusal. Only beginnings count: an answer may well speak of refusing.
_REFUSALS = (
    "i'm sorry, but i can",
    "i am sorry, but i can",
    "i'm sorry, i can",
    "sorry, but i can",
    "i apologize, but i",
    "i can't help with",
    "i cannot help with",
    "i can't assist with",
    "i cannot assist with",
    "i'm unable to",
    "i am unable to",
    "i'm not able to",
    "i am not able to",
    "i cannot provide",
    "i can't provide",
    "i don't know",
    "i do not know",
    "i'm not sure",
    "i am not sure",
    "as an ai language model",
    "as an ai, i",
)
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'"})


def objection(reply: ChatReply, call: ChatCall, rules: AnswerRuleSettings) -> str | None:
    """Why the answer is rejected, in a few words; None if no rule objects."""
    if not reply.choices:
        return "no answer"
    objections = (_of_choice(choice, call, rules) for choice in reply.choices)
    return next((reason for reason in objections if reason is not None), None)


def _of_choice(choice: Choice, call: ChatCall, rules: AnswerRuleSettings) -> str | None:
    text = "".join(part.text for part in choice.parts if isinstance(part, Text)).strip()
    calls = [part for part in choice.parts if isinstance(part, ToolCall)]
    if rules.length and choice.finish == "length":
        return "cut off by the limit on tokens"
    if choice.finish == "content_filter":
        return "ended by a content filter"
    if rules.refusals:
        refused = any(isinstance(part, Refusal) for part in choice.parts)
        begins = text[:200].translate(_APOSTROPHES).casefold()
        more = tuple(phrase.casefold() for phrase in rules.refusal_phrases)
        if refused or begins.startswith((*_REFUSALS, *more)):
            return "a refusal"
    if rules.tool_arguments and (problem := _bad_call(calls, call)):
        return problem
    if calls:
        return None
    if len(text) < rules.min_chars:
        return f"{len(text)} characters"
    output = call.output
    if rules.json and output is not None and output.kind != "text":
        schema = output.schema if output.kind == "schema" else None
        if not fits(text, schema):
            return "not the requested JSON"
    return None


def _bad_call(calls: list[ToolCall], call: ChatCall) -> str | None:
    schemas = {tool.name: tool.parameters for tool in call.tools if isinstance(tool, Tool)}
    hosted = len(schemas) < len(call.tools)
    for tool_call in calls:
        if tool_call.name not in schemas:
            if hosted:
                continue
            return "a call of an unknown tool"
        if not fits(tool_call.arguments or "{}", schemas[tool_call.name]):
            return f"arguments that {tool_call.name[:60]} does not accept"
    return None
