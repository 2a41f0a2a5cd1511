"""A text file as the token ids that are scored."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import ConfigError
from headrace.eval.windows import cut_windows
from headrace.text.tokenizer import load_tokenizer
from headrace.weights.checkpoint import Checkpoint


def windows_of_file(
    checkpoint: Checkpoint,
    path: Path,
    context: int,
    *,
    limit: int | None = None,
    pre: str | None = None,
) -> list[list[int]]:
    """Windows of the file's text, by the checkpoint's tokenizer; control tokens are plain text.

    pre: the pre-tokenizer's name, instead of the one in a GGUF file.
    Raises ConfigError where the file cannot be read, is not UTF-8 or is too short.
    """
    try:
        # As bytes: reading as text would turn \r\n into \n, which are other tokens.
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"--text {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--text {path} is not UTF-8 at byte {error.start}") from error
    tokenizer = load_tokenizer(checkpoint.tokenizer, checkpoint.eos_token_ids, pre=pre)
    ids = tokenizer.encode(text, add_special_tokens=True, parse_special=False)
    bos = tokenizer.bos_token_id
    begins = bos is not None and ids[:1] == [bos]
    return cut_windows(ids, context, bos=bos if begins else None, limit=limit)
