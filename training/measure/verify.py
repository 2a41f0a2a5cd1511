"""Check an export against other software: the same logits, and the same greedy tokens.

    python -m training.measure.verify --run build/train/base --data build/train \\
        --folder build/train/export/headrace-base --llama-server PATH

Compared are the trainer's own model with transformers (logits), and transformers with headrace
and llama.cpp (tokens at temperature 0, by id), all in float32; and a Q8_0 file in headrace and in
llama.cpp, which may differ. Needs transformers; without --llama-server its part is left out, and
the report says so. Exits with 1 where something differs that must not.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from headrace import LLM, SamplingParams
from headrace.models import FAMILIES
from training.data.corpus import read_documents
from training.export import END_IDS, write_gguf
from training.measure.llama_server import LlamaServer
from training.measure.predictor import open_predictor
from training.models.config import CHECKPOINT_NAME, read_note

MAX_LOGIT_DIFFERENCE = 1e-4
N_PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 10, 48, 64
# Beyond one block of queries (model.QUERY_BLOCK), so that the block after it is compared as well.
LOGIT_TOKENS = 320


@dataclass(frozen=True)
class Agreement:
    """How far two programs continue the same prompts with the same tokens.

    `same_tokens` of `tokens` stand before the first difference of their prompt.
    """

    what: str
    same_prompts: int
    prompts: int
    same_tokens: int
    tokens: int


def agreement(what: str, one: Sequence[list[int]], other: Sequence[list[int]]) -> Agreement:
    """Compare continuations, each cut at its first end of text or of turn."""
    pairs = [(_until_end(a), _until_end(b)) for a, b in zip(one, other, strict=True)]
    same = [_same_beginning(a, b) for a, b in pairs]
    lengths = [max(len(a), len(b)) for a, b in pairs]
    n_same = sum(a == b for a, b in pairs)
    return Agreement(what, n_same, len(pairs), sum(same), sum(lengths))


def _until_end(ids: list[int]) -> list[int]:
    ends = [at for at, token in enumerate(ids) if token in END_IDS]
    return ids[: ends[0]] if ends else ids


def _same_beginning(one: list[int], other: list[int]) -> int:
    pairs = list(zip(one, other, strict=False))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))


def prompts_of(documents: Sequence[str], tokenizer: Tokenizer, length: int) -> list[list[int]]:
    """The beginnings of N_PROMPTS documents, spread over all that are long enough."""
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(list(documents))]
    long_enough = [ids for ids in encoded if len(ids) > length]
    if len(long_enough) < N_PROMPTS:
        raise ValueError(
            f"the held-out split has {len(long_enough)} documents of more than {length} tokens, "
            f"{N_PROMPTS} are needed: use a larger corpus"
        )
    step = len(long_enough) // N_PROMPTS
    return [ids[:length] for ids in long_enough[: step * N_PROMPTS : step]]


def logit_difference(run: Path, folder: Path, prompts: Sequence[list[int]]) -> float:
    """The largest absolute difference of a logit between the trainer's model and transformers."""
    from transformers import AutoModelForCausalLM

    ids = torch.tensor(prompts)
    ours = open_predictor(run / CHECKPOINT_NAME, bfloat16=False)
    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        difference = ours.logits(ids) - peer(ids).logits
    return float(difference.abs().max())


def greedy_of_transformers(folder: Path, prompts: Sequence[list[int]]) -> list[list[int]]:
    """What transformers continues the prompts with, one at a time: no padding to argue about."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
            )
        found.append(whole[0, len(prompt) :].tolist())
    return found


def greedy_of_headrace(model: Path, prompts: Sequence[list[int]]) -> list[list[int]]:
    """What headrace continues the prompts with; K and V in float32 as in transformers."""
    llm = LLM(model, kv_cache_dtype="f32", threads=1)
    results = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=NEW_TOKENS))
    return [list(result.token_ids) for result in results]


def verify(run: Path, data: Path, folder: Path, llama_server: Path | None) -> dict[str, Any]:
    """Everything that can be compared, as the report that `main` prints and writes."""
    tokenizer = Tokenizer.from_file(str(data / "tokenizer" / "tokenizer.json"))
    documents = read_documents(data / "corpus", "heldout")
    prompts = prompts_of(documents, tokenizer, PROMPT_TOKENS)
    difference = logit_difference(run, folder, prompts_of(documents, tokenizer, LOGIT_TOKENS))
    expected = greedy_of_transformers(folder, prompts)
    exact: list[Agreement] = []
    rounded: list[Agreement] = []
    left_out: list[str] = []
    if llama_server is None:
        left_out.append("llama.cpp: no --llama-server was given")
    with tempfile.TemporaryDirectory() as scratch:
        files = {codec: Path(scratch) / f"{codec}.gguf" for codec in ("F32", "Q8_0")}
        for codec, path in files.items():
            write_gguf(folder, path, {}, codec)
            kept = exact if codec == "F32" else rounded
            if llama_server is not None:
                with LlamaServer(llama_server, path) as server:
                    found = [server.greedy(prompt, NEW_TOKENS) for prompt in prompts]
                kept.append(agreement(f"llama.cpp, {codec} GGUF", found, expected))
        model_type = json.loads((folder / "config.json").read_text())["model_type"]
        if model_type not in FAMILIES:
            left_out.append(f"headrace: it does not serve {model_type}")
        else:
            for what, path in {"F32 folder": folder, "F32 GGUF": files["F32"]}.items():
                found = greedy_of_headrace(path, prompts)
                exact.append(agreement(f"headrace, {what}", found, expected))
            found = greedy_of_headrace(files["Q8_0"], prompts)
            rounded.append(agreement("headrace, Q8_0 GGUF", found, expected))
    progress = read_note(run / CHECKPOINT_NAME)["progress"]
    return {
        "taken_up": "taken_up_tokens" in progress,
        "logit_difference": difference,
        "max_logit_difference": MAX_LOGIT_DIFFERENCE,
        "exact": [asdict(entry) for entry in exact],
        "rounded": [asdict(entry) for entry in rounded],
        "left_out": left_out,
    }


def failures(report: Mapping[str, Any]) -> list[str]:
    """What of a report must not be."""
    found = []
    # Written so that a difference that is not a number fails.
    if not report["logit_difference"] < MAX_LOGIT_DIFFERENCE:
        found.append(
            f"logits differ by {report['logit_difference']}, allowed is {MAX_LOGIT_DIFFERENCE}"
        )
    for entry in report["exact"]:
        if entry["same_prompts"] != entry["prompts"]:
            found.append(
                f"{entry['what']}: {entry['same_prompts']} of {entry['prompts']} prompts are "
                "continued as transformers does, all must be"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Check an export against other software.")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--folder", type=Path, required=True, help="what training.export wrote")
    parser.add_argument("--llama-server", type=Path, help="program of llama.cpp")
    parser.add_argument("--out", type=Path, help="JSON file for the report")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for path in (
        arguments.run / CHECKPOINT_NAME,
        arguments.data / "tokenizer" / "tokenizer.json",
        arguments.data / "corpus",
        arguments.folder / "config.json",
    ):
        if not path.exists():
            parser.error(f"{path} is not there; `make models` makes it (docs/family.md)")
    report = verify(arguments.run, arguments.data, arguments.folder, arguments.llama_server)
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    if wrong := failures(report):
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
