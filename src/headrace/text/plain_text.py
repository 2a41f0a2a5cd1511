"""Text in which control tokens are ordinary characters, to token ids that are none of theirs.

Whatever a vocabulary holds: where merges, a whole word taken from the vocabulary or a single
character give a control token's id after all, its text is spelled in bytes or characters instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.text.byte_alphabet import CHAR_OF_BYTE, SPACE_MARK
from headrace.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What the flags lstrip and rstrip take with a token: Unicode's White_Space, as the `tokenizers`
library has it. (`str.strip` takes four separators more, U+001C to U+001F.)"""


def control_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """Ids that plain text must not give: the special ones but for "unknown", which a text may."""
    model = vocabulary.backend.model
    unknown = getattr(model, "unk_token", None)
    unknown_id = getattr(model, "unk_id", None)
    if unknown is not None:
        unknown_id = vocabulary.backend.token_to_id(unknown)
    return vocabulary.special_ids - {unknown_id}


def without_control(
    ids: Sequence[int], control: frozenset[int], vocabulary: Vocabulary
) -> list[int]:
    """The ids of a plain text, control tokens among them spelled by smaller tokens."""
    if control.isdisjoint(ids):
        return list(ids)
    spelled: list[int] = []
    for token_id in ids:
        if token_id in control:
            spelled += _spelled(vocabulary.literal.get(token_id, ""), control, vocabulary)
        else:
            spelled.append(token_id)
    return spelled


def _spelled(text: str, control: frozenset[int], vocabulary: Vocabulary) -> list[int]:
    """A text in tokens of one byte or character each; what has none is left out."""
    backend = vocabulary.backend
    if vocabulary.spelling == "bytes":
        pieces = [[CHAR_OF_BYTE[byte]] for byte in text.encode("utf-8", "replace")]
    else:
        pieces = [
            [char.replace(" ", SPACE_MARK), *(f"<0x{byte:02X}>" for byte in char.encode())]
            for char in text
        ]
    return [token_id for choices in pieces for token_id in _ids_of(choices, control, backend)]


def _ids_of(choices: list[str], control: frozenset[int], backend: Backend) -> list[int]:
    """The id of the first piece, a character; else those of the others, its bytes."""
    whole, *parts = (backend.token_to_id(piece) for piece in choices)
    if whole is not None and whole not in control:
        return [whole]
    return [token_id for token_id in parts if token_id is not None and token_id not in control]
