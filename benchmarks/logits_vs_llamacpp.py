"""Are the logits those of llama.cpp? Teacher-forced on its own greedy tokens.

    python benchmarks/logits_vs_llamacpp.py --llama FOLDER [--codec BF16 Q8_0 Q4_K_M]

llama.cpp continues a random prompt greedily; headrace is given prompt and continuation and its
logits of the same positions are compared: the largest difference over the standard deviation of
the logits, and every position where the most likely token differs, with the gap there. Both are
compared, too, with the same weights computed in float32 with nothing rounded (the file's values
decoded, headrace's F32 kernels): so it shows whose error a difference between the two is.

Weights are random and untied, so nothing is memorised and the logits are spread; the model has
Qwen3-0.6B's shape. BF16 is drawn, quantised kinds are made of it by llama-quantize. FOLDER is built
by `python -m benchmarks.llamacpp.build FOLDER`. Needs 5 GB of disk and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headrace.ops.kv import KVCodec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.llamacpp.build import Peer, built

CODECS = ("BF16", "Q8_0", "Q4_K_M")
LIMITS = {"F32": 0.01, "F16": 0.05, "BF16": 0.05}
"""Largest difference over the standard deviation that counts as equal; 0.15 for quantised kinds,
whose activations the two engines quantise differently."""

QUANTISED_LIMIT = 0.15


def peer_logits(
    peer: Peer, model: Path, prompt: list[int], new: int, threads: int
) -> tuple[list[int], np.ndarray]:
    """llama.cpp's greedy tokens and the logits they were taken from, f32[new, vocab]."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits"
        command = [str(peer.logits_program()), str(model), str(threads), str(new), str(out)]
        subprocess.run([*command, *map(str, prompt)], check=True, timeout=1800)
        data = out.read_bytes()
    vocab, count = np.frombuffer(data, np.int32, 2)
    tokens = np.frombuffer(data, np.int32, count, 8)
    return tokens.tolist(), np.frombuffer(data, np.float32, offset=8 + 4 * count).reshape(-1, vocab)


def own_logits(
    model: Path, ids: list[int], new: int, level: str, threads: int, kv: KVCodec = "bf16"
) -> np.ndarray:
    """headrace's logits of the last `new` positions of `ids` less the very last token's."""
    from headrace.models import load_model
    from headrace.ops import make_ops
    from headrace.ops.kv import RaggedBatch
    from headrace.weights.open import open_checkpoint

    ops = make_ops("cpu", cpu_level=level, threads=threads)
    loaded = load_model(open_checkpoint(model), ops)
    length = len(ids)
    entries, layout = -(-length // 32), loaded.cache_layout
    cache = ops.kv_cache(layout.spec(32, entries * layout.num_tables, kv, kv))
    batch = RaggedBatch(
        token_ids=np.array(ids, np.int32),
        positions=np.arange(length, dtype=np.int32),
        query_start=np.array([0, length], np.int32),
        block_tables=layout.tables(np.arange(entries, dtype=np.int32)[None]),
        logit_rows=np.arange(length - new, length, dtype=np.int32),
    )
    return np.asarray(loaded.forward(batch, cache))


def exact_logits(model: Path, ids: list[int], new: int, threads: int) -> np.ndarray:
    """Logits of the file's values as they are, in float32: no activation is rounded."""
    from headrace.weights.conversion.to_gguf import write_gguf
    from headrace.weights.open import open_checkpoint

    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        decoded = Path(folder) / "f32.gguf"
        write_gguf(open_checkpoint(model), decoded, "F32")
        return own_logits(decoded, ids, new, "auto", threads, kv="f32")


def compare(expected: np.ndarray, got: np.ndarray) -> dict[str, Any]:
    """Differences over the standard deviation of the peer's logits, and of the top tokens."""
    scale = float(expected.std())
    difference = np.abs(expected - got[:, : expected.shape[1]])
    tops, own = expected.argmax(axis=1), got[:, : expected.shape[1]].argmax(axis=1)
    rows = np.flatnonzero(tops != own)
    gaps = [float(expected[r, tops[r]] - expected[r, own[r]]) / scale for r in rows]
    return {
        "positions": len(expected),
        "std": scale,
        "max_difference": float(difference.max()) / scale,
        "rms_difference": float(np.sqrt((difference**2).mean())) / scale,
        "top_disagreements": len(rows),
        "largest_gap_there": max(gaps, default=0.0),
    }


def _model(folder: Path, codec: str, peer: Peer) -> Path:
    """The file of one codec; made where it is not there."""
    drawn, model = folder / "untied-BF16.gguf", folder / f"untied-{codec}.gguf"
    if not drawn.is_file():
        maker = str(Path(__file__).with_name("shaped_model.py"))
        command = [sys.executable, maker, str(drawn), "--codec", "BF16", "--untied"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if not model.is_file():
        command = [peer.tool("llama-quantize"), str(drawn), str(model), codec]
        subprocess.run(command, check=True, capture_output=True)
    return model


def main() -> None:
    """Compare every codec and print a table; exit status 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--llama", type=Path, required=True, help="folder of the built llama.cpp")
    parser.add_argument("--codec", nargs="+", default=list(CODECS))
    parser.add_argument("--level", default="auto", help="dispatch level of headrace")
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--new", type=int, default=64, help="tokens")
    parser.add_argument("--models", type=Path, help="folder to keep the models in")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peer, threads = built(options.llama), len(os.sched_getaffinity(0))
    prompt = [random.Random(7).randrange(256) for _ in range(options.prompt)]
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.models or Path(scratch)
        for codec in options.codec:
            model = _model(folder, codec, peer)
            tokens, expected = peer_logits(peer, model, prompt, options.new, threads)
            ids = [*prompt, *tokens[:-1]]
            got = own_logits(model, ids, options.new, options.level, threads)
            result = compare(expected, got)
            exact = exact_logits(model, ids, options.new, threads)
            result["headrace_from_exact"] = compare(exact, got)["max_difference"]
            result["llamacpp_from_exact"] = compare(exact, expected)["max_difference"]
            limit = LIMITS.get(codec, QUANTISED_LIMIT)
            good = result["max_difference"] <= limit and result["largest_gap_there"] <= limit
            failed |= not good
            if options.json:
                print(json.dumps({"codec": codec, "limit": limit, "good": good, **result}))
            else:
                print(
                    f"{codec:8} max |d|/std {result['max_difference']:.4f} (limit {limit}), "
                    f"rms {result['rms_difference']:.5f}, top differs at "
                    f"{result['top_disagreements']} of {result['positions']} positions, "
                    f"largest gap there {result['largest_gap_there']:.4f}; from exact: headrace "
                    f"{result['headrace_from_exact']:.4f}, llama.cpp "
                    f"{result['llamacpp_from_exact']:.4f}"
                    f"{'' if good else '  NOT WITHIN THE LIMIT'}"
                )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
