"""Words written in two pieces, so that a model can go on from a prompt that ends inside one.

The tokenizer writes "import numpy" with one token for " numpy", and "import nu" with two for
" nu": after those it never writes "mpy" in a whole text, so a model that saw only its output has
no idea what follows. A share of the words is therefore cut at a random letter, or after the space,
and each part is written in its own tokens. The text stays the same.
"""

from __future__ import annotations

import random

import torch
from tokenizers import Tokenizer
from torch import Tensor

# How byte-level BPE writes the byte 0x20.
SPACE = "\u0120"
# Ways of cutting a token that a stream uses: drawn once, so that cutting is a table look-up.
CUTS = 6


def cuts_of(text: str, tokenizer: Tokenizer, draw: random.Random) -> list[list[int]]:
    """CUTS ways to write the token `text` in two parts; the token alone where it is no word."""
    word = text.removeprefix(SPACE)
    if len(text) < 2 or not word.isascii() or not word.replace("_", "a").isalpha():
        return [[tokenizer.token_to_id(text)]] * CUTS
    plain = text.replace(SPACE, " ")
    places = [draw.randrange(1, len(plain)) for _ in range(CUTS)]
    return [tokenizer.encode(plain[:at]).ids + tokenizer.encode(plain[at:]).ids for at in places]


def cut_words(stream: Tensor, tokenizer: Tokenizer, share: float, seed: int) -> Tensor:
    """int32 `stream` with a `share` of its word tokens cut in two."""
    vocabulary = tokenizer.get_vocab()
    draw = random.Random(seed)
    table = [
        cuts_of(text, tokenizer, draw) for text in sorted(vocabulary, key=vocabulary.__getitem__)
    ]
    longest = max(len(cut) for cuts in table for cut in cuts)
    ids = torch.tensor(
        [[cut + [0] * (longest - len(cut)) for cut in cuts] for cuts in table], dtype=torch.int32
    )
    counts = torch.tensor([[len(cut) for cut in cuts] for cuts in table], dtype=torch.int32)
    generator = torch.Generator().manual_seed(seed)
    at = (torch.rand(stream.shape, generator=generator) < share).nonzero().squeeze(1)
    which = torch.randint(CUTS, at.shape, generator=generator)
    tokens = stream[at].long()
    lengths = torch.ones(stream.shape, dtype=torch.int32)
    lengths[at] = counts[tokens, which]
    result = torch.repeat_interleave(stream, lengths)
    starts = torch.cumsum(lengths, dim=0)[at] - lengths[at]
    for offset in range(longest):
        there = lengths[at] > offset
        result[starts[there] + offset] = ids[tokens[there], which[there], offset]
    return result
