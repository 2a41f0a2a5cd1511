"""What counts as a name of the hub's or Ollama's, and what it says."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.weights.store.model_name import HubModel, OllamaModel, hub_model, ollama_model


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("org/name", HubModel("org/name")),
        ("Qwen/Qwen2.5-0.5B_x", HubModel("Qwen/Qwen2.5-0.5B_x")),
        ("org/name:Q4_K_M", HubModel("org/name", quant="Q4_K_M")),
        ("org/name@v1.0", HubModel("org/name", "v1.0")),
        ("org/name@refs/pr/7", HubModel("org/name", "refs/pr/7")),
        ("org/name@v1:Q8_0", HubModel("org/name", "v1", quant="Q8_0")),
        ("org/name:Q8_0@v1", HubModel("org/name", "v1", quant="Q8_0")),
        ("org/name/sub/x.gguf", HubModel("org/name", file="sub/x.gguf")),
        ("org/name@v1/x.gguf", HubModel("org/name", "v1", file="x.gguf")),
        ("hf://org/name", HubModel("org/name")),
        ("hf://gpt2@main", HubModel("gpt2")),
        ("hf.co/org/name:Q8_0", HubModel("org/name", quant="Q8_0")),
        ("https://huggingface.co/org/name", HubModel("org/name")),
        ("https://huggingface.co/org/name/tree/v2", HubModel("org/name", "v2")),
        (
            "https://huggingface.co/org/name/resolve/main/x-Q8_0.gguf?download=true",
            HubModel("org/name", file="x-Q8_0.gguf"),
        ),
    ],
)
def test_names_of_the_hub(text: str, model: HubModel) -> None:
    assert hub_model(text) == model
    assert hub_model(f"hf://{model}") == model


@pytest.mark.parametrize(
    "text",
    [
        "", "gpt2", "model.gguf", "dir/model.gguf", "dir/model.safetensors", "örg/name",
        "./org/name", "../org/name", "/org/name",
        "~/org/name", "a/b/c", "org/name/", "org/name/x.safetensors", "org/name/../x.gguf",
        "org/name//x.gguf", "org/.name", "org/name@a@b", "org/name@v1:Q8_0@v2", "org name/x",
    ],
)  # fmt: skip
def test_what_is_no_name_of_the_hub(text: str) -> None:
    assert hub_model(text) is None


@pytest.mark.parametrize("text", ["hf://", "hf://a/b/c", "https://huggingface.co/a/b/../c.gguf"])
def test_a_hub_name_said_outright_has_to_be_one(text: str) -> None:
    with pytest.raises(ConfigError, match="not a model of the hub"):
        hub_model(text)


@pytest.mark.parametrize(
    ("text", "model", "shown"),
    [
        ("llama3.2", OllamaModel("llama3.2"), "llama3.2:latest"),
        ("ollama://qwen3:0.6b", OllamaModel("qwen3", "0.6b"), "qwen3:0.6b"),
        ("ollama://me/mine", OllamaModel("mine", namespace="me"), "me/mine:latest"),
        (
            "ollama://hf.co/org/name-GGUF:Q8_0",
            OllamaModel("name-GGUF", "Q8_0", "org", "hf.co"),
            "hf.co/org/name-GGUF:Q8_0",
        ),
    ],
)
def test_names_of_ollama(text: str, model: OllamaModel, shown: str) -> None:
    assert ollama_model(text) == model
    assert str(model) == shown


@pytest.mark.parametrize("text", ["../x", "a/b/c/d", "a:b:c", "~/x", "..", "a/../b"])
def test_what_is_no_name_of_ollama(text: str) -> None:
    assert ollama_model(text) is None
    with pytest.raises(ConfigError, match="not a name of Ollama's"):
        ollama_model(f"ollama://{text}")
