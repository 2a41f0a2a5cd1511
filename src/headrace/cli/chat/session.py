"""A chat going on: a model, a conversation, the parameters in force, and asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from headrace.cli.chat.answer import Answer, receive
from headrace.cli.chat.conversation import Call, Conversation, Message
from headrace.cli.chat.input import Entry
from headrace.cli.chat.tools import Tool, ask_results
from headrace.cli.notes import note
from headrace.errors import ContextLengthError, HeadraceError

if TYPE_CHECKING:
    from headrace.cli.chat.model import ChatModel
    from headrace.offline.params import SamplingParams


class Session:
    """The state that the commands of a chat change. `name` is the model's, for people."""

    def __init__(
        self,
        model: ChatModel,
        conversation: Conversation,
        params: SamplingParams,
        *,
        read_result: Callable[[str], Entry],
        stop: tuple[str, ...] = (),
        name: str = "",
        as_json: bool = False,
    ) -> None:
        """read_result: what the person types for a prompt as the result of a call; it may raise
        EOFError and KeyboardInterrupt."""
        self.model = model
        self.conversation = conversation
        self.params = params
        self.stop = stop
        self.effort: str | None = None
        """How much the model is to reason; None leaves it to the model."""
        self.tools: list[Tool] = []
        """What the model may call; the person types the results."""
        self.name = name
        self._read_result = read_result
        self._as_json = as_json

    @property
    def context_tokens(self) -> int | None:
        """Most tokens of prompt and answer together; None if unknown."""
        return self.model.context_tokens

    def used_tokens(self) -> int | None:
        """Tokens of the conversation so far, the opening of the next answer included; None if
        unknown."""
        return self.model.count_tokens(self.conversation.messages, self.tools)

    def ask(self, question: str) -> bool:
        """Ask, show the answer and keep both; whether that was done.

        Calls of tools are shown, their results are typed, and the model goes on with them.
        Refused or failed, or stopped before there is an answer, nothing is kept: the conversation
        is what it was.
        """
        exchange = [Message("user", question)]
        try:
            # Ends: each further round has results that a person typed.
            while calls := self._go_on(exchange):
                results = ask_results(calls, self._read_result, show=not self._as_json)
                if results is None:
                    note("(no result: the message was dropped)")
                    return False
                exchange += results
        except HeadraceError as error:
            note(f"headrace: {error}", "red")
            note(_what_now(error), "red")
            return False
        except (KeyboardInterrupt, EOFError):  # before there was anything to stop, or at a result
            note("\n(stopped: the message was dropped)")
            return False
        if calls is None:
            return False
        self.conversation.keep(exchange)
        return True

    def _go_on(self, exchange: list[Message]) -> tuple[Call, ...] | None:
        """Add the model's next message; its calls, () where it is the answer, None where there is
        neither."""
        answer = self._answer([*self.conversation.messages, *exchange])
        self._tell(answer)
        is_whole = answer.finish_reason in ("stop", "tool_calls")
        if answer.calls and not is_whole:
            note("(the answer ended within its calls: the message was dropped)")
            return None
        if answer.finish_reason == "abort" and not answer.text:
            place = "answer" if answer.reasoning else "first token"
            note(f"(stopped before the {place}: the message was dropped)")
            return None
        exchange.append(Message("assistant", answer.text, answer.calls))
        return answer.calls

    def _answer(self, messages: list[Message]) -> Answer:
        deltas = self.model.answer(
            messages, self.params, stop=self.stop, effort=self.effort, tools=self.tools
        )
        return receive(deltas, context_tokens=self.context_tokens, show=not self._as_json)

    def _tell(self, answer: Answer) -> None:
        if self._as_json:
            import msgspec

            fields = {
                "text": answer.text, "reasoning": answer.reasoning,
                "tool_calls": answer.calls, "finish_reason": answer.finish_reason,
                "prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.output_tokens,
                "cached_tokens": answer.cached_tokens, "ttft_s": answer.ttft_s,
                "wall_s": answer.wall_s,
            }  # fmt: skip
            click.echo(msgspec.json.encode(fields))
            return
        if answer.text or answer.reasoning or not answer.calls:
            click.echo()
        note(answer.figures())
        if answer.is_reasoning_alone:
            note(
                "(length: all tokens went to reasoning; /set max_tokens gives it more, /set "
                "thinking_token_budget bounds the reasoning, /think off leaves it out)",
                "yellow",
            )
        if answer.is_full:
            note(
                f"(the context of {answer.context_tokens:,} tokens is full: the answer ends "
                "here; /undo removes it, /clear starts again)",
                "yellow",
            )


def _what_now(error: HeadraceError) -> str:
    kept = "(the message was dropped; the conversation before it is kept"
    if isinstance(error, ContextLengthError):
        return (
            f"{kept} whole. /undo removes the last exchange, /clear starts again, /set "
            "max_tokens asks for a shorter answer)"
        )
    return f"{kept})"
