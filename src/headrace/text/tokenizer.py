"""Text to token ids and back, one interface for every kind of file.

Decoding is by bytes: `decode(ids)` is the joined bytes of the ids as UTF-8, invalid sequences
replaced, without the first space where the vocabulary adds one. Everything that streams
(detokenizer, logprobs) uses the same bytes, so pieces add up to `decode`.
No clean-up of spaces before punctuation is done, whatever a config says.
Knows no request and no model.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.text.byte_alphabet import bytes_of_byte_level, bytes_of_sentencepiece
from headrace.text.cuts import WHOLE_CHARS, Cuts, TextBound, TextTooLongError, cuts_of
from headrace.text.growth import ORDINARY_GROWTH, check_growth
from headrace.text.library import building, encoding, whole_text
from headrace.text.plain_text import WHITE_SPACE, control_ids, without_control
from headrace.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

    from headrace.weights.tokenizer.data import TokenizerData

Segment = tuple[str, bool]
"""A piece of text and whether special tokens are recognised in it."""

_BUILT = "the model's tokenizer.json or GGUF file"
_SPELLINGS = {"bytes": bytes_of_byte_level, "sentencepiece": bytes_of_sentencepiece}


def load_tokenizer(
    data: TokenizerData, eos_token_ids: tuple[int, ...] = (), *, pre: str | None = None
) -> Tokenizer:
    """Make the tokenizer a checkpoint describes.

    eos_token_ids: every end id the checkpoint knows; () takes those the tokenizer's data names.
    pre: the pre-tokenizer's name, instead of the one in a GGUF file.
    Raises CheckpointError for absent or damaged data, UnsupportedModelError for a kind of
    tokenizer or pre-tokenizer that is not implemented.
    """
    if data.kind == "gguf":
        from headrace.text.gguf_vocabulary import vocabulary_from_gguf

        with building("the data in tokenizer.ggml"):
            return Tokenizer(vocabulary_from_gguf(data, eos_token_ids, pre))
    if data.kind == "tokenizer.json" and data.json_path is not None:
        from headrace.text.json_vocabulary import vocabulary_from_json

        return Tokenizer(vocabulary_from_json(data.json_path, data.config, eos_token_ids))
    raise CheckpointError(
        "this checkpoint has no tokenizer: put a tokenizer.json beside the weights"
    )


class Tokenizer:
    """A tokenizer: encodes and decodes; safe to use from several threads."""

    has_text: bool = True
    """False only of the stand-in for a tokenizer that a model lacks (`text.no_tokenizer`)."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._bytes: dict[int, bytes] = {}
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_ids = vocabulary.eos_token_ids
        self.strips_first_space = vocabulary.strips_first_space
        self.named_tokens = vocabulary.named
        # Made now, so that a file of which it fails is refused and not the first conversation.
        self._plain_backends = self._make_plain_backends()

    @property
    def bos_token(self) -> str | None:
        """Text of the beginning-of-text token, as chat templates print it."""
        return self.named_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """Text of the end-of-text token, as chat templates print it."""
        return self.named_tokens.get("eos_token")

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that become special tokens where they are parsed, longest first."""
        literal, special = self._vocabulary.literal, self._vocabulary.special_ids
        texts = {literal[token_id] for token_id in special if literal[token_id]}
        texts.update(self._control_by_text)
        return tuple(sorted(texts, key=lambda text: (-len(text), text)))

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool,
        parse_special: bool = True,
        bound: TextBound | None = None,
    ) -> list[int]:
        """Token ids of a text.

        Raises RequestError for a text the tokenizer fails on, as one whose runs of white space are
        too long for its splitting expressions.
        add_special_tokens: begin and end as the tokenizer does for a raw text (True for raw
        completions, False for rendered chats). parse_special: control tokens written in the text
        become those tokens; with False they are ordinary text. Lone surrogates count as U+FFFD.
        bound: of a text of more than `WHOLE_CHARS`; TextTooLongError is raised as soon as it is
        known to be larger.
        """
        if parse_special:
            ids = self._ids(self._vocabulary.backend, text, bound)
        else:
            ids = self._plain(text, bound, first=True)
        return self._framed(ids, add_special_tokens)

    def encode_continuation(self, text: str) -> list[int]:
        """Token ids of a text that continues another one: control tokens are ordinary text in it,
        and what only the beginning of a whole input gets is left out. Raises as `encode` does."""
        return self._plain(text, None, first=False)

    def encode_segments(
        self,
        segments: Sequence[Segment],
        *,
        add_special_tokens: bool = False,
        bound: TextBound | None = None,
    ) -> list[int]:
        """Token ids of joined segments, control tokens recognised only in segments that allow it.

        Where no control token touches a segment that forbids it, this is `encode` of the joined
        text, exactly. A control token must lie wholly within allowed text. That text which forbids
        them gave none is seen in the ids: there are no more than were written in allowed text.
        """
        text = "".join(piece for piece, _ in segments)
        if all(allowed for piece, allowed in segments if piece):
            return self.encode(text, add_special_tokens=add_special_tokens, bound=bound)
        allowed = _allowed_runs(segments)
        starts = [start for start, _ in allowed]
        written: Counter[int] = Counter()
        for match in self._control_pattern.finditer(text):
            run = bisect_left(starts, match.start() + 1) - 1
            if run < 0 or match.end() > allowed[run][1]:
                ids = self._encode_guarded(text, allowed, bound)
                return self._framed(ids, add_special_tokens)
            written[self._control_by_text[match.group()][0]] += 1
        ids = self._ids(self._vocabulary.backend, text, bound)
        if Counter(filter(self._control_ids.__contains__, ids)) - written:
            ids = self._encode_guarded(text, allowed, bound)
        return self._framed(ids, add_special_tokens)

    def fewest_tokens(self, text: str) -> int:
        """No encoding of the text has fewer tokens than this; cheap, and often far too low.

        0 where nothing is known (a tokenizer that drops or merges text without end).
        """
        most_bytes = self._most_token_bytes
        if not most_bytes:
            return 0
        # "replace" writes fewer bytes for a lone surrogate than encoding it as U+FFFD does.
        num_bytes = len(text.encode("utf-8", "replace"))
        if self._takes_white_space:
            num_bytes -= sum(text.count(space) * len(space.encode()) for space in WHITE_SPACE)
        return -(-num_bytes // most_bytes)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids. Ids that do not exist have no text."""
        hidden = self._vocabulary.special_ids if skip_special_tokens else frozenset()
        joined = b"".join(self.token_bytes(token_id) for token_id in ids if token_id not in hidden)
        text = joined.decode("utf-8", "replace")
        return text[1:] if self.strips_first_space and text.startswith(" ") else text

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes a token adds to a text, a special token's text included; b"" for no such id.

        Raises UnsupportedModelError where the vocabulary's spelling is not known.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """Text of one token, for people; a token that is part of a character shows U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Whether the token is hidden when special tokens are skipped."""
        return token_id in self._vocabulary.special_ids

    def is_literal(self, token_id: int) -> bool:
        """Whether the token was added as a whole, special or not: ordinary text is not cut so."""
        return token_id in self._vocabulary.literal

    def token_to_id(self, text: str) -> int | None:
        """Id of a vocabulary entry spelled as in the vocabulary; None where there is none."""
        token_id: int | None = self._vocabulary.backend.token_to_id(text)
        return token_id

    def has_double_bos(self, ids: Sequence[int]) -> bool:
        """Whether ids begin with two beginning-of-text tokens: a template and an encoder each
        added one, which costs quality."""
        return self.bos_token_id is not None and list(ids[:2]) == [self.bos_token_id] * 2

    def _framed(self, ids: list[int], add_special_tokens: bool) -> list[int]:
        if not add_special_tokens:
            return ids
        return [*self._vocabulary.prefix_ids, *ids, *self._vocabulary.suffix_ids]

    def _ids_at_once(
        self, backend: Backend, text: str, start: int = 0, whole_chars: int | None = None
    ) -> list[int]:
        with encoding(text, start, whole_chars):
            if (growth := self._vocabulary.growth) > ORDINARY_GROWTH:
                check_growth(backend.normalizer, text, growth)
            # Of the library's ways to encode, the one without offsets is the quickest at every
            # length, and those for batches let other threads run meanwhile: `encode` keeps the GIL
            # for seconds.
            try:
                (encoded,) = backend.encode_batch_fast([text], add_special_tokens=False)
            except TypeError:  # what the library makes of a lone surrogate
                whole = whole_text(text)
                (encoded,) = backend.encode_batch_fast([whole], add_special_tokens=False)
            ids: list[int] = encoded.ids
            return ids

    def _spell(self, token_id: int) -> bytes:
        literal = self._vocabulary.literal.get(token_id)
        if literal is not None:
            return literal.encode("utf-8", "replace")
        spell = _SPELLINGS.get(self._vocabulary.spelling)
        if spell is None:
            raise UnsupportedModelError(
                f"this tokenizer cannot be decoded ({self._vocabulary.spelling}); text is made "
                f"with byte-level or SentencePiece vocabularies"
            )
        piece = self._vocabulary.piece(token_id)
        return b"" if piece is None else spell(piece)

    def _ids(
        self,
        backend: Backend,
        text: str,
        bound: TextBound | None,
        start: int = 0,
        whole_chars: int | None = None,
    ) -> list[int]:
        """Token ids of a text; a long one is encoded in slices, which changes none of them.

        start, whole_chars: as of `library.encoding`, for errors.
        """
        whole_chars = whole_chars or len(text)
        if len(text) <= WHOLE_CHARS:
            return self._ids_at_once(backend, text, start, whole_chars)
        ids: list[int] = []
        for at, piece in self._cuts.slices(text, bound.uncut_bytes if bound else None):
            ids += self._ids_at_once(backend, piece, start + at, whole_chars)
            if bound is not None and len(ids) > bound.tokens:
                raise TextTooLongError(least_tokens=len(ids))
        return ids

    def _plain(
        self,
        text: str,
        bound: TextBound | None,
        *,
        first: bool,
        start: int = 0,
        whole_chars: int | None = None,
    ) -> list[int]:
        """Ids of text that forbids control tokens. first: it begins the whole input."""
        backend = self._plain_backends[0 if first else 1]
        ids = self._ids(backend, text, bound, start, whole_chars)
        return without_control(ids, self._control_ids, self._vocabulary)

    def _encode_guarded(
        self, text: str, allowed: list[tuple[int, int]], bound: TextBound | None
    ) -> list[int]:
        """Split at the control tokens found within allowed runs; the rest is encoded as plain."""
        ids: list[int] = []
        done = 0
        strip_next = False
        matches = [m for run in allowed for m in self._control_pattern.finditer(text, *run)]
        for match in [*matches, None]:
            token_id, token = self._control_by_text[match.group()] if match else (-1, None)
            if match and token and token.single_word and _in_a_word(text, *match.span()):
                continue
            plain = text[done : match.start() if match else len(text)]
            start = done
            if strip_next:
                plain = plain.lstrip(WHITE_SPACE)
                start = (match.start() if match else len(text)) - len(plain)
            if token is not None and token.lstrip:
                plain = plain.rstrip(WHITE_SPACE)
            ids += self._plain(plain, bound, first=done == 0, start=start, whole_chars=len(text))
            if bound is not None and len(text) > WHOLE_CHARS and len(ids) > bound.tokens:
                raise TextTooLongError(least_tokens=len(ids))
            if match and token is not None:
                ids.append(token_id)
                done, strip_next = match.end(), token.rstrip
        return ids

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return control_ids(self._vocabulary)

    @cached_property
    def _control_by_text(self) -> dict[str, tuple[int, AddedToken]]:
        """Special tokens by the text they are found by."""
        added = self._vocabulary.backend.get_added_tokens_decoder()
        special = self._vocabulary.special_ids
        return {
            token.content: (token_id, token)
            for token_id, token in added.items()
            if token_id in special and token.content
        }

    @cached_property
    def _takes_white_space(self) -> bool:
        added = self._vocabulary.backend.get_added_tokens_decoder().values()
        return any(token.lstrip or token.rstrip for token in added)

    @cached_property
    def _cuts(self) -> Cuts:
        return cuts_of(self._vocabulary)

    @cached_property
    def _most_token_bytes(self) -> int | None:
        from headrace.text.token_bound import most_token_bytes

        with building(_BUILT):
            return most_token_bytes(self._vocabulary)

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        # Without control tokens: a pattern that matches nowhere.
        texts = sorted(self._control_by_text, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or "(?!)")

    def _make_plain_backends(self) -> tuple[Backend, Backend]:
        """Backends that read control tokens as text: for the start of a text, and for later."""
        from headrace.text.plain_backend import plain_backend

        with building(_BUILT):
            first = plain_backend(self._vocabulary.backend, text_start=True)
            return first, plain_backend(self._vocabulary.backend, text_start=False)


def _in_a_word(text: str, start: int, end: int) -> bool:
    """Whether a letter, digit or underscore stands before or behind this part of the text."""
    around = text[max(0, start - 1) : start], text[end : end + 1]
    return any(re.fullmatch(r"\w", char) for char in around)


def _allowed_runs(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Spans [start, end) of the joined text in which special tokens are recognised."""
    runs: list[tuple[int, int]] = []
    position = 0
    for piece, allowed in segments:
        end = position + len(piece)
        if allowed and piece:
            if runs and runs[-1][1] == position:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((position, end))
        position = end
    return runs
