"""What an answer may be, as a value: a kind and a text, equal where the content is equal.

It goes with a request's parameters to the engine, which compiles it (`structured.compile`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["json_schema", "regex", "lark", "choice", "composed"]


class Grammar(msgspec.Struct, frozen=True):
    """The language that the text of an answer has to belong to."""

    kind: Kind
    """What `text` is written in."""
    text: str
    """"json_schema": a schema as JSON, with llguidance's options under "x-guidance". "regex": an
    expression in the syntax of Rust's regex crate, which the whole answer matches. "lark": a
    grammar in llguidance's dialect of Lark. "choice": a JSON list of strings, of which the answer
    is one. "composed": a JSON object of several grammars as llguidance takes them, of which the
    first refers to the others by their names; `structured.composition` writes it."""
