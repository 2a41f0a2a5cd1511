"""The embedding endpoint of the benchmarks, with a tiny encoder of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from benchmarks.minilm_endpoint import MiniLM, application

WIDTH, INNER, LAYERS = 8, 16, 2
WORDS = ["[UNK]", "how", "do", "I", "pay", "you"]


@pytest.fixture
def model(tmp_path: Path) -> MiniLM:
    config = {
        "model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": LAYERS,
        "num_attention_heads": 2, "layer_norm_eps": 1e-12,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = np.random.default_rng(1)

    def drawn(*shape: int) -> np.ndarray:
        return source.normal(size=shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": drawn(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": drawn(300, WIDTH),
        "embeddings.token_type_embeddings.weight": drawn(2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        sizes = {f"attention.self.{each}": (WIDTH, WIDTH) for each in ("query", "key", "value")}
        sizes |= {
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (INNER, WIDTH),
            "output.dense": (WIDTH, INNER),
        }
        for name, shape in sizes.items():
            weights[f"{at}.{name}.weight"] = drawn(*shape)
            weights[f"{at}.{name}.bias"] = drawn(shape[0])
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    for name in norms:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = drawn(WIDTH), drawn(WIDTH)
    save_file(weights, tmp_path / "model.safetensors")
    return MiniLM(tmp_path)


def test_vectors_have_length_one_and_know_the_order_of_words(model: MiniLM) -> None:
    vector, count = model.embed("how do I pay you")
    assert count == 5 and vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    other, _ = model.embed("how do you pay I")
    assert float(vector @ other) < 0.99999
    assert np.array_equal(model.embed("how do I pay you")[0], vector)
    assert model.embed("pay " * 1000)[1] == 256


def test_it_speaks_openais_embeddings(model: MiniLM) -> None:
    client = TestClient(application(model))
    told = client.post("/v1/embeddings", json={"model": "m", "input": ["how", "do I pay"]}).json()
    assert [each["index"] for each in told["data"]] == [0, 1]
    assert told["data"][1]["embedding"] == pytest.approx(model.embed("do I pay")[0].tolist())
    assert told["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    one = client.post("/v1/embeddings", json={"model": "m", "input": "how"}).json()
    assert one["data"][0]["embedding"] == told["data"][0]["embedding"]
    assert client.post("/v1/embeddings", json={"model": "m", "input": [[1]]}).status_code == 400
