"""The tokenizer of a model that has none: ids have no text, and no text has ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import RequestError
from headrace.text.tokenizer import Segment, Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from headrace.text.cuts import TextBound
    from headrace.weights.tokenizer.data import TokenizerData


class NoTokenizer(Tokenizer):
    """A stand-in for the tokenizer that a checkpoint lacks.

    Every id has the text "". Whatever needs ids of a text, or a text that is not empty, raises
    RequestError.
    """

    has_text = False

    def __init__(self, eos_token_ids: tuple[int, ...] = ()) -> None:
        self.bos_token_id = None
        self.eos_token_ids = eos_token_ids
        self.strips_first_space = False
        self.named_tokens = {}

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """None."""
        return ()

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool,
        parse_special: bool = True,
        bound: TextBound | None = None,
    ) -> list[int]:
        """Raises RequestError."""
        raise no_tokenizer("a text has no token ids")

    def encode_segments(
        self,
        segments: Sequence[Segment],
        *,
        add_special_tokens: bool = False,
        bound: TextBound | None = None,
    ) -> list[int]:
        """Raises RequestError."""
        raise no_tokenizer("messages have no token ids")

    def fewest_tokens(self, text: str) -> int:
        """0: nothing is known."""
        return 0

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The empty text."""
        return ""

    def token_bytes(self, token_id: int) -> bytes:
        """None."""
        return b""

    def is_special(self, token_id: int) -> bool:
        """No: nothing is known of any id."""
        return False

    def is_literal(self, token_id: int) -> bool:
        """No token is known to be."""
        return False

    def token_to_id(self, text: str) -> int | None:
        """None."""
        return None


def no_tokenizer(problem: str, param: str | None = None) -> RequestError:
    """The error for a request that needs text of a model without a tokenizer."""
    return RequestError(
        f"{param + ': ' if param else ''}this model has no tokenizer, so {problem}; send and "
        "read token ids, or put a tokenizer.json beside the weights",
        param=param,
        code="no_tokenizer",
    )


def tokenizer_or_none(
    data: TokenizerData, eos_token_ids: tuple[int, ...] = (), *, pre: str | None = None
) -> Tokenizer:
    """As `load_tokenizer`; a NoTokenizer where the checkpoint has no tokenizer at all."""
    if data.kind == "none":
        return NoTokenizer(eos_token_ids)
    return load_tokenizer(data, eos_token_ids, pre=pre)
