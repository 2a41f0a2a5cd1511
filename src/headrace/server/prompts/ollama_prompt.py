"""Prompts of Ollama's /api/generate that are more than one turn of the user's.

`raw`: the text is the prompt, as it stands. `suffix`: what stands before it is asked for.
`context`: ids of a conversation so far, as an earlier reply gave them, which the turn follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from headrace.conversation.answer_rules import AnswerRules
from headrace.engine.limits import check_token_ids
from headrace.errors import RequestError, shown
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.server.model.served import ServedModel
from headrace.server.prompts.bad_words import bad_word_ids
from headrace.server.prompts.chat_prompt import MakePrompt, RenderedRequest, rendered_request
from headrace.server.prompts.fill_in import fill_in_marks, fill_in_prompt
from headrace.server.prompts.plan import EndpointOptions
from headrace.server.prompts.prompt import Prompt, encoded, tokenize

FIELDS = frozenset({"raw", "suffix", "context", "template"})
"""Those of a call that are read here."""

_PARAM = "prompt"

_TYPES: Mapping[str, tuple[type, str]] = {
    "raw": (bool, "true or false"),
    "suffix": (str, "a string"),
    "template": (str, "a string"),
    "context": (list, "a list of token ids"),
}


def with_turn(call: ChatCall) -> ChatCall:
    """The call with a turn where it has only what follows the text.

    Raises RequestError for a field that is not what it must be.
    """
    for name, (kind, wanted) in _TYPES.items():
        value = call.extra.get(name)
        if value is not None and not isinstance(value, kind):
            raise RequestError(f"{name}: {shown(value)} is not {wanted}", param=name)
    context = call.extra.get("context") or ()
    if not all(type(token) is int and token >= 0 for token in context):
        raise RequestError(
            "context: it must be the token ids that an earlier reply ended with", param="context"
        )
    if call.messages or not call.extra.get("suffix"):
        return call
    turn = Message(role="user", parts=(Text(text=""),))
    return msgspec.structs.replace(call, messages=(turn,))


def prompt_of(call: ChatCall) -> MakePrompt | None:
    """What makes the prompt of a call; None where its turn is the prompt.

    call: as `with_turn` has it. Raises RequestError for a field that is not possible, or not
    beside another.
    """
    extra = call.extra
    if extra.get("template"):
        raise RequestError(
            "template: a template in Go's notation is not supported; omit it to take the model's "
            "own, or send the whole prompt with raw: true",
            param="template",
            code="unsupported",
        )
    raw, suffix, context = extra.get("raw"), extra.get("suffix"), extra.get("context")
    _check_alone(call)
    text = "".join(part.text for part in call.messages[-1].parts if isinstance(part, Text))
    if raw:
        return _raw(text)
    if suffix:
        return _fill_in(text, suffix)
    return _after(context) if context else None


def _check_alone(call: ChatCall) -> None:
    given = [name for name in ("raw", "suffix", "context") if call.extra.get(name)]
    if call.instructions and given and given[0] != "context":
        given.append("system")
    if len(given) > 1:
        raise RequestError(
            f"{given[1]}: not possible beside {given[0]}; omit one of them", param=given[1]
        )


def _raw(text: str) -> MakePrompt:
    def make_prompt(
        model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions
    ) -> RenderedRequest:
        ids = tokenize(model, text, add_special_tokens=True, param=_PARAM, must_fit=True)
        return _as_it_stands(model, request, ids)

    return make_prompt


def _fill_in(prefix: str, suffix: str) -> MakePrompt:
    def make_prompt(
        model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions
    ) -> RenderedRequest:
        marks = fill_in_marks(model.tokenizer)
        if marks is None:
            raise RequestError(
                f"suffix: {model.name} was not trained to fill in before a text; omit it",
                param="suffix",
                code="unsupported",
            )
        segments = fill_in_prompt(marks, prefix, suffix)
        ids = encoded(model, segments, add_special_tokens=True, param=_PARAM, must_fit=True)
        return _as_it_stands(model, request, ids)

    return make_prompt


def _after(context: list[int]) -> MakePrompt:
    def make_prompt(
        model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions
    ) -> RenderedRequest:
        check_token_ids(context, model.limits, "context")
        rendered = rendered_request(model, request, wanted)
        ids = context + rendered.prompt.token_ids
        return rendered._replace(prompt=replace(rendered.prompt, token_ids=ids, param=_PARAM))

    return make_prompt


def _as_it_stands(
    model: ServedModel, request: ChatCompletionRequest, ids: list[int]
) -> RenderedRequest:
    """A prompt whose answer is text as it stands."""
    rules = AnswerRules(
        request,
        request.choice_of_tools,
        has_form=bool(request.given_form),
        shows_tools=False,
        marks=model.marks,
        reading=None,
        variables=model.template_defaults,
    )
    return RenderedRequest(
        Prompt(ids, _PARAM), bad_word_ids(request.bad_words, model.tokenizer), rules
    )
