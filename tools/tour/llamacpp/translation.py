"""llama-server's names of paths and fields, as those of `headrace serve`, and replies back.

Names change and nothing else does: what a reply here has no figure for stays out, and a field that
headrace refuses is passed on as it is, so that the refusal is seen.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
# Both are llama-server's own there; here the second is OpenAI's.
COMPLETION_PATHS = frozenset({"/completion", "/completions"})
GENERATION_PATHS = frozenset({
    *COMPLETION_PATHS, "/v1/completions", "/chat/completions", "/v1/chat/completions",
})  # fmt: skip
RESPONSES_PATHS = frozenset({"/responses", "/v1/responses"})
COUNTING_PATHS = frozenset({
    "/chat/completions/input_tokens", "/v1/chat/completions/input_tokens",
})  # fmt: skip
# A fingerprint here, and a build's name there, which begins with a b.
_FINGERPRINT = (b'"system_fingerprint":"', b'"system_fingerprint":"b-')


def with_defaults(
    body: Json, temperature: float, seed: int, max_tokens: int, served: frozenset[str]
) -> Json:
    """Give a request the server's defaults, and leave out a model that is not served."""
    out = dict(body)
    for name, value in (("temperature", temperature), ("seed", seed)):
        if out.get(name) is None:
            out[name] = value
    if (limit := out.pop("n_predict", None)) is not None and "max_tokens" not in out:
        out["max_tokens"] = limit
    if "max_tokens" not in out and "max_completion_tokens" not in out and max_tokens > 0:
        out["max_tokens"] = max_tokens
    return of_served(out, served)


def of_served(body: Json, served: frozenset[str]) -> Json:
    """Leave out a model that is not served."""
    return {name: value for name, value in body.items() if name != "model" or value in served}


def native_request(
    body: Json, temperature: float, seed: int, max_tokens: int, served: frozenset[str]
) -> Json:
    """Give a request for `/completion` the server's defaults, and leave out another model."""
    out = dict(body)
    for name, value in (("temperature", temperature), ("seed", seed)):
        if out.get(name) is None:
            out[name] = value
    asked = out.get("n_predict", out.pop("max_tokens", None))
    out["n_predict"] = max_tokens if asked is None else asked
    return of_served(out, served)


def tokenize_request(body: Json) -> Json:
    """Turn their request for `/tokenize` into one here."""
    out = {name: value for name, value in body.items() if name != "content"}
    if "content" in body:
        out["prompt"] = body["content"]
    out["add_special_tokens"] = out.pop("add_special", False)
    out["return_token_strs"] = out.pop("with_pieces", False)
    return out


def tokenize_reply(reply: Json) -> Json:
    """Turn ids, and their strings where they were requested, into their form."""
    if (pieces := reply.get("token_strs")) is None:
        return {"tokens": reply["tokens"]}
    pairs = zip(reply["tokens"], pieces, strict=True)
    return {"tokens": [{"id": token_id, "piece": piece} for token_id, piece in pairs]}


def slots(metrics: str, count: int, context_tokens: int) -> list[Json]:
    """Show as many seats as busy as requests run; a seat here has no state of its own."""
    running = 0
    for line in metrics.splitlines():
        if line.startswith("vllm:num_requests_running"):
            running = round(float(line.rsplit(" ", 1)[1]))
    return [
        {"id": seat, "n_ctx": context_tokens, "is_processing": seat < running}
        for seat in range(count)
    ]


def with_build(part: bytes) -> bytes:
    """Write the fingerprint in a whole reply or event as builds are named there."""
    return part.replace(*_FINGERPRINT)
