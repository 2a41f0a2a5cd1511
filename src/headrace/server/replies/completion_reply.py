"""Pieces of text as a completion, whole or as events: choices are numbered prompt by prompt. Pure.

An echoed prompt begins the text, and log probabilities, of each of its choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from headrace.engine.messages import TokenLogprob
from headrace.protocol import sse
from headrace.protocol.openai.choice import PromptLogprobs, PromptProgress
from headrace.protocol.openai.completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
)
from headrace.protocol.openai.usage import Usage
from headrace.server.generation.logprobs import (
    TokenTable,
    completion_logprobs,
    floored,
    prompt_logprobs,
)
from headrace.server.generation.pieces import LogprobOfPrompt, Piece
from headrace.server.prompts.prompt import Prompt
from headrace.server.replies.reply import (
    OPENAI_FORM,
    EventTemplate,
    Head,
    Tally,
    UsageEvents,
    WholeChoice,
    encode,
    progress_of,
)


class CompletionReply:
    """A reply from pieces of all candidates, each one's in order. `events` or `add`, then the rest.

    Candidates are numbered prompt by prompt, as the choices that become of them.
    """

    form = OPENAI_FORM
    num_broken_calls = 0
    """Of texts, in which nothing is a call."""

    def __init__(
        self,
        head: Head,
        request: CompletionRequest,
        prompts: Sequence[Prompt],
        tokenizer: TokenTable,
        usage: UsageEvents,
    ) -> None:
        self._head = head
        self._request = request
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._usage = usage
        self._per_prompt = request.candidates
        self._tally = Tally(
            [len(prompt.token_ids) for prompt in prompts],
            self._per_prompt,
            counts_drafts=request.return_metrics,
        )
        self._begun: set[int] = set()
        # An event in the middle of a choice then says nothing but text.
        self._text_only = (
            request.logprobs is None
            and request.prompt_logprobs is None
            and not (request.return_token_ids or request.echo or usage.every)
        )
        self._templates: dict[int, EventTemplate] = {}
        self._candidates = [WholeChoice() for _ in range(len(prompts) * self._per_prompt)]

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The event of a piece of choice `index`; none when there is nothing new to say."""
        if piece.prefill is not None:
            number = index // self._per_prompt
            tokens = len(self._prompts[number].token_ids)
            progress = progress_of(number, tokens, piece.prefill)
            usage = self._tally.usage_of_event(self._usage)
            yield self._event([], usage, progress)
            return
        self._tally.add(index, piece)
        if self._text_only and piece.finish_reason is None:
            if piece.text:
                yield self._template(index).event(piece.text)
            return
        first = index not in self._begun
        prompt = self._prompts[index // self._per_prompt]
        with_ids = self._request.return_token_ids
        wants_tokens = with_ids or self._request.logprobs is not None
        ended = piece.finish_reason is not None
        tells_prompt = first and (self._request.echo or self._request.prompt_logprobs is not None)
        if not (piece.text or ended or tells_prompt or (wants_tokens and piece.token_ids)):
            return
        self._begun.add(index)
        new = WholeChoice()
        new.add(piece)
        body = self._choice(index, new, prompt, with_prompt=first)
        yield self._event([body], self._tally.usage_of_event(self._usage))

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece: usage, if asked for, and the end mark."""
        if self._usage.last:
            yield self._event([], self._tally.usage())
        yield sse.DONE

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        self._tally.add(index, piece)
        self._candidates[index].add(piece)

    def whole(self) -> Completion:
        """The reply made of all pieces added."""
        choices: list[CompletionChoice] = []
        for number, prompt in enumerate(self._prompts):
            at = number * self._per_prompt
            candidates = self._candidates[at : at + self._per_prompt]
            if self._request.ranks:
                # A stable sort: of equally likely ones the first comes first.
                candidates.sort(key=mean_logprob, reverse=True)
            for one in candidates[: self._request.n]:
                choices.append(self._choice(len(choices), one, prompt, with_prompt=True))
        return Completion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=choices,
            usage=self._tally.usage(),
            system_fingerprint=self._head.fingerprint,
        )

    def _choice(
        self, index: int, said: WholeChoice, prompt: Prompt, *, with_prompt: bool
    ) -> CompletionChoice:
        """A choice, or the new part of one. with_prompt: it begins here."""
        request, last = self._request, said.last
        with_ids = request.return_token_ids
        ended = last.finish_reason is not None
        text = "".join(said.text)
        return CompletionChoice(
            index=index,
            text=prompt.text + text if request.echo and with_prompt else text,
            logprobs=self._logprobs_of(said, prompt, with_prompt=request.echo and with_prompt),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason if ended else UNSET,
            token_ids=list(said.token_ids) if with_ids else UNSET,
            prompt_token_ids=list(prompt.token_ids) if with_ids and with_prompt else UNSET,
            prompt_logprobs=self._of_prompt(said.prompt_logprobs) if with_prompt else UNSET,
            metrics=(last.metrics or UNSET) if request.return_metrics else UNSET,
        )

    def _logprobs_of(
        self, said: WholeChoice, prompt: Prompt, *, with_prompt: bool
    ) -> CompletionLogprobs | None:
        most = self._request.logprobs
        if most is None:
            return None
        token_ids = [*said.token_ids]
        logprobs: list[TokenLogprob | None] = [*said.logprobs]
        offsets = [*said.text_offsets]
        if with_prompt:
            token_ids = [*prompt.token_ids, *token_ids]
            logprobs = [*(said.prompt_logprobs or [None] * len(prompt.token_ids)), *logprobs]
            offsets = [*prompt.text_offsets, *offsets]
        as_ids = self._request.return_tokens_as_token_ids or not self._tokenizer.has_text
        return completion_logprobs(
            token_ids, logprobs, offsets, self._tokenizer, most=most, as_ids=as_ids
        )

    def _of_prompt(self, tokens: LogprobOfPrompt | None) -> PromptLogprobs | UnsetType | None:
        return prompt_logprobs(tokens, self._tokenizer, most=self._request.prompt_logprobs)

    def _template(self, index: int) -> EventTemplate:
        template = self._templates.get(index)
        if template is None:
            prompt = self._prompts[index // self._per_prompt]
            nothing = self._choice(index, WholeChoice(), prompt, with_prompt=False)
            event = self._event([nothing], self._tally.usage_of_event(self._usage))
            template = self._templates[index] = EventTemplate(event, "text")
        return template

    def _event(
        self,
        choices: list[CompletionChoice],
        usage: Usage | UnsetType | None,
        progress: PromptProgress | UnsetType = UNSET,
    ) -> bytes:
        completion = Completion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=choices,
            usage=usage,
            system_fingerprint=self._head.fingerprint,
            prompt_progress=progress,
        )
        return sse.data_event(encode(completion))


def mean_logprob(candidate: WholeChoice) -> float:
    """Mean log probability per token; of an answer without tokens less than of any other."""
    if not candidate.logprobs:
        return -math.inf
    return sum(floored(one.logprob) for one in candidate.logprobs) / len(candidate.logprobs)
