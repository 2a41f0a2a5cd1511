"""Which tokens of a conversation are learnt: those of the answers, and none of what was asked.

Questions hold code that ends where its author's question does; a model that learns to write them
learns to end code there ("```", end of turn), also where somebody wants it completed. They are read
all the same. In a stream a token that is only read stands as -1 - id (`read_only`, `split`).
"""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.data.tokenizer import TURN_END, TURN_START

# What cross_entropy passes over: its own default.
IGNORED = -100


def answers_only(stream: Tensor, tokenizer: Tokenizer) -> Tensor:
    """`stream` [N] with every token marked as read only but answers and the ends of their turns."""
    header = torch.tensor(tokenizer.encode(f"{TURN_START}assistant\n").ids, dtype=stream.dtype)
    size = header.numel()
    if stream.numel() < size:
        return read_only(stream)
    begins = (stream.unfold(0, size, 1) == header).all(dim=1).nonzero().flatten() + size
    ends = (stream == tokenizer.token_to_id(TURN_END)).nonzero().flatten()
    place = torch.searchsorted(ends, begins)
    closed = place < ends.numel()
    begins, stops = begins[closed], ends[place[closed]] + 1
    steps = torch.zeros(stream.numel() + 1, dtype=torch.int32)
    steps[begins] += 1
    steps[stops] -= 1
    learnt = steps.cumsum(0)[:-1] > 0
    return torch.where(learnt, stream, read_only(stream))


def read_only(ids: Tensor) -> Tensor:
    """The mark of tokens that are read and not learnt."""
    return -1 - ids


def split(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Ids as they are read, and as they are learnt: IGNORED where they are not."""
    return torch.where(tokens < 0, read_only(tokens), tokens), tokens.masked_fill(
        tokens < 0, IGNORED
    )
