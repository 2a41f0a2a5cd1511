"""What a round sends: the same prompts to every provider, each request with a salt of its own.

The prompts are made once, by the seed or from the file, and are the same in every round. Without
`cached` each request begins with words that nobody has sent before, so that no provider's prefix
cache helps: a prompt is longer by those four words than was asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.bench.load.tokenization import ClientTokenization
from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.files import read_prompts
from headrace.bench.prompts.lengths import Fixed, Independent, parse_lengths
from headrace.bench.prompts.salt import salted
from headrace.bench.prompts.synthetic import synthetic
from headrace.bench.providers.settings import ProvidersFile
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError


class RoundPrompts(NamedTuple):
    """The prompts of one provider in one round; item k of both tuples is the same prompt under
    another salt."""

    single: tuple[WorkItem, ...]
    batch: tuple[WorkItem, ...]


class PromptSource:
    """A source of the prompts of `file`; `folder` is where a data set is looked for.

    entropy: gives the seed of the salts, another one at every call. Raises ConfigError for a data
    set that cannot be read, or has embeddings' inputs.
    """

    def __init__(
        self,
        file: ProvidersFile,
        folder: Path,
        tokenization: ClientTokenization,
        entropy: Callable[[], int],
    ) -> None:
        count = max(file.single_requests, file.batch_size)
        if file.dataset is None:
            sizes = Independent(
                parse_lengths(str(file.input_tokens), "input_tokens"), Fixed(file.output_tokens)
            )
            source = random.Random(f"{file.seed}:prompts")
            made = synthetic(PromptWriter(tokenization), count, sizes, source)
        else:
            path = folder / file.dataset
            made = read_prompts(path, limit=count, output_tokens=file.output_tokens)
            for item in made:
                if item.prompt.inputs is not None:
                    raise ConfigError(
                        f"dataset {path}: has texts to embed, which cannot be streamed; give "
                        "prompts or messages"
                    )
        self.name = made.name
        self.fingerprint = made.fingerprint
        self.repeats = count > len(made)
        self._items = tuple(made.items[at % len(made)] for at in range(count))
        self._file = file
        self._tokenization = tokenization
        self._entropy = entropy

    def round(self) -> RoundPrompts:
        """For one provider; with salts that no other call gives."""
        single = self._items[: self._file.single_requests]
        batch = self._items[: self._file.batch_size]
        if self._file.cached:
            return RoundPrompts(single, batch)
        made = self._salted([*single, *batch])
        return RoundPrompts(made[: len(single)], made[len(single) :])

    def _salted(self, items: Sequence[WorkItem]) -> tuple[WorkItem, ...]:
        source = random.Random(self._entropy())
        return salted(items, source, name=self.name, tokenization=self._tokenization).items
