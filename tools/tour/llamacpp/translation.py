"""llama-server's names of paths and fields, as those of `headrace serve`, and replies back.

Names change and nothing else does: what a reply here has no figure for stays out, and a field that
headrace refuses is passed on as it is, so that the refusal is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
# Paths whose requests and replies have llama-server's own form.
COMPLETION_PATHS = frozenset({"/completion", "/completions"})
GENERATION_PATHS = frozenset({
    *COMPLETION_PATHS, "/v1/completions", "/chat/completions", "/v1/chat/completions",
})  # fmt: skip
COUNTING_PATHS = frozenset({
    "/chat/completions/input_tokens", "/v1/chat/completions/input_tokens",
})  # fmt: skip
# A fingerprint here, and a build's name there, which begins with a b.
_FINGERPRINT = (b'"system_fingerprint":"', b'"system_fingerprint":"b-')
# What a prompt of theirs may be written as, in place of a string.
PROMPT_STRING = "prompt_string"


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
    if "model" in out and out["model"] not in served:
        del out["model"]
    return out


def completion_request(body: Json) -> Json:
    """Turn a request for `/completion` into one for `/v1/completions`."""
    out = dict(body)
    out["prompt"] = _prompt(out.get("prompt"))
    if probabilities := out.pop("n_probs", 0):
        out["logprobs"] = probabilities
        out["return_tokens_as_token_ids"] = True
    if isinstance(bias := out.get("logit_bias"), list):
        out["logit_bias"] = {str(pair[0]): pair[1] for pair in bias}
    for name in ("return_tokens", "response_fields"):
        out.pop(name, None)
    return {**out, "return_token_ids": True, "return_metrics": True}


def _prompt(prompt: Any) -> Any:
    if isinstance(prompt, dict) and prompt.keys() == {PROMPT_STRING}:
        return prompt[PROMPT_STRING]
    if isinstance(prompt, list):
        return [_prompt(part) if isinstance(part, dict) else part for part in prompt]
    return prompt


def completion_reply(
    choice: Json, request: Json, context_tokens: int, pieces: Mapping[int, str]
) -> Json:
    """Turn a whole choice into a reply of `/completion`."""
    tokens: list[int] = choice["token_ids"]
    out = {
        "index": choice["index"],
        "content": choice["text"],
        "tokens": tokens if request.get("return_tokens") else [],
        "stop": True,
        **ending(choice, len(choice["prompt_token_ids"]), len(tokens), context_tokens),
        "has_new_line": "\n" in choice["text"],
    }
    if choice.get("logprobs"):
        out["completion_probabilities"] = probabilities_of(
            choice["logprobs"], pieces, request["n_probs"]
        )
    return out


def ending(choice: Json, n_prompt: int, n_output: int, context_tokens: int) -> Json:
    """Say how and after how many tokens a text ended."""
    limit = choice["finish_reason"] == "length"
    out: Json = {
        "stop_type": "limit" if limit else "word" if choice.get("stop_reason") else "eos",
        "truncated": limit and n_prompt + n_output >= context_tokens,
        "tokens_evaluated": n_prompt,
        "tokens_predicted": n_output,
    }
    if metrics := choice.get("metrics"):
        out["timings"] = timings(metrics, n_prompt, n_output)
    return out


def timings(metrics: Json, n_prompt: int, n_output: int) -> Json:
    """Name the figures of `return_metrics` as theirs are named; rates are those reported."""
    cached = metrics["cached_tokens"] or 0
    prompt_ms = 1e3 * (metrics["prefill_s"] or 0.0)
    rate = metrics["output_tokens_per_s"] or 0.0
    return {
        "cache_n": cached,
        "prompt_n": n_prompt - cached,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / max(n_prompt - cached, 1),
        "predicted_n": n_output,
        "predicted_ms": 1e3 * (metrics["decode_s"] or 0.0),
        "predicted_per_second": rate,
        "predicted_per_token_ms": 1e3 / rate if rate else 0.0,
    }


def ids_of(logprobs: Json) -> set[int]:
    """Collect the ids that log probabilities name, for their pieces."""
    ids = {_id(name) for name in logprobs["tokens"]}
    return ids | {_id(name) for top in logprobs["top_logprobs"] for name in top}


def probabilities_of(logprobs: Json, pieces: Mapping[int, str], count: int) -> list[Json]:
    """Turn the columns of log probabilities into an entry for each token."""
    columns = zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    )
    rows = []
    for name, logprob, top in columns:
        # The sampled token is there too where it is not among the likeliest.
        best = sorted(top.items(), key=lambda item: -item[1])[:count]
        rivals = [_row(rival, value, pieces) for rival, value in best]
        rows.append({**_row(name, logprob, pieces), "top_logprobs": rivals})
    return rows


def _row(name: str, logprob: float, pieces: Mapping[int, str]) -> Json:
    piece = pieces[_id(name)]
    return {
        "id": _id(name), "token": piece, "bytes": list(piece.encode()), "logprob": logprob
    }  # fmt: skip


def _id(name: str) -> int:
    return int(name.removeprefix("token_id:"))


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


class CompletionStream:
    """The events of one stream of `/v1/completions`, as those of `/completion`."""

    def __init__(self, context_tokens: int, count: int) -> None:
        self._context_tokens = context_tokens
        self._count = count
        self._n_prompt = 0
        self._n_output = 0
        self._text = ""

    def events(self, event: Json, pieces: Mapping[int, str]) -> list[Json]:
        """What follows from one event of the server's."""
        if "error" in event:
            return [event]
        if not event["choices"]:
            return self._progress(event)
        (choice,) = event["choices"]
        self._n_prompt = len(choice.get("prompt_token_ids") or ()) or self._n_prompt
        ids: list[int] = choice.get("token_ids") or []
        self._n_output += len(ids)
        self._text += choice["text"]
        out: list[Json] = []
        if ids:
            part = {"content": choice["text"], "tokens": ids, "stop": False}
            if choice.get("logprobs"):
                part["completion_probabilities"] = probabilities_of(
                    choice["logprobs"], pieces, self._count
                )
            out.append(part)
        if choice["finish_reason"] is not None:
            end = ending(choice, self._n_prompt, self._n_output, self._context_tokens)
            last = {"content": "", "tokens": [], "stop": True, **end}
            out.append({**last, "has_new_line": "\n" in self._text})
        return out

    def _progress(self, event: Json) -> list[Json]:
        if "prompt_progress" not in event:
            return []
        progress = {"prompt_progress": event["prompt_progress"]}
        return [{"content": "", "tokens": [], "stop": False, **progress}]
