"""Prefixes [B, P] of held-out text by kind, for what is guessed well in one and badly in another.

"code" are the held-out Python files, "text" the other held-out documents, "answers" windows of the
held-out conversations that end where an answer begins, and "repetition" code whose last quarter is
its beginning once more, so that the likeliest continuation is a copy.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.data.packing import pack
from training.data.tokenizer import END_OF_TEXT_ID, TURN_START
from training.measure.acceptance import PREFIX_TOKENS, draw_prefixes
from training.measure.heldout_text import read_held_out
from training.turns.conversations import read_conversations

CONVERSATIONS_SEED = 20261121


def prefixes_by_kind(data: Path, n_prefixes: int) -> dict[str, Tensor]:
    """int64 [n_prefixes, PREFIX_TOKENS] of every kind that there is below `data`."""
    tokenizer = Tokenizer.from_file(str(data / "tokenizer" / "tokenizer.json"))
    documents: dict[bool, list[list[int]]] = {True: [], False: []}
    for document in read_held_out(data / "corpus"):
        ids = [END_OF_TEXT_ID, *tokenizer.encode(document.text).ids]
        if len(ids) >= PREFIX_TOKENS:
            documents[document.path.endswith(".py")].append(ids)
    found = {}
    if documents[True]:
        found["code"] = draw_prefixes(documents[True], n_prefixes, PREFIX_TOKENS)
    if (data / "turns" / "heldout.jsonl").exists():
        conversations = read_conversations(data / "turns", "heldout")
        stream = pack(tokenizer, conversations, CONVERSATIONS_SEED)
        answers = before_answers(stream.long(), tokenizer, n_prefixes, PREFIX_TOKENS)
        if len(answers):
            found["answers"] = answers
    if "code" in found:
        found["repetition"] = repeated(found["code"])
    if documents[False]:
        found["text"] = draw_prefixes(documents[False], n_prefixes, PREFIX_TOKENS)
    return found


def before_answers(stream: Tensor, tokenizer: Tokenizer, n_prefixes: int, n_tokens: int) -> Tensor:
    """int64 [n_prefixes or fewer, n_tokens] of `stream` [N], each up to the beginning of an answer.

    The answers are at even distances over those with as much before them.
    """
    header = torch.tensor(tokenizer.encode(f"{TURN_START}assistant\n").ids)
    begins = (stream.unfold(0, len(header), 1) == header).all(dim=1).nonzero().flatten()
    begins = begins + len(header)
    begins = begins[begins >= n_tokens]
    count = min(n_prefixes, len(begins))
    chosen = begins[((torch.arange(count) + 0.5) * len(begins) / count).long()]
    return stream[chosen[:, None] - n_tokens + torch.arange(n_tokens)]


def repeated(prefixes: Tensor) -> Tensor:
    """The first three quarters of each of `prefixes` [B, P], and a quarter of them once more."""
    quarter = prefixes.shape[1] // 4
    return torch.cat((prefixes[:, : -quarter or None], prefixes[:, :quarter]), dim=1)
