"""Packed training sequences: documents joined by <|endoftext|> and cut into equal windows.

The order of windows is a function of (seed, epoch) alone, and the sampler's whole state is two
integers, so that a resumed run sees exactly the tokens that an unbroken run would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.data.answers_only import split
from training.data.tokenizer import END_OF_TEXT_ID, FIM_MIDDLE_ID, FIM_PREFIX_ID, FIM_SUFFIX_ID

# Encodings of Python objects are large: this many documents are tokenized at a time.
DOCUMENTS_AT_ONCE = 500


class Batch(NamedTuple):
    """`ids` and `targets`, both int64 [B, T].

    Targets are ids one position later, or IGNORED where they are only read.
    """

    ids: Tensor
    targets: Tensor


# Longest document that is rearranged whole for fill-in-the-middle: a window has to hold both sides.
FIM_TOKENS = 384


def rearranged(ids: Sequence[int], draw: random.Random) -> list[int]:
    """`ids` as pieces of FIM_TOKENS, each as prefix, suffix, middle behind their control tokens.

    Cuts fall between tokens; the order is that of the other open code models ("PSM", M. Bavarian
    and others, 2022).
    """
    result: list[int] = []
    for first in range(0, len(ids), FIM_TOKENS):
        piece = ids[first : first + FIM_TOKENS]
        start, end = sorted(draw.randrange(len(piece) + 1) for _ in range(2))
        result += [FIM_PREFIX_ID, *piece[:start], FIM_SUFFIX_ID, *piece[end:]]
        result += [FIM_MIDDLE_ID, *piece[start:end], END_OF_TEXT_ID]
    return result[:-1]


def pack(
    tokenizer: Tokenizer, documents: Sequence[str], seed: int, fim_share: float = 0.0
) -> Tensor:
    """All documents as one int32 stream, in an order drawn from `seed`, each after a separator.

    A `fim_share` of the documents is rearranged for fill-in-the-middle.
    """
    draw = random.Random(seed)
    order = list(range(len(documents)))
    draw.shuffle(order)
    pieces = []
    for first in range(0, len(order), DOCUMENTS_AT_ONCE):
        stream: list[int] = []
        texts = [documents[index] for index in order[first : first + DOCUMENTS_AT_ONCE]]
        for encoding in tokenizer.encode_batch_fast(texts):
            stream.append(END_OF_TEXT_ID)
            ids = encoding.ids
            stream.extend(rearranged(ids, draw) if draw.random() < fim_share else ids)
        pieces.append(torch.tensor(stream, dtype=torch.int32))
    return torch.cat([*pieces, torch.tensor([END_OF_TEXT_ID], dtype=torch.int32)])


def windows(stream: Tensor, length: int, n_sequences: int) -> list[Batch]:
    """Consecutive windows that cover `stream` once, for the held-out loss; the tail is dropped."""
    n_windows = (stream.numel() - 1) // length
    used = n_windows * length
    ids = stream[:used].view(n_windows, length).long()
    targets = stream[1 : used + 1].view(n_windows, length).long()
    return [
        Batch(ids[first : first + n_sequences], targets[first : first + n_sequences])
        for first in range(0, n_windows, n_sequences)
    ]


@dataclass
class Sampler:
    """Draws batches of windows of a stream, which `answers_only` may have marked.

    `epoch` and `position` (windows used in it) are its state.
    """

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
        ids, _ = split(self.stream[index].long())
        _, targets = split(self.stream[index + 1].long())
        return Batch(ids, targets)
