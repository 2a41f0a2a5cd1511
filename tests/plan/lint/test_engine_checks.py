"""Checks of engines' settings: each finds its pitfall, and nothing where there is none."""

from __future__ import annotations

import pytest

from tests.plan.lint.subjects import found, lacks, outcome, readings, request, run, subject, values

VLLM = "vllm serve llama-3.1-8b"


@pytest.mark.parametrize(
    ("id", "bad", "good"),
    [
        ("L-static-batch", "llama-server -m x.gguf --no-cont-batching", "llama-server -m x.gguf"),
        ("L-static-batch", "llama-server -m x.gguf -nocb", "llama-server -m x.gguf -cb"),
        ("L-prefix-cache", f"{VLLM} --no-enable-prefix-caching", VLLM),
        ("L-prefix-cache", "llama-server -m x --no-cache-prompt", "llama-server -m x"),
        ("L-chunked-prefill", f"{VLLM} --no-enable-chunked-prefill", VLLM),
        ("L-chunked-prefill", f"{VLLM} --max-num-batched-tokens 32768 --max-model-len 32768",
         f"{VLLM} --max-num-batched-tokens 2048 --max-model-len 32768"),
        ("L-memory-share", f"{VLLM} --gpu-memory-utilization 0.5",
         f"{VLLM} --gpu-memory-utilization 0.9"),
        ("L-memory-share", f"{VLLM} --gpu-memory-utilization=0.99",
         f"{VLLM} --gpu-memory-utilization=0.95"),
        ("L-flash-attention", "llama-server -m x -fa off", "llama-server -m x -fa on"),
        ("L-flash-attention", f"VLLM_ATTENTION_BACKEND=XFORMERS {VLLM}",
         f"VLLM_ATTENTION_BACKEND=FLASH_ATTN {VLLM}"),
        ("L-kernels", f"{VLLM} --enforce-eager", VLLM),
        ("L-kernels", f"{VLLM} --quantization awq", f"{VLLM} --quantization awq_marlin"),
        ("L-kernels", "headrace serve x --backend reference", "headrace serve x"),
        ("L-kernels", "headrace serve x --cpu-level avx_vnni", "headrace serve x"),
        ("L-kernels", "headrace serve x --cpu-level avx2", "headrace serve x --cpu-level auto"),
        ("L-gguf-in-vllm", "vllm serve model-Q4_K_M.gguf", VLLM),
        ("L-rtn", f"{VLLM} --quantization experts_int8", None),
        ("L-mixed-precision", f"{VLLM} --kv-cache-dtype fp8", f"{VLLM} --kv-cache-dtype auto"),
        ("L-mixed-precision", "llama-server -m x -ctk q8_0 -ctv q4_0", "llama-server -m x"),
        ("L-queue", "headrace serve x --max-num-queued-reqs 9000",
         "headrace serve x --max-num-queued-reqs 9000 --request-timeout 30"),
    ],
)  # fmt: skip
def test_a_setting_is_found_and_its_absence_is_clean(id: str, bad: str, good: str | None) -> None:
    one = found(id, subject(bad))
    assert one.evidence[0].where == "command line" and one.remedy
    if good is not None:
        assert outcome(id, subject(good)) == ()


def test_an_evaluation_answers_mixed_precision() -> None:
    assert outcome("L-mixed-precision", subject(f"{VLLM} --kv-cache-dtype fp8",
                                                evaluation="kl.json")) == ()  # fmt: skip


def test_quantized_values_without_flash_attention_do_not_start() -> None:
    assert found("L-flash-attention", subject("llama-server -m x -fa 0 -ctv q8_0")).severity == (
        "error"
    )


def test_kv_overcommit_has_the_planners_numbers() -> None:
    line = f"{VLLM} --max-num-seqs 256 --max-model-len 32k --gpu-memory-utilization 0.9"
    one = found("L-kv-overcommit", subject(line, shape="llama-3.1-8b", hardware="h100-sxm"))
    told = values(one)
    # 32 layers of 8 heads of 128, keys and values of 2 bytes: 131,072 bytes a token.
    assert told["KV of a request of that context"] == 131_072 * 32_000
    holds = told["requests of that context that fit"]
    assert isinstance(holds, int) and 8 <= holds <= 16
    # A paged cache is made for that: without lengths it is but information.
    assert f"--max-num-seqs {holds}" in one.remedy and one.severity == "info"
    few = line.replace("256", str(holds))
    assert outcome("L-kv-overcommit", subject(few, shape="llama-3.1-8b",
                                              hardware="h100-sxm")) == ()  # fmt: skip


def test_kv_overcommit_goes_by_the_lengths_there_are() -> None:
    line = f"{VLLM} --max-num-seqs 256 --max-model-len 32k --gpu-memory-utilization 0.9"
    fields = {"shape": "llama-3.1-8b", "hardware": "h100-sxm"}
    short = run([request(0, prompt_tokens=500, output_tokens=100)])
    assert outcome("L-kv-overcommit", subject(line, run=short, **fields)) == ()
    # 256 requests of 10,000 tokens of 131,072 bytes are 336 GB.
    long = run([request(0, prompt_tokens=9_000, output_tokens=1_000)])
    one = found("L-kv-overcommit", subject(line, run=long, **fields))
    told = values(one)
    fit = told["requests of the mean length that fit"]
    assert isinstance(fit, int) and 25 <= fit <= 55 and told["mean request"] == 10_000
    assert one.severity is None and one.remedy.startswith(f"--max-num-seqs {fit},")


def test_kv_that_holds_no_request_is_an_error() -> None:
    line = "headrace serve x --kv-cache-memory-bytes 1g --max-model-len 8192 --max-num-seqs 4"
    one = found("L-kv-overcommit", subject(line, shape="llama-3.1-8b"))
    # 10^9 / 131,072 bytes are 7,629 tokens, in whole blocks of 32.
    assert one.severity == "error" and "--max-model-len 7616" in one.remedy


def test_kv_overcommit_says_what_it_lacks() -> None:
    line = f"{VLLM} --max-num-seqs 256"
    assert "--model" in lacks("L-kv-overcommit", subject(line))
    assert "--hardware" in lacks("L-kv-overcommit", subject(line, shape="llama-3.1-8b"))
    assert "default differs" in lacks("L-kv-overcommit", subject(VLLM, shape="llama-3.1-8b"))


def test_llama_server_allocates_its_whole_cache() -> None:
    fields = {"shape": "llama-3.1-8b", "hardware": "rtx-4060-ti-16gb", "quantization": "q4-k-m"}
    one = found("L-kv-overcommit", subject("llama-server -m x -c 131072 -np 4", **fields))
    assert one.severity == "error" and "--ctx-size" in one.remedy
    assert outcome("L-kv-overcommit", subject("llama-server -m x -c 32768", **fields)) == ()


def test_fixed_slots_against_the_requests_there_are() -> None:
    line = "llama-server -m x -c 32768 -np 8"
    long = run([request(0, prompt_tokens=5000, output_tokens=500)])
    one = found("L-kv-slots", subject(line, run=long))
    assert values(one)["context of a slot"] == 4096 and one.severity == "error"
    short = run([request(n, prompt_tokens=100, output_tokens=50) for n in range(3)])
    assert "stays empty" in found("L-kv-slots", subject(line, run=short)).says
    assert outcome("L-kv-slots", subject(f"{line} --kv-unified", run=long)) == ()
    fitting = run([request(0, prompt_tokens=3000, output_tokens=500)])
    assert outcome("L-kv-slots", subject(line, run=fitting)) == ()
    assert "--prompts" in lacks("L-kv-slots", subject(line))


def test_a_batch_of_one_on_a_rented_gpu() -> None:
    line = f"{VLLM} --max-num-seqs 1"
    one = found("L-batch1", subject(line, hardware="h100-sxm", shape="llama-3.1-8b"))
    told = values(one)
    assert float(told["decoding 32"]) > 10 * float(told["decoding one request"])
    assert any("rent of NVIDIA H100" in name for name in told)
    assert outcome("L-batch1", subject(f"{VLLM} --max-num-seqs 64", hardware="h100-sxm")) == ()
    assert "--hardware" in lacks("L-batch1", subject(line))
    assert "no price" in lacks("L-batch1", subject(line, hardware="rtx-4090"))


def test_the_bound_on_sequences_by_what_a_run_shows() -> None:
    waits = readings(*({"running": 8, "waiting": 5, "kv": 0.3} for _ in range(10)))
    line = f"{VLLM} --max-num-seqs 8"
    assert "above 8" in found("L-max-num-seqs", subject(line, run=run(readings=waits))).remedy
    full = readings(*({"running": 8, "waiting": 5, "kv": 0.95} for _ in range(10)))
    assert outcome("L-max-num-seqs", subject(line, run=run(readings=full))) == ()
    thrown = readings(*({"running": 8.0, "waiting": 0.0, "preemptions": 3.0 * n}
                        for n in range(4)))  # fmt: skip
    one = found("L-max-num-seqs", subject(line, run=run([request(0)], thrown)))
    assert values(one)["preemptions"] == 9
    assert "/metrics" in lacks("L-max-num-seqs", subject(line, run=run()))


def test_a_queue_that_grows_to_the_end() -> None:
    grows = readings(*({"waiting": float(3 * n)} for n in range(12)))
    one = found("L-queue", subject(run=run([request(0)], grows)))
    assert values(one)["waiting, last third"] == 28.5
    refused = run([request(0, status=429, failure="http")], grows)
    assert outcome("L-queue", subject(run=refused)) == ()
    calm = readings(*({"waiting": 1.0} for _ in range(12)))
    assert outcome("L-queue", subject(run=run([request(0)], calm))) == ()
    assert "run" in lacks("L-queue", subject(VLLM))


@pytest.mark.parametrize("share", ["2", "90", "0", "-0.5"])
def test_a_share_of_memory_that_is_none(share: str) -> None:
    one = found("L-memory-share", subject(f"{VLLM} --gpu-memory-utilization={share}"))
    assert one.severity == "error" and "at most 1" in one.says
