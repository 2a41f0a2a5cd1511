"""What is trained on: packed documents, fill-in-the-middle, words cut in two, and windows."""

from __future__ import annotations

import math
import random

import pytest

from tests.training.toy_training import documents
from training.data.tokenizer import (
    END_OF_TEXT_ID,
    FIM_MIDDLE_ID,
    FIM_PREFIX_ID,
    FIM_SUFFIX_ID,
    train_tokenizer,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training.data import packing  # noqa: E402
from training.data.cut_words import cut_words  # noqa: E402


def test_fill_in_the_middle_keeps_every_token_of_the_document() -> None:
    ids = list(range(100, 1100))
    found = packing.rearranged(ids, random.Random(1))
    assert found == packing.rearranged(ids, random.Random(1))
    pieces: list[list[int]] = [[]]
    for token in found:
        if token == END_OF_TEXT_ID:
            pieces.append([])
        else:
            pieces[-1].append(token)
    assert len(pieces) == math.ceil(len(ids) / packing.FIM_TOKENS)
    whole = []
    for piece in pieces:
        assert piece[0] == FIM_PREFIX_ID
        suffix, middle = piece.index(FIM_SUFFIX_ID), piece.index(FIM_MIDDLE_ID)
        assert 0 < suffix < middle
        whole += piece[1:suffix] + piece[middle + 1 :] + piece[suffix + 1 : middle]
    assert whole == ids


def test_packing_rearranges_the_share_it_is_told() -> None:
    texts = documents(400)
    tokenizer = train_tokenizer(texts, 330)
    plain = packing.pack(tokenizer, texts, seed=1)
    assert torch.equal(plain, packing.pack(tokenizer, texts, seed=1))
    assert not torch.equal(plain, packing.pack(tokenizer, texts, seed=2))
    assert int(plain[0]) == int(plain[-1]) == END_OF_TEXT_ID
    assert int((plain == END_OF_TEXT_ID).sum()) == len(texts) + 1
    decoded = tokenizer.decode(plain.tolist(), skip_special_tokens=False)
    assert sorted(filter(None, decoded.split("<|endoftext|>"))) == sorted(texts)
    mixed = packing.pack(tokenizer, texts, seed=1, fim_share=0.25)
    assert 60 <= int((mixed == FIM_MIDDLE_ID).sum()) <= 140


def test_cut_words_change_tokens_but_not_text() -> None:
    texts = documents(50)
    tokenizer = train_tokenizer(texts, 330)
    stream = packing.pack(tokenizer, texts, seed=1)
    text = tokenizer.decode(stream.tolist(), skip_special_tokens=False)
    assert torch.equal(cut_words(stream, tokenizer, 0.0, seed=1), stream)
    every, again = (cut_words(stream, tokenizer, 1.0, seed=1) for _ in range(2))
    assert torch.equal(every, again)
    assert tokenizer.decode(every.tolist(), skip_special_tokens=False) == text
    assert int((every == END_OF_TEXT_ID).sum()) == int((stream == END_OF_TEXT_ID).sum())
    # " return" is one token to the tokenizer, and none of the texts has it in one piece any more.
    whole = tokenizer.token_to_id("\u0120return")
    assert int((stream == whole).sum()) == len(texts)
    assert int((every == whole).sum()) == 0
    some = cut_words(stream, tokenizer, 0.2, seed=1)
    assert stream.numel() < some.numel() < every.numel()


def test_an_epoch_shows_every_window_once_and_the_next_cuts_elsewhere() -> None:
    sampler = packing.Sampler(torch.arange(1001, dtype=torch.int32), seed=5)
    first = [sampler.next_batch(3, 10) for _ in range(33)]
    assert sampler.epoch == 0
    starts = torch.cat([batch.ids[:, 0] for batch in first])
    assert len(set(starts.tolist())) == 99
    assert len({start % 10 for start in starts.tolist()}) == 1
    for batch in first:
        assert torch.equal(batch.targets, batch.ids + 1)
    second = sampler.next_batch(3, 10)
    assert (sampler.epoch, sampler.position) == (1, 3)
    assert int(second.ids[0, 0]) % 10 != int(starts[0]) % 10
    with pytest.raises(ValueError, match="too few for a batch of 3 x 400"):
        sampler.next_batch(3, 400)
