"""Requests to /completion and /infill.

A field is honoured where it means here exactly what it means there; the others are in `fields`.
Sampling steps come in llama-server's order, and temperature last.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.errors import RequestError, shown
from headrace.protocol.openai.completions import MAX_PROMPTS
from headrace.protocol.openai.sampling import TokenId

PROMPT_STRING = "prompt_string"
MAX_RESPONSE_FIELDS = 64
MAX_EXTRA_CHUNKS = 1024

ORDER = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""llama-server's order of the steps that there are here."""
NEUTRAL: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
"""What a step has no effect with."""
_OTHER_STEPS = frozenset({"dry", "top_n_sigma", "typ_p", "typical_p", "xtc", "infill"})

PredictedTokens = Annotated[int, Meta(ge=-1)]
Milliseconds = Annotated[float, Meta(ge=0)]


class NativeFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that both endpoints honour."""

    model: Annotated[
        str | None, Meta(description="A served name; may be omitted, as one model is served.")
    ] = None
    n_predict: Annotated[
        PredictedTokens, Meta(description="Most tokens to generate; -1: to the end of the context.")
    ] = -1
    n_cmpl: Annotated[
        Annotated[int, Meta(ge=1, le=128)],
        Meta(description="Answers per prompt, each with a random stream of its own."),
    ] = 1
    temperature: Annotated[
        float | None,
        Meta(
            description="0 is greedy. Default of this and of the three below: the model's own "
            "(`--generation-config`); where it has none, no effect."
        ),
    ] = None
    top_k: Annotated[
        int | None, Meta(description="Keep the k likeliest tokens; 0 and less keep all.")
    ] = None
    top_p: Annotated[
        float | None, Meta(description="Keep the likeliest tokens up to this mass.")
    ] = None
    min_p: Annotated[
        float | None,
        Meta(description="Keep tokens at least this likely relative to the likeliest."),
    ] = None
    samplers: Annotated[
        list[str] | None,
        Meta(
            description="The steps applied to the logits, in this order. Default: `penalties`, "
            "`top_k`, `top_p`, `min_p`, `temperature`. A step that is omitted is not applied; "
            "llama-server's others are accepted and are off."
        ),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        Meta(
            description="`repetition_penalty`; other than 1 only with `repeat_last_n: -1`, as all "
            "of prompt and output counts."
        ),
    ] = None
    repeat_last_n: Annotated[
        int | None, Meta(description="Tokens that `repeat_penalty` looks back on: -1, all.")
    ] = None
    seed: Annotated[
        int | None, Meta(description="Seed of the request's random stream; -1: a random one.")
    ] = None
    stop: Annotated[str | list[str], Meta(description="String or strings that end the text.")] = (
        msgspec.field(default_factory=list)
    )
    ignore_eos: Annotated[
        bool, Meta(description="Go on after the model's own end-of-text tokens.")
    ] = False
    speculation: Annotated[
        bool,
        Meta(
            description="false: compute no guessed tokens ahead; the answer is the same in either "
            "case. A field of headrace."
        ),
    ] = True
    logit_bias: Annotated[
        list[tuple[TokenId, float | bool]] | dict[str, float | bool],
        Meta(
            description="Pairs of a token id and what is added to its logit, or an object of them; "
            "`false`: never."
        ),
    ] = msgspec.field(default_factory=list)
    grammar: Annotated[str | None, Meta(description="Grammar of the answer in GBNF.")] = None
    json_schema: Annotated[Any, Meta(description="JSON schema of the answer.")] = None
    n_probs: Annotated[
        Annotated[int, Meta(ge=0)],
        Meta(
            description="Add `completion_probabilities`: the log probability of each token and "
            "those of this many of the likeliest (at most `--max-logprobs`)."
        ),
    ] = 0
    stream: Annotated[bool, Meta(description="Send server-sent events as tokens are made.")] = False
    return_tokens: Annotated[
        bool, Meta(description="Give the ids of the generated tokens in `tokens`.")
    ] = False
    return_progress: Annotated[
        bool,
        Meta(description="Report in the stream how much of a long prompt is computed."),
    ] = False
    timings_per_token: Annotated[
        bool, Meta(description="Add `timings` to every event, with the counts so far.")
    ] = False
    t_max_predict_ms: Annotated[
        Milliseconds | None,
        Meta(
            description="Milliseconds after which the request ends with what it has; 0: no limit. "
            "Counted from its arrival."
        ),
    ] = None
    response_fields: Annotated[
        list[str],
        Meta(
            max_length=MAX_RESPONSE_FIELDS,
            description="Only these fields of the reply; `a/b` is the field `b` of `a`.",
        ),
    ] = msgspec.field(default_factory=list)


class CompletionBody(NativeFields, frozen=True, kw_only=True):
    """POST /completion."""

    prompt: Annotated[
        Any,
        Meta(
            description="String, list of token ids, list of ids and strings mixed, or a list of "
            f"several such prompts (at most {MAX_PROMPTS}). Of a mixed prompt only a string at the "
            "beginning gets the tokenizer's own (BOS) tokens."
        ),
    ]


class ExtraChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Text of another file."""

    text: str
    filename: str = "tmp"


class InfillBody(NativeFields, frozen=True, kw_only=True):
    """POST /infill."""

    input_prefix: Annotated[str, Meta(description="The text before the gap.")]
    input_suffix: Annotated[str, Meta(description="The text after the gap.")]
    prompt: Annotated[
        str, Meta(description="Text that the filling begins with, after the prefix.")
    ] = ""
    input_extra: Annotated[
        list[ExtraChunk],
        Meta(
            max_length=MAX_EXTRA_CHUNKS,
            description="Texts of other files, each `text` and `filename`.",
        ),
    ] = msgspec.field(default_factory=list)


class PromptPart(msgspec.Struct, frozen=True):
    """A part of a prompt: a text, or ids."""

    text: str = ""
    token_ids: tuple[int, ...] = ()


def check_native(fields: NativeFields) -> None:
    """Rules over several fields; raises RequestError."""
    if fields.repeat_penalty not in (None, 1) and fields.repeat_last_n != -1:
        raise RequestError(
            "repeat_penalty: here it counts all of prompt and output, which is repeat_last_n -1; "
            "send that too, or omit it",
            param="repeat_penalty",
            code="unsupported",
        )
    if fields.return_progress and not fields.stream:
        raise RequestError(
            "return_progress: only allowed when `stream` is true; omit it, or stream",
            param="return_progress",
        )
    steps_of(fields)


def check_completion_body(body: CompletionBody) -> None:
    """As `check_native`, and the prompt's form."""
    check_native(body)
    native_prompts(body.prompt)


def steps_of(fields: NativeFields) -> tuple[list[str], dict[str, Any]]:
    """The steps in their order, and neutral values of those that are not applied."""
    if fields.samplers is None:
        return list(ORDER), {}
    steps: list[str] = []
    for index, name in enumerate(fields.samplers):
        if name in _OTHER_STEPS:
            continue
        if name not in ORDER or name in steps:
            raise RequestError(
                f"samplers[{index}]: {shown(name)} is not a step, or comes twice; the steps: "
                f"{', '.join(ORDER)}",
                param=f"samplers[{index}]",
            )
        steps.append(name)
    return steps, {name: value for name, value in NEUTRAL.items() if name not in steps}


def native_prompts(prompt: Any) -> list[tuple[PromptPart, ...]]:
    """The prompts, each in parts. A list of strings, or with a list in it, is several prompts; one
    with ids in it is one. Raises RequestError naming the part at fault."""
    if isinstance(prompt, list) and not any(_is_id(item) for item in prompt):
        if not prompt:
            raise RequestError("prompt: the list is empty; give at least one", param="prompt")
        if len(prompt) > MAX_PROMPTS:
            raise RequestError(
                f"prompt: {len(prompt)} prompts given, at most {MAX_PROMPTS} are allowed; "
                "send several requests",
                param="prompt",
            )
        return [_parts(item, f"prompt[{index}]") for index, item in enumerate(prompt)]
    return [_parts(prompt, "prompt")]


def _parts(prompt: Any, param: str) -> tuple[PromptPart, ...]:
    if isinstance(prompt, dict):
        return (PromptPart(_prompt_string(prompt, param)),)
    if isinstance(prompt, str):
        return (PromptPart(prompt),)
    if not isinstance(prompt, list):
        raise RequestError(
            f"{param}: expected a string or a list of token ids and strings, got {shown(prompt)}",
            param=param,
        )
    if not prompt:
        raise RequestError(f"{param}: it has no tokens; give at least one", param=param)
    parts: list[PromptPart] = []
    ids: list[int] = []
    for index, item in enumerate(prompt):
        if _is_id(item):
            ids.append(item)
        elif isinstance(item, str):
            if ids:
                parts.append(PromptPart(token_ids=tuple(ids)))
                ids = []
            parts.append(PromptPart(item))
        else:
            raise RequestError(
                f"{param}[{index}]: expected a token id or a string, got {shown(item)}",
                param=f"{param}[{index}]",
            )
    if ids:
        parts.append(PromptPart(token_ids=tuple(ids)))
    return tuple(parts)


def _prompt_string(prompt: dict[str, Any], param: str) -> str:
    if prompt.get("multimodal_data"):
        raise RequestError(
            f"{param}.multimodal_data: images and sound are not supported; send text",
            param=f"{param}.multimodal_data",
            code="unsupported",
        )
    text = prompt.get(PROMPT_STRING)
    if not isinstance(text, str):
        raise RequestError(f"{param}.{PROMPT_STRING}: expected a string", param=param)
    return text


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0
