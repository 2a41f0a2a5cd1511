"""POST /completion and /infill: llama-server's own endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from headrace.engine.limits import check_ranges
from headrace.engine.messages import Submit
from headrace.errors import RequestError
from headrace.protocol.llamacpp.fields import COMPLETION, INFILL
from headrace.protocol.llamacpp.request import NativeFields, native_prompts
from headrace.protocol.openai.completions import CompletionRequest
from headrace.server.admission.admission import Ticket
from headrace.server.answer import Ids, admitted, answer, timeout_s
from headrace.server.call import Call
from headrace.server.dialects.client_names import renamed
from headrace.server.llamacpp.prompts import infill_ids, prompt_ids
from headrace.server.llamacpp.reply import NativeReplies
from headrace.server.llamacpp.request import completion_request
from headrace.server.model.served import ServedModel
from headrace.server.prompts.plan import EndpointOptions, make_plan
from headrace.server.prompts.prompt import Prompt
from headrace.server.state import Serving
from headrace.structured.request import constraint_of

_NAMES = {
    "logprobs": "n_probs",
    "max_tokens": "n_predict",
    "repetition_penalty": "repeat_penalty",
    "timeout_s": "t_max_predict_ms",
}
"""llama-server's names of fields that are others in completions."""

_OFF: dict[str, Any] = {
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "dynatemp_range": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.0,
}
"""What llama-server says of steps that are off, as they always are here."""

MakePrompts = Callable[[ServedModel], list[Prompt]]


async def completion(call: Call) -> Response:
    """Continue one or several prompts, whole or as events."""
    serving = call.state.generating(call.key)
    body = await call.parse(COMPLETION)
    parts = native_prompts(body.prompt)
    names = ["prompt"] if len(parts) == 1 else [f"prompt[{index}]" for index in range(len(parts))]

    def prompts(model: ServedModel) -> list[Prompt]:
        return [
            Prompt(prompt_ids(model, each, name), name)
            for each, name in zip(parts, names, strict=True)
        ]

    return await _admitted(call, serving, body, len(parts), prompts)


async def infill(call: Call) -> Response:
    """Fill the gap between two texts."""
    serving = call.state.generating(call.key)
    body = await call.parse(INFILL)

    def prompts(model: ServedModel) -> list[Prompt]:
        return [Prompt(infill_ids(model, body), "input_prefix")]

    return await _admitted(call, serving, body, 1, prompts)


async def _admitted(
    call: Call, serving: Serving, fields: NativeFields, count: int, prompts: MakePrompts
) -> Response:
    serving.model.check_name(fields.model)
    try:
        request = completion_request(fields)
        check_ranges(request)
        return await admitted(
            call,
            count * request.n,
            lambda ticket: _answered(call, serving, ticket, fields, request, prompts),
        )
    except RequestError as error:
        raise _named(error) from None


async def _answered(
    call: Call,
    serving: Serving,
    ticket: Ticket,
    fields: NativeFields,
    request: CompletionRequest,
    make_prompts: MakePrompts,
) -> Response:
    model = serving.model

    def work() -> tuple[list[Prompt], list[str]]:
        prompts = make_prompts(model)
        decode = model.tokenizer.decode
        return prompts, [decode(each.token_ids, skip_special_tokens=False) for each in prompts]

    prompts, texts = await call.text_work(work)
    form = request.given_form
    grammar = await call.grammar_work(lambda: constraint_of(form)) if form else None
    plan = make_plan(
        model,
        request,
        prompts,
        _wanted(request),
        bad_words=(),
        grammar=grammar,
        engine_id=Ids("cmpl-", None, call.state.new_id()).engine,
        timeout_s=timeout_s(call, request),
    )
    reply = NativeReplies(
        fields,
        model.name,
        prompts,
        texts,
        [_settings(fields, request, submit) for submit in plan.submits[:: request.n]],
        model.tokenizer,
        model.limits.context_tokens,
    )
    return await answer(call, serving, ticket, request, plan, reply)


def _wanted(request: CompletionRequest) -> EndpointOptions:
    """A number of tokens beyond the context is cut to it, as llama-server does."""
    return EndpointOptions(
        max_tokens=None,
        default_tokens=request.max_tokens,
        tokens_param="n_predict",
        logprobs=request.logprobs,
        logprobs_param="n_probs",
        candidates=request.n,
    )


def _settings(fields: NativeFields, request: CompletionRequest, submit: Submit) -> dict[str, Any]:
    """What an answer was generated with, under llama-server's names."""
    params = submit.params
    return {
        "n_predict": fields.n_predict,
        "max_tokens": fields.n_predict,
        "seed": -1 if params.seed is None else params.seed,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repeat_last_n": -1,
        "repeat_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "samplers": list(params.samplers),
        "stop": list(request.stop_strings),
        "ignore_eos": params.ignore_eos,
        "stream": request.stream,
        "n_probs": fields.n_probs,
        "logit_bias": [
            {"token": token_id, "bias": bias} for token_id, bias in params.logit_bias.items()
        ],
        "grammar": fields.grammar or "",
        "post_sampling_probs": False,
        **_OFF,
        "timings_per_token": fields.timings_per_token,
        "lora": [],
    }


def _named(error: RequestError) -> RequestError:
    """An error with llama-server's name of the field."""
    ours = error.param or ""
    theirs = _NAMES.get(ours)
    if theirs is None:
        return error
    return RequestError(renamed(str(error), ours, theirs), param=theirs, code=error.code)
