"""Packed training sequences: documents joined by <|endoftext|> and cut into equal windows.

The order of windows is a function of (seed, epoch) alone, and the sampler's whole state is two
integers, so that a resumed run sees exactly the tokens that an unbroken run would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .tokenizer import END_OF_TEXT_ID

# How byte-level BPE writes the byte 0x20.
SPACE = "\u0120"


class Batch(NamedTuple):
    """`ids` and `targets`, both int64 [B, T]; targets are ids one position later."""

    ids: Tensor
    targets: Tensor


def pack(tokenizer: Tokenizer, documents: Sequence[str], seed: int) -> Tensor:
    """All documents as one int64 stream, in an order drawn from `seed`, each after a separator."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(documents), generator=generator).tolist()
    encodings = tokenizer.encode_batch([documents[index] for index in order])
    stream: list[int] = []
    for encoding in encodings:
        stream.append(END_OF_TEXT_ID)
        stream.extend(encoding.ids)
    stream.append(END_OF_TEXT_ID)
    return torch.tensor(stream, dtype=torch.int64)


def space_splits(tokenizer: Tokenizer) -> Tensor:
    """int64 [vocabulary]: for a token of one space and a word, the token of the word; else -1."""
    vocabulary = tokenizer.get_vocab()
    table = torch.full((len(vocabulary),), -1, dtype=torch.int64)
    for text, token in vocabulary.items():
        word = vocabulary.get(text[1:])
        if text.startswith(SPACE) and not text[1:].startswith(SPACE) and word is not None:
            table[token] = word
    return table


def split_spaces(stream: Tensor, tokenizer: Tokenizer, share: float, seed: int) -> Tensor:
    """`stream` with a `share` of its space-and-word tokens written as two, space and word.

    The tokenizer itself never writes a space before a word that way, but a prompt that ends in
    "def " does: without such samples the model has no idea what follows.
    """
    space = tokenizer.get_vocab()[SPACE]
    words = space_splits(tokenizer)[stream]
    generator = torch.Generator().manual_seed(seed)
    split = (words >= 0) & (torch.rand(stream.shape, generator=generator) < share)
    last = torch.cumsum(1 + split.long(), dim=0) - 1
    result = torch.full((int(last[-1]) + 1,), space, dtype=torch.int64)
    result[last] = torch.where(split, words, stream)
    return result


def windows(stream: Tensor, length: int, n_sequences: int) -> list[Batch]:
    """Consecutive windows that cover `stream` once, for the held-out loss; the tail is dropped."""
    n_windows = (stream.numel() - 1) // length
    used = n_windows * length
    ids = stream[:used].view(n_windows, length)
    targets = stream[1 : used + 1].view(n_windows, length)
    return [
        Batch(ids[first : first + n_sequences], targets[first : first + n_sequences])
        for first in range(0, n_windows, n_sequences)
    ]


@dataclass
class Sampler:
    """Draws batches of windows; `epoch` and `position` (windows used in it) are its state."""

    stream: Tensor
    seed: int
    epoch: int = 0
    position: int = 0

    def next_batch(self, n_sequences: int, length: int) -> Batch:
        """The next [n_sequences, length] batch.

        Each epoch cuts the stream at another offset, so that windows differ between epochs.
        Raises ValueError when the stream is too short for a single batch.
        """
        n_windows = (self.stream.numel() - 1 - length) // length
        if n_windows < n_sequences:
            raise ValueError(
                f"the corpus has {self.stream.numel()} tokens, too few for a batch of "
                f"{n_sequences} x {length}: use a larger corpus or a smaller batch"
            )
        if self.position + n_sequences > n_windows:
            self.epoch, self.position = self.epoch + 1, 0
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        offset = int(torch.randint(length, (1,), generator=generator))
        order = torch.randperm(n_windows, generator=generator)
        chosen = order[self.position : self.position + n_sequences]
        self.position += n_sequences
        index = offset + chosen[:, None] * length + torch.arange(length)[None, :]
        return Batch(self.stream[index], self.stream[index + 1])
