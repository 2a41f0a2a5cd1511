"""What makes an answer no good without asking anybody."""

from __future__ import annotations

from headrace.gateway.serving.composed.schema_check import fits
from headrace.gateway.settings.cascade import AnswerRuleSettings
from headrace.protocol.neutral.call import ChatCall, Tool
from headrace.protocol.neutral.part import Refusal, Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

# How models begin that do not answer. Only beginnings count: an answer may well speak of refusing.
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
    """Why it is no good, in a few words; None if nothing speaks against it."""
    if not reply.choices:
        return "no answer in it"
    found = (_of_choice(one, call, rules) for one in reply.choices)
    return next((one for one in found if one is not None), None)


def _of_choice(choice: Choice, call: ChatCall, rules: AnswerRuleSettings) -> str | None:
    text = "".join(one.text for one in choice.parts if isinstance(one, Text)).strip()
    calls = [one for one in choice.parts if isinstance(one, ToolCall)]
    if rules.length and choice.finish == "length":
        return "cut off by the most tokens"
    if choice.finish == "content_filter":
        return "ended by a content filter"
    if rules.refusals:
        refused = any(isinstance(one, Refusal) for one in choice.parts)
        begins = text[:200].translate(_APOSTROPHES).casefold()
        more = tuple(one.casefold() for one in rules.refusal_phrases)
        if refused or begins.startswith((*_REFUSALS, *more)):
            return "a refusal"
    if rules.tool_arguments and (said := _bad_call(calls, call)):
        return said
    if calls:
        return None
    if len(text) < rules.min_chars:
        return f"{len(text)} characters"
    output = call.output
    if rules.json and output is not None and output.kind != "text":
        schema = output.schema if output.kind == "schema" else None
        if not fits(text, schema):
            return "not the JSON asked for"
    return None


def _bad_call(calls: list[ToolCall], call: ChatCall) -> str | None:
    schemas = {one.name: one.parameters for one in call.tools if isinstance(one, Tool)}
    hosted = len(schemas) < len(call.tools)
    for one in calls:
        if one.name not in schemas:
            if hosted:
                continue
            return "a call of a tool that there is not"
        if not fits(one.arguments or "{}", schemas[one.name]):
            return f"arguments that {one.name[:60]} does not take"
    return None
