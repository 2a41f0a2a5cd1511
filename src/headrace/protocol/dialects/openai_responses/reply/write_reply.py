"""The response object that clients get: the answer's head and its end, and a whole answer."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_responses.ids import response_id
from headrace.protocol.dialects.openai_responses.reply.failures import response_error
from headrace.protocol.dialects.openai_responses.reply.output import Output
from headrace.protocol.dialects.openai_responses.reply.usage import write_usage
from headrace.protocol.dialects.openai_responses.request.tools import write_tool, write_tool_choice
from headrace.protocol.dialects.openai_responses.values import DIALECT, SERVICE_TIERS, mapping
from headrace.protocol.neutral.call import ChatCall, Tool
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.event import CompletePart, PartDelta, PartEnd, PartStart, ReplyStart
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage

_CUT: dict[Finish | None, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}

# What a client asked and sees again in the answer, null if it did not ask.
_ECHOED = (
    "background",
    "conversation",
    "max_tool_calls",
    "moderation",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
)


class Response:
    """One response object. own: the provider speaks this dialect, so its fields are kept.

    created_at is 0 if the provider reported no time. The answer is not stored here: `store` is
    false unless the provider itself reports otherwise.
    """

    def __init__(self, call: ChatCall, began: ReplyStart) -> None:
        self.own = began.extra.get("object") == "response"
        self.id = response_id(began.id, own=self.own)
        self._head: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": began.created_s or 0,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": began.model,
            "output": [],
            "usage": None,
            **_echo(call),
        }
        if self.own:
            self._head |= began.extra

    def begun(self) -> dict[str, Any]:
        """The response as in the first events of a stream."""
        return self._head

    def not_stored(self) -> None:
        """Its end says that it cannot be found later, whatever was to be done."""
        self._head = {**self._head, "store": False}

    def ended(
        self,
        output: list[dict[str, Any]],
        finish: Finish | None,
        usage: TokenUsage | None,
        service_tier: str | None,
        extra: dict[str, Any],
    ) -> dict[str, Any]:
        """The whole answer. extra: of the choice."""
        reason = _CUT.get(finish)
        ended = {**self._head, "status": "incomplete" if reason else "completed"}
        ended["incomplete_details"] = {"reason": reason} if reason else None
        ended["output"] = output
        if self.own:
            ended |= {name: value for name, value in extra.items() if name != "usage"}
        if not self.own and service_tier not in SERVICE_TIERS:
            # Anthropic's word; clients know no others than OpenAI's.
            service_tier = "default" if service_tier == "standard" else None
        return _counted(ended, usage, service_tier, mapping(extra.get("usage")) if self.own else {})

    def failed(
        self,
        output: list[dict[str, Any]],
        failure: Failure,
        usage: TokenUsage | None,
    ) -> dict[str, Any]:
        """The output before the failure, with its reason."""
        ended = {**self._head, "status": "failed", "error": response_error(failure)}
        ended["output"] = output
        return _counted(ended, usage, None, {})


def _counted(
    ended: dict[str, Any],
    usage: TokenUsage | None,
    service_tier: str | None,
    extra: dict[str, Any],
) -> dict[str, Any]:
    if usage is not None:
        ended["usage"] = write_usage(usage, extra)
    if service_tier is not None:
        ended["service_tier"] = service_tier
    return ended


def _echo(call: ChatCall) -> dict[str, Any]:
    own = call.dialect == DIALECT
    extra = call.extra if own else {}
    words = [
        instruction.text for instruction in call.instructions if "role" not in instruction.extra
    ]
    reasoning = call.reasoning
    choice: Any = call.tool_choice
    return {
        **{name: extra.get(name) for name in _ECHOED},
        "background": extra.get("background") or False,
        "instructions": "\n\n".join(words) if words else None,
        "max_output_tokens": call.max_tokens,
        "metadata": call.metadata or {},
        "parallel_tool_calls": call.parallel_tool_calls is not False,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": reasoning.summary if reasoning else None,
            **mapping(extra.get("reasoning")),
        },
        "service_tier": None,
        "store": False,
        "temperature": call.temperature,
        "text": _text(call),
        "tool_choice": write_tool_choice(choice) if choice else extra.get("tool_choice", "auto"),
        "tools": [
            _tool(tool, own=own) if isinstance(tool, Tool) else tool.value
            for tool in call.tools
            if isinstance(tool, Tool) or tool.dialect == DIALECT
        ],
        "top_logprobs": call.top_logprobs or 0,
        "top_p": call.top_p,
        "truncation": extra.get("truncation") or "disabled",
        "user": call.user,
    }


def _tool(tool: Tool, *, own: bool) -> dict[str, Any]:
    written = write_tool(tool, own=own)
    # The object that clients read has all of them.
    return {"description": None, "strict": None, **written}


def _text(call: ChatCall) -> dict[str, Any]:
    output = call.output
    form: dict[str, Any] = {"type": "text"}
    if output is not None and output.kind == "json":
        form = {"type": "json_object"}
    elif output is not None and output.kind == "schema":
        form = {
            "type": "json_schema",
            "description": output.description,
            "name": output.name or "answer",
            "schema": output.schema or {},
            "strict": output.strict,
        }
    return {"format": form, "verbosity": call.extra.get("verbosity")}


_OF_PARTS = PartStart | PartDelta | PartEnd | CompletePart


def write_reply(reply: ChatReply, call: ChatCall) -> bytes:
    """The body of a 200. The API has one choice: of several the first is written."""
    began = ReplyStart(id=reply.id, model=reply.model, created_s=reply.created_s, extra=reply.extra)
    response = Response(call, began)
    output = Output(response.id, own=response.own)
    choice = next((other for other in reply.choices if other.index == 0), Choice())
    for event in replayed(reply):
        if isinstance(event, _OF_PARTS) and event.choice == 0:
            output.take(event)
    output.finish(choice.finish)
    ended = response.ended(
        output.items, choice.finish, reply.usage, reply.service_tier, choice.extra
    )
    return msgspec.json.encode(ended)
