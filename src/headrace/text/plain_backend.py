"""A second backend that reads control tokens as ordinary text, beside the one that parses them.

It shares the model (the vocabulary is not copied). Non-special added tokens are still recognised,
as llama.cpp does with user-defined ones. The parsing switch of the library is a property of the
whole object, so flipping it on the first backend would change what other threads encode.
"""

from __future__ import annotations

import json
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def plain_backend(backend: Backend, *, text_start: bool) -> Backend:
    """Copy of `backend` for plain text. text_start: the text begins a whole input; otherwise a
    prefix space that belongs only to an input's beginning is left out."""
    from tokenizers import Tokenizer

    plain = Tokenizer(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = (
            backend.pre_tokenizer if text_start else _without_first_prefix(backend.pre_tokenizer)
        )
    added = backend.get_added_tokens_decoder()
    plain.add_tokens([added[token_id] for token_id in sorted(added)])
    plain.encode_special_tokens = True
    if all(plain.token_to_id(token.content) == token_id for token_id, token in added.items()):
        return plain
    # Ids with gaps are assigned anew when added one after another; a full copy keeps them.
    whole = Tokenizer.from_str(backend.to_str())
    if plain.pre_tokenizer is not None:
        whole.pre_tokenizer = plain.pre_tokenizer
    whole.encode_special_tokens = True
    return whole


def _without_first_prefix(pre_tokenizer: Any) -> Any:
    """The same pre-tokenizer with Metaspace's "first" turned off, which only `encode` of a whole
    text can tell apart."""
    state = json.loads(pre_tokenizer.__getstate__())
    steps = state["pretokenizers"] if state["type"] == "Sequence" else [state]
    firsts = [step for step in steps if step.get("prepend_scheme") == "first"]
    if not firsts:
        return pre_tokenizer
    for step in firsts:
        step["prepend_scheme"] = "never"
    without = copy(pre_tokenizer)
    without.__setstate__(json.dumps(state).encode())
    return without
