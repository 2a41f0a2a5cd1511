"""A chat going on: a model, a conversation, the parameters in force, and asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.chat.answer import Answer, receive
from headrace.cli.chat.conversation import Conversation
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
        stop: tuple[str, ...] = (),
        name: str = "",
        as_json: bool = False,
    ) -> None:
        self.model = model
        self.conversation = conversation
        self.params = params
        self.stop = stop
        self.effort: str | None = None
        """How much the model is to reason; None leaves it to the model."""
        self.name = name
        self._as_json = as_json

    @property
    def context_tokens(self) -> int | None:
        """Most tokens of prompt and answer together; None if unknown."""
        return self.model.context_tokens

    def used_tokens(self) -> int | None:
        """Tokens of the conversation so far, the opening of the next answer included; None if
        unknown."""
        return self.model.count_tokens(self.conversation.messages)

    def ask(self, question: str) -> bool:
        """Ask, show the answer and keep both; whether that was done.

        Refused or failed, or stopped before its first token, nothing is kept: the conversation is
        what it was.
        """
        try:
            answer = self._answer(question)
        except HeadraceError as error:
            note(f"headrace: {error}", "red")
            note(_what_now(error), "red")
            return False
        except KeyboardInterrupt:  # before there was anything to stop
            note("\n(stopped: the message was dropped)")
            return False
        self._tell(answer)
        if answer.finish_reason == "abort" and not answer.text:
            place = "answer" if answer.reasoning else "first token"
            note(f"(stopped before the {place}: the message was dropped)")
            return False
        self.conversation.keep(question, answer.text)
        return True

    def _answer(self, question: str) -> Answer:
        messages = self.conversation.with_question(question)
        return receive(
            self.model.answer(messages, self.params, stop=self.stop, effort=self.effort),
            context_tokens=self.context_tokens,
            show=not self._as_json,
        )

    def _tell(self, answer: Answer) -> None:
        if self._as_json:
            import msgspec

            fields = {
                "text": answer.text, "reasoning": answer.reasoning,
                "finish_reason": answer.finish_reason,
                "prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.output_tokens,
                "cached_tokens": answer.cached_tokens, "ttft_s": answer.ttft_s,
                "wall_s": answer.wall_s,
            }  # fmt: skip
            click.echo(msgspec.json.encode(fields))
            return
        click.echo()
        note(answer.figures())
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
