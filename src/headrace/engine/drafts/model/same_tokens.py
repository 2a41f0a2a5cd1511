"""Whether a draft model's ids are the target's: a draft is an id, so each has to mean the same.

Compared are the bytes of every id that a tokenizer knows. Rows of padding behind them may be as
many as they like, and how text is cut into tokens is of no account.
"""

from __future__ import annotations

from headrace.errors import ConfigError
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.tokenizer.data import TokenizerData

_FLAG = "--speculative-config: model"
_REMEDY = "use a draft model with the same tokenizer, or method ngram or suffix, which need none"


def check_same_tokens(target: Checkpoint, draft: Checkpoint, pre: str | None = None) -> None:
    """Raises ConfigError naming the first difference. pre: as of `load_tokenizer`."""
    mine, theirs = target.tokenizer, draft.tokenizer
    counts = mine.num_tokens, theirs.num_tokens
    if counts == (None, None):
        return
    for checkpoint, count in zip((target, draft), counts, strict=True):
        if count is None:
            raise ConfigError(
                f"{_FLAG} is {draft.path}: {checkpoint.path} has no tokenizer, so whether both "
                "have the same ids cannot be seen; put the other one's tokenizer.json there"
            )
    if counts[0] != counts[1]:
        raise ConfigError(
            f"{_FLAG} is {draft.path}: its vocabulary has {counts[1]} tokens, and that of "
            f"{target.path} has {counts[0]}; {_REMEDY}"
        )
    if _is_same_data(mine, theirs, counts[0]):
        return
    own, other = _texts(mine, counts[0], pre), _texts(theirs, counts[1], pre)
    different = [at for at, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]]
    if different:
        first = different[0]
        raise ConfigError(
            f"{_FLAG} is {draft.path}: {len(different)} of {counts[0]} ids mean something else in "
            f"{target.path}; the first is {first}, {other[first]!r} in the draft and "
            f"{own[first]!r} in the model; {_REMEDY}"
        )


def _is_same_data(mine: TokenizerData, theirs: TokenizerData, count: int | None) -> bool:
    """Whether the files say the same of so many tokens, which spares making tokenizers of them."""
    if mine.kind != theirs.kind:
        return False
    if mine.kind == "gguf":
        return mine.gguf.get("model") == theirs.gguf.get("model") and all(
            _first(mine.gguf.get(key), count) == _first(theirs.gguf.get(key), count)
            for key in ("tokens", "token_type")
        )
    if mine.json_path is None or theirs.json_path is None:
        return False
    return mine.json_path.read_bytes() == theirs.json_path.read_bytes()


def _first(values: object, count: int | None) -> object:
    """So many of a list or an array, as a list."""
    return None if values is None else list(values)[:count]  # type: ignore[call-overload]


def _texts(data: TokenizerData, count: int | None, pre: str | None) -> list[bytes]:
    from headrace.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(data, pre=pre)
    return [tokenizer.token_bytes(token_id) for token_id in range(count or 0)]
