"""What a caller hands over in Python, made what the engine's messages hold.

A message from the wire is typed by its decoding. Objects of a caller are not: a wrong type would
fail deep in a step, or count as something else (True as 1). Here it is a RequestError that names
the argument, its value and what is expected (`values`). Ranges, lengths and ids of the model are
the matter of `limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.engine.params import MODEL_DEFAULTS, SAMPLERS, RequestParams, SamplingParams
from headrace.engine.sampling.defaults import SamplingDefaults, completed
from headrace.errors import RequestError
from headrace.offline.params import FIELDS
from headrace.offline.results import GenerationResult, ToolCall
from headrace.offline.structured import grammar_of
from headrace.offline.thinking import budget_tokens
from headrace.offline.values import TOKEN_IDS, ids, items, text, unexpected
from headrace.structured.grammar_checks import GrammarChecks


def prompts(value: object) -> list[str | list[int]]:
    """One text, or several texts and lists of token ids."""
    if isinstance(value, str):
        return [value]
    return [
        prompt(item, f"prompts[{index}]")
        for index, item in enumerate(
            items(
                value,
                "prompts",
                _prompt_words(value, f"a text, or a list of texts or of {TOKEN_IDS}"),
            )
        )
    ]


def prompt(value: object, param: str = "prompt") -> str | list[int]:
    """A text or a list of token ids."""
    if isinstance(value, str):
        return value
    return ids(value, param, _prompt_words(value, f"a text or {TOKEN_IDS}"))


def _prompt_words(value: object, expected: str) -> str:
    """What a prompt must be; of vLLM's mapping ({"prompt": ...}) also what to give of it."""
    keys = ("prompt", "prompt_token_ids")
    key = next((key for key in keys if isinstance(value, Mapping) and key in value), None)
    return expected if key is None else f"{expected}: give the value of {key!r} alone"


def params_for(
    value: object, num_prompts: int, defaults: SamplingDefaults, checks: GrammarChecks
) -> list[SamplingParams]:
    """The parameters of each prompt, from one for all, one per prompt, or None for the defaults."""
    if value is None or isinstance(value, RequestParams):
        return [sampling_params(value, defaults, checks)] * num_prompts
    given = items(value, "params", "SamplingParams, a list of them (one per prompt) or None")
    if len(given) != num_prompts:
        raise RequestError(
            f"params has {len(given)} entries for {num_prompts} prompts; give one, or one each",
            param="params",
        )
    each = []
    for index, params in enumerate(given):
        if not isinstance(params, RequestParams):
            raise unexpected(f"params[{index}]", params, "SamplingParams")
        each.append(sampling_params(params, defaults, checks, f"params[{index}]."))
    return each


def sampling_params(
    value: object, defaults: SamplingDefaults, checks: GrammarChecks, prefix: str = ""
) -> SamplingParams:
    """`value` with every field of its declared type; what it leaves out is the model's.

    defaults: the model's. checks: of grammars; one that does not compile is refused here. prefix:
    put before the names of fields in errors.
    """
    if value is None:
        return SamplingParams(**completed(dict.fromkeys(MODEL_DEFAULTS), defaults, SAMPLERS))
    check_params(value)
    fields: dict[str, Any] = {
        name: convert(getattr(value, name), prefix + name) for name, convert in FIELDS.items()
    }
    structured = getattr(value, "structured_outputs", None)  # the engine's own type has none
    grammar = fields["grammar"] = grammar_of(structured, fields["grammar"], prefix)
    if grammar is not None:
        name = "grammar" if structured is None else "structured_outputs"
        checks.check(grammar, prefix + name)
    given = {name: fields.pop(name) for name in MODEL_DEFAULTS}
    return SamplingParams(**fields, **completed(given, defaults, fields["samplers"]))


def thinking_tokens(value: object, num_prompts: int) -> list[int | None]:
    """The budget of reasoning of each prompt, from parameters as `params_for` takes them."""
    if value is None or isinstance(value, RequestParams):
        return [thinking_tokens_of(value)] * num_prompts
    given = items(value, "params", "a list of SamplingParams")
    return [thinking_tokens_of(params, f"params[{index}].") for index, params in enumerate(given)]


def thinking_tokens_of(params: object, prefix: str = "") -> int | None:
    """The budget of reasoning that parameters name; None for none."""
    budget = getattr(params, "thinking_token_budget", None)  # the engine's own type has none
    return budget_tokens(budget, getattr(params, "thinking", None), prefix)


def check_params(value: object) -> None:
    """Raise RequestError for parameters of one request that are of another type."""
    if value is not None and not isinstance(value, RequestParams):
        raise unexpected("params", value, "SamplingParams or None")


def stop_strings(value: object) -> tuple[str, ...]:
    """The stop strings of a request; a lone one counts as a list of one."""
    if isinstance(value, str):
        return (value,)
    given = items(value, "stop", "a text or a list of texts")
    return tuple(text(stop, f"stop[{index}]") for index, stop in enumerate(given))


def messages(value: object) -> list[Any]:
    """The messages of a conversation; what each must hold is the chat template's matter.

    An answer of `chat` may stand for its message, and a ToolCall for a call of one.
    """
    words = "a list of messages, each with role and content"
    return [_message(item) for item in items(value, "messages", words)]


def _message(value: object) -> object:
    if isinstance(value, GenerationResult):
        return value.message
    calls = value.get("tool_calls") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(calls, (list, tuple)):
        return value
    written = [call.in_message if isinstance(call, ToolCall) else call for call in calls]
    return {**value, "tool_calls": written}
