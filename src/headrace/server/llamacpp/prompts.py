"""Prompts of llama-server's endpoints as token ids: parts of text and ids, and gaps to fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.engine.limits import check_token_ids
from headrace.errors import RequestError
from headrace.protocol.llamacpp.request import InfillBody, PromptPart
from headrace.server.model.served import ServedModel
from headrace.server.prompts.fill_in import fill_in_marks
from headrace.server.prompts.params import exceeds_context
from headrace.server.prompts.prompt import tokenize
from headrace.text.library import naming

if TYPE_CHECKING:
    from headrace.text import Tokenizer

# Names of what else such models are trained with: Qwen's and StarCoder's.
_REPOSITORY = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
_FILE = ("<|file_sep|>",)

# What llama-server writes where a client has no name for it.
_PROJECT = "myproject\n"
_OPEN_FILE = "filename\n"
_BETWEEN_CHUNKS = "\n\n--- snippet ---\n\n"


class GapMarks(NamedTuple):
    """The marks of a vocabulary with which a gap is described."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None
    file: int | None


def gap_marks(tokenizer: Tokenizer) -> GapMarks | None:
    """The marks; None for a model that has none."""
    marks = fill_in_marks(tokenizer)
    if marks is None:
        return None
    prefix, suffix, middle = (tokenizer.token_to_id(mark) for mark in marks)
    if prefix is None or suffix is None or middle is None:
        return None
    repository, file = _first(tokenizer, _REPOSITORY), _first(tokenizer, _FILE)
    return GapMarks(prefix, suffix, middle, repository, file)


def _first(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    for name in names:
        token_id = tokenizer.token_to_id(name)
        if token_id is not None:
            return token_id
    return None


def prompt_ids(model: ServedModel, parts: Sequence[PromptPart], param: str) -> list[int]:
    """The ids of a prompt. Special tokens written in a text are taken as such; those that the
    tokenizer adds come where it begins with a text.

    Raises RequestError for a text the tokenizer fails on or that is too long for the context.
    """
    for part in parts:
        check_token_ids(part.token_ids, model.limits, param)
    if len(parts) == 1 and parts[0].token_ids:
        return list(parts[0].token_ids)
    ids: list[int] = []
    for index, part in enumerate(parts):
        if part.token_ids:
            ids += part.token_ids
        else:
            ids += tokenize(
                model, part.text, add_special_tokens=index == 0, param=param, must_fit=True
            )
        if len(ids) >= model.limits.context_tokens:
            raise exceeds_context(len(ids), model.limits, param)
    return ids


def infill_ids(model: ServedModel, body: InfillBody) -> list[int]:
    """The prompt for a gap:

        [repository] project ([file] name text)* [file] name
        [BOS] [prefix] input_prefix prompt [suffix] input_suffix [middle]

    where the vocabulary has those marks. Nothing is cut: what does not fit is refused. Source:
    llama-server's README and the model card of Qwen2.5-Coder. Raises RequestError for a model
    without marks, and for a text that is too long.
    """
    marks = gap_marks(model.tokenizer)
    if marks is None:
        raise RequestError(
            f"{model.name} has no tokens for filling a gap (such as <|fim_prefix|>); use a model "
            "that was trained for it, or /completion",
            code="unsupported",
        )

    def text(value: str, param: str) -> list[int]:
        return _plain(model, value, param)

    ids: list[int] = []
    if marks.repository is not None:
        ids += [marks.repository, *text(_PROJECT, "input_extra")]
    for index, chunk in enumerate(body.input_extra):
        param = f"input_extra[{index}]"
        if marks.file is None:
            ids += text(_BETWEEN_CHUNKS, param)
        else:
            ids += [marks.file, *text(f"{chunk.filename}\n", f"{param}.filename")]
        ids += text(chunk.text, f"{param}.text")
        if len(ids) >= model.limits.context_tokens:
            raise exceeds_context(len(ids), model.limits, "input_extra")
    if marks.file is not None:
        ids += [marks.file, *text(_OPEN_FILE, "input_extra")]
    bos = model.tokenizer.bos_token_id
    begins = model.tokenizer.encode("", add_special_tokens=True)[:1] == [bos]
    return [
        *ids,
        *([bos] if bos is not None and begins else []),
        marks.prefix,
        *text(body.input_prefix, "input_prefix"),
        *text(body.prompt, "prompt"),
        marks.suffix,
        *text(body.input_suffix, "input_suffix"),
        marks.middle,
    ]


def _plain(model: ServedModel, text: str, param: str) -> list[int]:
    """Ids of a text in which no mark is one: code may have them in a string."""
    tokenizer = model.tokenizer
    if tokenizer.fewest_tokens(text) >= model.limits.context_tokens:
        raise exceeds_context(tokenizer.fewest_tokens(text), model.limits, param)
    with naming(param):
        return tokenizer.encode(text, add_special_tokens=False, parse_special=False)
