"""The export: what transformers and readers of GGUF see of a checkpoint is what is in it."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.training.toy_training import SHAPE, documents, write_data
from training.data.tokenizer import CHAT_TEMPLATE_FILE, train_tokenizer
from training.export import NOTE_METADATA_KEY, export, gguf_metadata
from training.measure.llama_server import LlamaServer
from training.models.config import NOTE_KEY, ModelConfig, read_note

PROGRESS = {"step": 12, "tokens": 123_456, "counted_s": 600.0, "heldout_loss": 2.3456}
SETTINGS = {"tokens": 123_000}


def random_weights(config: ModelConfig) -> dict[str, np.ndarray]:
    """Weights under Qwen3's names; norms about one, so that a forgotten one shows."""
    generator = np.random.default_rng(1)
    d, f, e = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_attention_heads * e, config.num_key_value_heads * e
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens": (config.vocab_size, d),
        "norm": (d,),
    }
    for layer in range(config.num_hidden_layers):
        inside = {
            "input_layernorm": (d,),
            "self_attn.q_proj": (q, d),
            "self_attn.k_proj": (kv, d),
            "self_attn.v_proj": (kv, d),
            "self_attn.o_proj": (d, q),
            "self_attn.q_norm": (e,),
            "self_attn.k_norm": (e,),
            "post_attention_layernorm": (d,),
            "mlp.gate_proj": (f, d),
            "mlp.up_proj": (f, d),
            "mlp.down_proj": (d, f),
        }
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in inside.items()}
    return {
        f"model.{name}.weight": (generator.standard_normal(shape) * 0.2 + (len(shape) == 1)).astype(
            np.float32
        )
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A run `base` of a toy, exported to `hf` and model.gguf; and its weights."""
    folder = tmp_path_factory.mktemp("export")
    write_data(folder)
    weights = random_weights(SHAPE)
    moments = {f"optimizer.exp_avg.{name}": weight for name, weight in weights.items()}
    note = {"progress": PROGRESS, "settings": SETTINGS, "model": asdict(SHAPE)}
    (folder / "base").mkdir()
    checkpoint = folder / "base" / "checkpoint.safetensors"
    save_file(weights | moments, checkpoint, metadata={NOTE_KEY: json.dumps(note)})
    export(folder / "base", folder, folder / "hf", folder / "model.gguf", "toy", "Is a toy.")
    return folder, weights


def test_the_folder_holds_the_model_alone(exported: tuple[Path, dict[str, np.ndarray]]) -> None:
    folder, weights = exported
    written = load_file(folder / "hf" / "model.safetensors")
    assert written.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(written[name], weight)
    config = json.loads((folder / "hf" / "config.json").read_text())
    assert config["model_type"] == "qwen3" and config["tie_word_embeddings"] is True
    assert {key: config[key] for key in asdict(SHAPE)} == asdict(SHAPE)
    generation = json.loads((folder / "hf" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 0]
    raw, served = (
        json.loads((folder / part / "tokenizer.json").read_text()) for part in ("tokenizer", "hf")
    )
    # What is served begins every text as every document of training began.
    assert served.pop("post_processor")["special_tokens"]["<|endoftext|>"]["ids"] == [0]
    assert raw.pop("post_processor") is None
    assert raw == served
    config = "tokenizer_config.json"
    assert (folder / "hf" / config).read_bytes() == (folder / "tokenizer" / config).read_bytes()


def test_the_gguf_file_says_what_the_folder_says(
    exported: tuple[Path, dict[str, np.ndarray]],
) -> None:
    folder, weights = exported
    reader = gguf.GGUFReader(folder / "model.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    for key, value in {
        "general.architecture": "qwen3",
        "general.name": "toy",
        "general.description": "Is a toy.",
        "general.license": "Apache-2.0",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 0,
        "tokenizer.ggml.fim_pre_token_id": 3,
        "tokenizer.ggml.fim_mid_token_id": 4,
        "tokenizer.ggml.fim_suf_token_id": 5,
        "tokenizer.chat_template": CHAT_TEMPLATE_FILE.read_text(),
    }.items():
        assert fields[key] == value, key
    tokens = fields["tokenizer.ggml.tokens"]
    for role, text in {"pre": "prefix", "mid": "middle", "suf": "suffix", "pad": "pad"}.items():
        assert tokens[fields[f"tokenizer.ggml.fim_{role}_token_id"]] == f"<|fim_{text}|>"
    assert tokens[fields["tokenizer.ggml.fim_rep_token_id"]] == "<|repo_name|>"
    assert tokens[fields["tokenizer.ggml.fim_sep_token_id"]] == "<|file_sep|>"
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert len(stored) == len(weights)
    for gguf_name, name in {
        "token_embd": "embed_tokens",
        "blk.0.attn_q": "layers.0.self_attn.q_proj",
        "blk.1.attn_k": "layers.1.self_attn.k_proj",
        "blk.1.ffn_down": "layers.1.mlp.down_proj",
    }.items():
        weight, tensor = weights[f"model.{name}.weight"], stored[f"{gguf_name}.weight"]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        # Half a step of 1/127 of the block's largest, and the scale's own rounding to float16.
        largest = np.abs(weight).reshape(-1, 32).max(axis=1, keepdims=True)
        error = np.abs(values - weight).reshape(-1, 32)
        assert (error <= largest * (0.5 / 127 + 2.0**-10)).all(), name
    norm = stored["blk.0.attn_q_norm.weight"]
    np.testing.assert_array_equal(norm.data, weights["model.layers.0.self_attn.q_norm.weight"])


def test_both_ends_of_text_end_an_answer_in_headrace(
    exported: tuple[Path, dict[str, np.ndarray]],
) -> None:
    from headrace.weights.open import open_checkpoint

    folder, _ = exported
    for path in (folder / "hf", folder / "model.gguf"):
        assert set(open_checkpoint(path).eos_token_ids) == {0, 2}


@pytest.mark.torch
def test_transformers_and_headrace_agree_with_the_trainer(
    exported: tuple[Path, dict[str, np.ndarray]],
) -> None:
    pytest.importorskip("torch", reason="the trainer's model needs PyTorch")
    pytest.importorskip("transformers", reason="the comparison needs transformers")
    from training.measure import verify

    folder, _ = exported
    lines = (folder / "corpus" / "heldout.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    # Longer documents: the toy's are shorter than the windows that are compared.
    joined = ["".join(texts[i : i + 40]) for i in range(0, 480, 40)]
    (folder / "corpus" / "heldout.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in joined)
    )
    report = verify.verify(folder / "base", folder, folder / "hf", None)
    assert report["logit_difference"] < verify.MAX_LOGIT_DIFFERENCE
    assert [entry["what"] for entry in report["exact"]] == [
        "headrace, F32 folder",
        "headrace, F32 GGUF",
    ]
    for entry in report["exact"]:
        assert entry["same_tokens"] == entry["tokens"] > 100
    assert report["left_out"] == ["llama.cpp: no --llama-server was given"]
    assert verify.failures(report) == []
    report["exact"][0]["same_prompts"] -= 1
    report["logit_difference"] = float("nan")
    assert len(verify.failures(report)) == 2


@pytest.mark.torch
def test_agreement_counts_up_to_the_first_difference() -> None:
    pytest.importorskip("torch", reason="the module compares PyTorch models")
    from training.measure.verify import agreement, prompts_of

    one = [[5, 6, 7], [5, 6, 2, 9], [5], []]
    other = [[5, 9, 7], [5, 6], [5], [0, 4]]
    found = agreement("x", one, other)
    assert (found.same_prompts, found.prompts) == (3, 4)
    assert (found.same_tokens, found.tokens) == (1 + 2 + 1 + 0, 3 + 2 + 1 + 0)
    with pytest.raises(ValueError, match="has 0 documents of more than 48 tokens, 10 are needed"):
        prompts_of(["short"], train_tokenizer(documents(50), 330), 48)


SERVER = """\
#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def answer(self, value):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def do_GET(self):
        self.answer({{"status": "ok"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["temperature"] == 0 and asked["return_tokens"]
        self.answer({{"tokens": [id + 1 for id in asked["prompt"]][: asked["n_predict"]]}})

    def log_message(self, *arguments):
        pass

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
open(options["-m"] + ".pid", "w").write(str(os.getpid()))
HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_llama_server_is_started_asked_and_stopped(tmp_path: Path) -> None:
    fake = program(tmp_path / "llama-server", SERVER.format(python=sys.executable))
    with LlamaServer(fake, tmp_path / "model.gguf") as server:
        assert server.greedy([5, 6, 7], 2) == [6, 7]
        process_id = int((tmp_path / "model.gguf.pid").read_text())
        os.kill(process_id, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_llama_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    fake = program(tmp_path / "llama-server", "#!/bin/sh\nexit 7\n")
    with pytest.raises(RuntimeError, match=r"not ready .*exit status 7"):
        LlamaServer(fake, tmp_path / "model.gguf").__enter__()


@pytest.mark.torch
def test_an_adapter_becomes_a_peft_folder_without_gguf(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="adapters are read with PyTorch")
    from training import adapters
    from training.models.lora import add_lora, load_adapter
    from training.models.model import LanguageModel

    model = LanguageModel(SHAPE)
    add_lora(model, adapters.LORA)
    with torch.no_grad():
        weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    note: dict[str, Any] = {
        "progress": PROGRESS,
        "settings": SETTINGS,
        "model": {"base": asdict(SHAPE), "lora": asdict(adapters.LORA)},
    }
    run = tmp_path / "typed"
    run.mkdir()
    save_file(weights, run / "checkpoint.safetensors", metadata={NOTE_KEY: json.dumps(note)})
    export(run, tmp_path, tmp_path / "adapter", None, "toy", "Is a toy.")
    tensors, config = load_adapter(tmp_path / "adapter")
    assert config.rank == adapters.LORA.rank
    assert len(tensors) == 2 * 7 * SHAPE.num_hidden_layers
    with pytest.raises(ValueError, match="leave out --gguf"):
        export(run, tmp_path, tmp_path / "adapter", tmp_path / "x.gguf", "toy", "Is a toy.")


def test_every_key_of_the_metadata_is_one_that_readers_know() -> None:
    known = {value for name, value in vars(gguf.Keys.Tokenizer).items() if name.isupper()}
    known |= {value for name, value in vars(gguf.Keys.General).items() if name.isupper()}
    assert set(gguf_metadata("a", "b", {})) - known == {NOTE_METADATA_KEY}


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="was not written by"):
        read_note(tmp_path / "other.safetensors")
