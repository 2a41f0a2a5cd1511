"""A trace as requests: its times, its lengths, and where it tells them its shared beginnings.

Requests are made while they are asked for: the text of a whole trace can be hundreds of megabytes.
Each is made from the seed and its own number (or block ids) alone, so that going through them again
gives the same. Another part of the same file is another trace, with other words.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Literal

import msgspec

from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.lengths import Size
from headrace.bench.prompts.made import Missed
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.salt import draw_salts
from headrace.bench.prompts.synthetic import sized, written
from headrace.bench.traces.blocks import PrefixBlocks
from headrace.bench.traces.row import Trace, TraceRow
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError

# Part of the fingerprint: another one for every change of what is sent for the same trace.
_RECIPE = 1


class TraceReplay:
    """A workload over a trace.

    Unlike a made workload's, its fingerprint is of what it is made from: the rows, the tokenizer as
    far as our words go, the words, the seed, the form, the salts and the options.
    """

    def __init__(
        self,
        trace: Trace,
        writer: PromptWriter,
        source: random.Random,
        *,
        form: Literal["text", "token_ids"] = "text",
        options: RequestOptions = NO_OPTIONS,
        salts: random.Random | None = None,
    ) -> None:
        """`salts`: begin each prompt with words of its own. Raises ConfigError for salts with a
        trace of shared beginnings, which they would end."""
        if salts and trace.block_tokens is not None:
            raise ConfigError(
                f"{trace.name}: has shared beginnings, and a salt would make them differ; omit it"
            )
        self.trace = trace
        self.notes = trace.notes
        self._writer = writer
        self._seed = source.getrandbits(64)
        self._form = form
        self._options = options
        self._heads = draw_salts(len(trace.rows), salts) if salts else None
        self._blocks = None
        if trace.block_tokens is not None:
            self._blocks = PrefixBlocks(trace, writer, self._seed)

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.trace.name} ({self.trace.format_name})"

    @property
    def fingerprint(self) -> str:
        """Of what it is made from."""
        digest = hashlib.sha256(self.trace.digest + self._writer.identity)
        rest = (_RECIPE, self._seed, self._form, self._options, self._heads)
        digest.update(msgspec.json.encode(rest))
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.trace.rows)

    def __iter__(self) -> Iterator[WorkItem]:
        return (item for item, _ in self.counted())

    def counted(self) -> Iterator[tuple[WorkItem, int]]:
        """Each request, with the tokens that its prompt has by the client's tokenizer."""
        return (self._made(index, row) for index, row in enumerate(self.trace.rows))

    def missed(self) -> Iterator[Missed]:
        """Prompts of another length than the trace has; makes every one of them."""
        for index, (item, got) in enumerate(self.counted()):
            asked = item.prompt_tokens_asked
            if asked is not None and asked != got:
                yield Missed(index, asked, got)

    def _made(self, index: int, row: TraceRow) -> tuple[WorkItem, int]:
        size = Size(row.prompt_tokens, row.output_tokens)
        if self._blocks is None or row.blocks is None:
            source = random.Random(f"{self._seed}:{index}")
            head = self._heads[index] if self._heads else ""
            prompt, got = written(
                self._writer, size, source, form=self._form, head=head, options=self._options
            )
        elif self._form == "token_ids":
            ids = self._blocks.ids(row.blocks, size.prompt_tokens)
            prompt, got = self._options.prompt(size.output_tokens, token_ids=ids), len(ids)
        else:
            text, got = self._blocks.text(row.blocks, size.prompt_tokens)
            prompt = self._options.prompt(size.output_tokens, text=text)
        return sized(prompt, size, at_ns=row.at_ns if self.trace.timed else None), got
