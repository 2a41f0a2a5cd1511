"""A chat going on: a model, a conversation, the parameters in force, and asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.chat.answer import Answer, receive
from headrace.cli.chat.conversation import Conversation, plain
from headrace.cli.notes import note
from headrace.errors import ContextLengthError, HeadraceError

if TYPE_CHECKING:
    from headrace.llm import LLM
    from headrace.offline.params import SamplingParams


class Session:
    """The state that the commands of a chat change. `model` is its name, for people."""

    def __init__(
        self,
        llm: LLM,
        conversation: Conversation,
        params: SamplingParams,
        *,
        stop: tuple[str, ...] = (),
        model: str = "",
        as_json: bool = False,
    ) -> None:
        self.llm = llm
        self.conversation = conversation
        self.params = params
        self.stop = stop
        self.model = model
        self._as_json = as_json

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and answer together."""
        info = self.llm.info
        return min(info.max_model_len, info.pool_tokens)

    def used_tokens(self) -> int:
        """Tokens of the conversation so far, the opening of the next answer included."""
        messages = self.conversation.messages
        return len(self.llm.encode_chat(plain(messages))) if messages else 0

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
            note("(stopped before the first token: the message was dropped)")
            return False
        self.conversation.keep(question, answer.text)
        return True

    def _answer(self, question: str) -> Answer:
        ids = self.llm.encode_chat(plain(self.conversation.with_question(question)))
        return receive(
            self.llm.stream(ids, self.params, stop=self.stop),
            prompt_tokens=len(ids),
            context_tokens=self.context_tokens,
            show=not self._as_json,
        )

    def _tell(self, answer: Answer) -> None:
        if self._as_json:
            import msgspec

            fields = {
                "text": answer.text, "finish_reason": answer.finish_reason,
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
