"""Keys of services, by the shapes that their makers gave them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = re.compile(r"[0-9A-Za-z_-]*+")
_DOTTED = re.compile(r"[0-9A-Za-z_.-]*+")
_END_OF_BLOCK = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")


class _Shape(NamedTuple):
    """The form of a vendor's keys."""

    prefix: str
    least: int
    """Characters after the prefix."""
    run: re.Pattern[str] = _WORD


_SHAPES = (
    _Shape("sk-", 20),  # OpenAI, Anthropic, OpenRouter, DeepSeek, LiteLLM and many others
    _Shape("hr-", 40),  # headrace
    _Shape("gsk_", 40),  # Groq
    _Shape("xai-", 40),  # xAI
    _Shape("pplx-", 40),  # Perplexity
    _Shape("hf_", 30),  # Hugging Face
    _Shape("r8_", 30),  # Replicate
    _Shape("nvapi-", 40),  # NVIDIA
    _Shape("fw_", 20),  # Fireworks
    _Shape("csk-", 40),  # Cerebras
    _Shape("AIza", 35),  # Google
    _Shape("GOCSPX-", 20),
    _Shape("ya29.", 20, _DOTTED),
    _Shape("AKIA", 16),  # AWS
    _Shape("ASIA", 16),
    _Shape("ABSK", 60),
    _Shape("ghp_", 36),  # GitHub
    _Shape("gho_", 36),
    _Shape("ghu_", 36),
    _Shape("ghs_", 36),
    _Shape("ghr_", 36),
    _Shape("github_pat_", 40),
    _Shape("glpat-", 20),  # GitLab
    _Shape("xoxb-", 20),  # Slack
    _Shape("xoxp-", 20),
    _Shape("xoxa-", 20),
    _Shape("xoxs-", 20),
    _Shape("sk_live_", 20),  # Stripe
    _Shape("sk_test_", 20),
    _Shape("rk_live_", 20),
    _Shape("whsec_", 20),
    _Shape("SG.", 40, _DOTTED),  # SendGrid
    _Shape("npm_", 36),
    _Shape("pypi-", 60),
    _Shape("dop_v1_", 60),  # DigitalOcean
    _Shape("lsv2_", 30),  # LangSmith
    _Shape("eyJ", 40, _DOTTED),  # a JSON Web Token
)
_BY_PREFIX = {one.prefix: one for one in _SHAPES}
BLOCK = "-----BEGIN "
"""What private keys begin with, which may be many lines."""
PREFIXES = tuple(sorted([*_BY_PREFIX, BLOCK], key=len, reverse=True))
"""What keys begin with; the longest first, where one begins another."""

_PREFIX = re.compile(r"(?<![0-9A-Za-z_])(?:" + "|".join(map(re.escape, PREFIXES)) + ")")
_BLOCK_HEAD = re.compile(r"[A-Z ]{0,40}PRIVATE KEY-----")


def api_keys(text: str) -> Iterator[tuple[int, int]]:
    """Keys with a prefix of their maker, JSON Web Tokens, and private keys in PEM."""
    at = 0
    while found := _PREFIX.search(text, at):
        start, at = found.span()
        if found[0] == BLOCK:
            end = _block_end(text, at)
        else:
            at, end = _key_end(text, found[0], at)
        if end:
            yield start, end
            at = end


def _key_end(text: str, prefix: str, start: int) -> tuple[int, int]:
    """Where to continue, and where the key ends: 0 if there is no key."""
    shape = _BY_PREFIX[prefix]
    run = shape.run.match(text, start)
    assert run is not None
    told = run[0].rstrip(".-_")
    # Words with hyphens have no digits, and a token of three parts has two dots.
    if len(told) < shape.least or not any(map(str.isdigit, told)):
        return run.end(), 0
    if prefix == "eyJ" and told.count(".") < 1:
        return run.end(), 0
    return run.end(), start + len(told)


def _block_end(text: str, start: int) -> int:
    """0 if it is not a private key; the end of the text where its end is missing."""
    head = _BLOCK_HEAD.match(text, start)
    if head is None:
        return 0
    end = _END_OF_BLOCK.search(text, head.end())
    return len(text) if end is None else end.end()
