"""Completion samples of a model as users run it: the exported GGUF file in headrace's own engine.

Three kinds, none chosen by hand after the fact. "heldout": ten functions or classes of held-out
files, drawn by a seed and cut after PROMPT_LINES lines or at the first place behind them that is
outside of strings and brackets, each continued with a temperature and a seed of its own. "hand":
a fixed list of beginnings, greedy, one of them to be filled in the middle. "chat": ten messages in
the chat template, greedy, the last four outside of what the model is for. Nothing generated is
executed.

    python -m training.measure.samples src/headrace/embedded/headrace-base-q8_0.gguf --json FILE

JSON: {"model", "seed", "samples": [SAMPLE], "means": MEANS, "reference_means": MEANS}, with SAMPLE
as in the class below, its marks as in marks.py, and MEANS {"parsed_share", "brackets_match",
"indented_share", "n_lines", "empty_share"} of the held-out samples, and of what stands in their
files. Shares of lines are means over the samples that have a line; how many have none is told
beside them.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from headrace import LLM, SamplingParams
from training.data.tokenizer import FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX
from training.measure.heldout_text import Document, read_held_out
from training.measure.marks import Marks, marks_of, settled

SEED = 20261121
N_DRAWN = 10
PROMPT_LINES, MOST_PROMPT_LINES = 12, 30
COMPLETION_LINES, COMPLETION_TOKENS = 20, 200
TEMPERATURE, TOP_P = 0.6, 0.9

HAND_PROMPTS = (
    "import nu",
    "import os\nimport sy",
    "def fibonacci(n):\n",
    "class Stack:\n",
    "for i in range(",
    "with open(path) as f:\n",
    "if __name__ == ",
    f"{FIM_PREFIX}def mean(values):\n    total = {FIM_SUFFIX}\n    return total / len(values)\n"
    f"{FIM_MIDDLE}",
)
CHAT_MESSAGES = (
    "What does os.path.join do?",
    "Write the signature of json.dumps.",
    "How do I read a file line by line?",
    "Complete this function:\n\ndef is_even(n):\n",
    "Write a function that returns the largest of three numbers.",
    "What is functools.lru_cache for?",
    "Hello! Who are you?",
    "What is the capital of France?",
    "Write a poem about rain.",
    "What will the weather be like tomorrow?",
)

Kind = Literal["heldout", "hand", "chat"]


@dataclass(frozen=True)
class Prompt:
    """What is continued. `source` is the file and line of a held-out one.

    `reference` is what follows there, as many lines as are generated at most.
    """

    kind: Kind
    text: str
    source: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Sample:
    """A prompt and what the model made of it, cut after COMPLETION_LINES lines.

    `n_tokens` were generated, at most COMPLETION_TOKENS, before the cut. `temperature` 0 is
    greedy. `marks` is None of chats, `reference_marks` of all but held-out ones.
    """

    kind: Kind
    source: str
    prompt: str
    completion: str
    reference: str
    finish_reason: str
    n_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    marks: Marks | None
    reference_marks: Marks | None


def definitions(document: Document) -> list[Prompt]:
    """The functions and classes at the top of a file that are long enough to be continued."""
    lines = document.text.splitlines(keepends=True)
    found = []
    for node in ast.parse(document.text).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        last = (node.end_lineno or 0) - COMPLETION_LINES
        for cut in range(first + PROMPT_LINES, min(first + MOST_PROMPT_LINES, last) + 1):
            text = "".join(lines[first:cut])
            if settled(text):
                rest = "".join(lines[cut : cut + COMPLETION_LINES])
                found.append(Prompt("heldout", text, f"{document.path}:{first + 1}", rest))
                break
    return found


def drawn_prompts(documents: Sequence[Document], seed: int) -> list[Prompt]:
    """One definition each of N_DRAWN Python files, or of as many as have one."""
    draw = random.Random(seed)
    order = [document for document in documents if document.path.endswith(".py")]
    draw.shuffle(order)
    found: list[Prompt] = []
    for document in order:
        if len(found) < N_DRAWN and (choice := definitions(document)):
            found.append(draw.choice(choice))
    return found


def first_lines(text: str) -> str:
    """`text` up to the end of its line number COMPLETION_LINES."""
    return "".join(text.splitlines(keepends=True)[:COMPLETION_LINES])


def sampled(llm: LLM, prompts: Sequence[Prompt], seed: int) -> list[Sample]:
    """Continue all prompts, all together. Number i of them is drawn with `seed` + i, if drawn.

    Chats are left out where the model has no chat template.
    """
    kept = [prompt for prompt in prompts if prompt.kind != "chat" or llm.has_chat_template]
    greedy = SamplingParams(temperature=0.0, max_tokens=COMPLETION_TOKENS)
    params = [
        SamplingParams(
            temperature=TEMPERATURE, top_p=TOP_P, seed=seed + index, max_tokens=COMPLETION_TOKENS
        )
        if prompt.kind == "heldout"
        else greedy
        for index, prompt in enumerate(kept)
    ]
    asked = [
        llm.encode_chat([{"role": "user", "content": prompt.text}])
        if prompt.kind == "chat"
        else prompt.text
        for prompt in kept
    ]
    samples = []
    for prompt, given, result in zip(kept, params, llm.generate(asked, params), strict=True):
        text = first_lines(result.text)
        # A text that the model itself ended has no line that breaks off.
        whole = text + "\n" * (result.finish_reason == "stop")
        samples.append(
            Sample(
                kind=prompt.kind,
                source=prompt.source,
                prompt=prompt.text,
                completion=text,
                reference=prompt.reference,
                finish_reason=result.finish_reason,
                n_tokens=len(result.token_ids),
                temperature=given.temperature,
                top_p=given.top_p,
                seed=given.seed,
                marks=None if prompt.kind == "chat" else marks_of(code_before(prompt), whole),
                reference_marks=marks_of(prompt.text, prompt.reference)
                if prompt.kind == "heldout"
                else None,
            )
        )
    return samples


def code_before(prompt: Prompt) -> str:
    """The code that a completion is read behind: of what is to be filled in, its first part."""
    before = prompt.text.removesuffix(FIM_MIDDLE).partition(FIM_SUFFIX)[0]
    return before.removeprefix(FIM_PREFIX)


def means(marks: Sequence[Marks]) -> dict[str, float]:
    """The mean of each mark, over those that have it; `empty_share` is of those without a line."""
    values = {
        "parsed_share": [m.parsed_share for m in marks if m.parsed_share is not None],
        "brackets_match": [float(m.brackets_match) for m in marks],
        "indented_share": [m.indented_share for m in marks if m.indented_share is not None],
        "n_lines": [float(m.n_lines) for m in marks],
        "empty_share": [float(m.n_lines == 0) for m in marks],
    }
    return {name: sum(given) / len(given) for name, given in values.items() if given}


def row(sample: Sample) -> str:
    """One line for a terminal."""
    what = sample.source or repr(sample.prompt)
    marks = sample.marks
    if marks is None:
        return f"{sample.kind:8}{what[:44]:45}{sample.completion[:40]!r}"
    shares = [
        "   -" if share is None else f"{share:4.0%}"
        for share in (marks.parsed_share, marks.indented_share)
    ]
    brackets = "match" if marks.brackets_match else "differ"
    return f"{sample.kind:8}{what[-44:]:45}parsed {shares[0]}  indented {shares[1]}  {brackets}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write completion samples of a GGUF file.")
    parser.add_argument("model", help="GGUF file, as for `headrace serve`")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    documents = read_held_out(arguments.data / "corpus")
    prompts = [
        *drawn_prompts(documents, arguments.seed),
        *(Prompt("hand", text) for text in HAND_PROMPTS),
        *(Prompt("chat", text) for text in CHAT_MESSAGES),
    ]
    llm = LLM(arguments.model, threads=arguments.threads)
    samples = sampled(llm, prompts, arguments.seed)
    for sample in samples:
        print(row(sample))
    held_out = [sample for sample in samples if sample.kind == "heldout"]
    found = means([sample.marks for sample in held_out if sample.marks])
    reference = means([sample.reference_marks for sample in held_out if sample.reference_marks])
    for name, value in found.items():
        form = ".1f" if name == "n_lines" else ".1%"
        theirs = f"{reference[name]:{form}}"
        print(f"mean {name} of held-out ones: {value:{form}}; of their files: {theirs}")
    if arguments.json is not None:
        report = {
            "model": Path(arguments.model).name,
            "seed": arguments.seed,
            "samples": [asdict(sample) for sample in samples],
            "means": found,
            "reference_means": reference,
        }
        text = json.dumps(report, indent=1, ensure_ascii=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
