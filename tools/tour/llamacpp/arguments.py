"""llama-server's command line, read into what `headrace serve` and the translation need.

A flag that is not known here is ignored, as the test that needs what it turns on then fails.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

# The one repository of their presets whose model lies in the assets.
STORIES = "ggml-org/test-model-stories260K"
# Length of the position tables that its file asks for.
LONGEST_CONTEXT = 2048
# Templates that llama-server knows by name; the wording is that of the models' own.
_HEADER = "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
_TURN = "{% if add_generation_prompt %}"
TEMPLATES = {
    "chatml": (
        "{{ bos_token }}{% for m in messages %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        + _TURN
        + "<|im_start|>assistant\n{% endif %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}"
        + _HEADER
        + "{% endfor %}"
        + _TURN
        + "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "command-r": (
        "{% for m in messages %}<|START_OF_TURN_TOKEN|>"
        "<|{{ {'user': 'USER', 'assistant': 'CHATBOT', 'system': 'SYSTEM'}[m.role] }}_TOKEN|>"
        "{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
        + _TURN
        + "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
    ),
}
DEFAULT_TEMPLATE = "chatml"


class Unavailable(Exception):
    """A model or a service that the tour does not have."""


@dataclass(frozen=True)
class Settings:
    """What a command line of llama-server requests."""

    port: int
    """Port to listen on."""
    hosts: tuple[str, ...]
    """Addresses to listen on, loopback only."""
    temperature: float
    """Temperature of requests that leave it out."""
    seed: int
    """Seed of requests that leave it out."""
    max_tokens: int
    """Most tokens of requests that leave them out; -1: to the context's end."""
    context_tokens: int
    """Tokens that one request may have."""
    slots: bool
    """Whether `/slots` answers."""
    serve: tuple[str, ...] = field(default=())
    """Further arguments of `headrace serve`."""
    template: str | None = None
    """Text of a chat template, to be written to a file."""


def read(arguments: Sequence[str]) -> Settings:
    """Read a command line; `Unavailable` where it needs what the tour does not have."""
    given, _ = _parser().parse_known_args(arguments)
    _check(given)
    slots = max(given.parallel, 1)
    tokens = given.ctx_size if given.kv_unified else given.ctx_size // slots
    context_tokens = min(tokens, LONGEST_CONTEXT)
    serve = ["--max-model-len", str(context_tokens), "--max-num-seqs", str(slots)]
    serve += ["--max-num-batched-tokens", str(max(given.batch_size, slots))]
    for name in (given.alias or "").split(","):
        serve += ["--served-model-name", name] if name else []
    if given.api_key:
        serve += ["--api-key", given.api_key]
    if given.reasoning:
        # `auto` sets the variable there, too.
        thinks = {"enable_thinking": given.reasoning != "off"}
        serve += ["--default-chat-template-kwargs", json.dumps(thinks)]
    template = None
    if given.chat_template_file:
        serve += ["--chat-template", str(Path(given.chat_template_file).resolve())]
    else:
        name = given.chat_template or DEFAULT_TEMPLATE
        template = TEMPLATES.get(name, name)
    return Settings(
        given.port, tuple(host.strip() for host in given.host.split(",")), given.temp, given.seed,
        given.n_predict, context_tokens, given.slots, tuple(serve), template,
    )  # fmt: skip


def _check(given: argparse.Namespace) -> None:
    for host in given.host.split(","):
        if host.strip() not in ("127.0.0.1", "::1", "localhost"):
            raise Unavailable(f"host {host}: the tour listens on loopback only")
    if given.hf_repo != STORIES or given.hf_file or given.model or given.model_url:
        raise Unavailable(f"model {given.hf_repo or given.model}: only {STORIES} is here")
    for name in ("lora", "mmproj_url", "model_draft", "embedding", "reranking"):
        if getattr(given, name):
            raise Unavailable(f"--{name.replace('_', '-')} is not there")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False, add_help=False)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--n-predict", type=int, default=-1)
    parser.add_argument("--ctx-size", type=int, default=LONGEST_CONTEXT)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=512)
    for text in (
        "--hf-repo", "--hf-file", "--model", "--model-url", "--model-draft", "--mmproj-url",
        "--lora", "--alias", "--api-key", "--chat-template", "--chat-template-file", "--reasoning",
    ):  # fmt: skip
        parser.add_argument(text, default="")
    for switch in ("--kv-unified", "--slots", "--embedding", "--reranking"):
        parser.add_argument(switch, action="store_true")
    return parser
