"""What files and words are taken for, and what is said of those that are nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.targets import read_targets


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def engine(*words: str) -> EngineSetup:
    (one,) = read_targets(words).engines
    return one


def test_a_script_over_several_lines(tmp_path: Path) -> None:
    script = written(tmp_path, "start.sh", """#!/bin/sh
# vllm serve nothing
export VLLM_ATTENTION_BACKEND=FLASHINFER
exec vllm serve org/model \\
  --max-num-seqs 32 --max-model-len 32k \\
  --speculative-config '{"model": "org/draft", "num_speculative_tokens": 4}' > log
""")  # fmt: skip
    one = engine(script)
    assert one.runtime == "vllm" and one.model and one.model.value == "org/model"
    assert one.max_num_seqs and one.max_num_seqs.where == f"{script}:5"
    assert one.max_model_len and one.max_model_len.value == 32_000
    assert one.draft_tokens and (one.draft_tokens.value, one.draft_tokens.where) == (
        4,
        f"{script}:6",
    )
    assert one.attention_backend and one.attention_backend.value == "FLASHINFER"


def test_a_systemd_unit(tmp_path: Path) -> None:
    unit = written(tmp_path, "llm.service",
                   "[Service]\nEnvironment=\"LLAMA_ARG_N_PARALLEL=4\"\n"
                   "ExecStart=/usr/bin/llama-server -m /m.gguf -c 8192 -fa\n")  # fmt: skip
    one = engine(unit)
    assert one.runtime == "llama.cpp" and one.max_num_seqs and one.max_num_seqs.value == 4
    assert one.flash_attention and one.flash_attention.value == "on"
    assert one.context_tokens and one.context_tokens.value == 2048


def test_compose_and_kubernetes(tmp_path: Path) -> None:
    compose = written(tmp_path, "compose.yaml", """services:
  llm:
    image: vllm/vllm-openai:latest
    command: --model org/model --max-num-seqs 8
  cpp:
    image: ghcr.io/ggml-org/llama.cpp:server
    command: ["-m", "/m.gguf"]
    environment: {LLAMA_ARG_CTX_SIZE: 4096}
  db: {image: postgres}
""")  # fmt: skip
    both = read_targets([compose]).engines
    assert [one.runtime for one in both] == ["vllm", "llama.cpp"]
    assert both[0].max_num_seqs and both[0].max_num_seqs.where == f"{compose}:4"
    assert both[1].total_context_tokens and both[1].total_context_tokens.value == 4096
    pod = written(tmp_path, "pod.yaml", """kind: Deployment
spec:
  template:
    spec:
      containers:
        - image: own
          command: ["sh", "-c", "vllm serve org/model -tp 2"]
""")  # fmt: skip
    one = engine(pod)
    assert one.tensor_parallel and one.tensor_parallel.value == 2


def test_settings_of_headrace_and_of_vllm(tmp_path: Path) -> None:
    own = engine(written(tmp_path, "own.yaml", "model: m\nmax-num-seqs: 8\nthreads: 2\n"))
    assert own.runtime == "headrace" and own.max_queued and own.max_queued.value == 512
    assert own.max_queued.where == "headrace's default"
    other = engine(
        written(
            tmp_path,
            "vllm.yaml",
            "enforce-eager: true\nload-format: auto\ngpu-memory-utilization: 0.9\n",
        )
    )
    assert other.runtime == "vllm" and other.memory_share and other.memory_share.value == 0.9
    (same,) = read_targets([str(tmp_path / "own.yaml")], runtime="vllm").engines
    assert same.runtime == "vllm" and same.max_queued is None


def test_a_command_and_the_file_under_it(tmp_path: Path) -> None:
    under = written(
        tmp_path, "vllm.yaml", "max-num-seqs: 8\nenforce-eager: true\nload-format: auto\n"
    )
    one = engine("vllm", "serve", "m", "--config", under, "--max-num-seqs", "4")
    assert one.max_num_seqs and one.max_num_seqs.value == 4
    assert one.enforce_eager and one.enforce_eager.where == f"{under}:2"
    quoted = engine("llama-server -m x.gguf --parallel 3")
    assert quoted.max_num_seqs and quoted.max_num_seqs.value == 3
    docker = engine("docker", "run", "vllm/vllm-openai:v0.11", "--model", "m", "--seed", "1")
    assert docker.model and docker.model.value == "m" and docker.unknown == ("seed",)


def test_prompts_and_notes(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"body": {"messages": [{"role": "user"}]}}\n')
    read = read_targets([str(path)])
    assert [one.chat for one in read.prompts[0].prompts] == [False, True]
    assert read_targets([], [path]).looked_at == (f"{path}: 2 requests",)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.yaml", "a: [1\n", "not valid YAML"),
        ("x.yaml", "- 1\n", "is not a config"),
        ("x.yaml", "colour: red\n", "--runtime"),
        ("x.yaml", "max-num-seqs: 0\n", "--max-num-seqs is 0"),
        ("x.yaml", "load-format: auto\ngpu-memory-utilization: much\n", "must be a number"),
        ("x.yaml", "model: m\nspeculative-config: 3\nload-format: auto\n", "must be an object"),
        ("x.sh", "vllm serve 'm\n", "No closing quotation"),
        ("x.jsonl", "{}\n", "neither messages nor prompt"),
        ("x.jsonl", "[]\n", "not a JSON object"),
        ("x.jsonl", "", "no prompts"),
        ("x.txt", "hello", "is not a config"),
        ("x.GGUF", "GGUF", "a model's weights, where a configuration is expected"),
    ],
)
def test_what_is_no_input_is_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_targets([written(tmp_path, name, text)])


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file, a folder"):
        read_targets(["nothing.yaml"])
    with pytest.raises(ConfigError, match="has no result"):
        read_targets([str(tmp_path)])
    with pytest.raises(ConfigError, match="does not start vllm serve"):
        read_targets(["python", "-m", "http.server"])


def test_aliases_that_multiply_or_lead_back_are_refused(tmp_path: Path) -> None:
    nines = ", ".join("x" * 9)
    bomb = [f"a: &a [{nines}]"]
    bomb += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise("abcdefghi")]
    merged = ["a: &a {x: 1}"]
    merged += [
        f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}"
        for old, new in pairwise("abcdefghi")
    ]
    path = tmp_path / "config.yaml"
    for text, told in (
        ("\n".join(bomb), "has 490,329,064 values .* at most 200,000"),
        ("\n".join(merged), "at most 200,000"),
        ("&a [*a]", "yaml:1: an alias in it refers back"),
        ("a: &a\n  image: x\n  env: *a", "yaml:1: an alias in it refers back"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=told):
            read_targets([str(path)])
