"""JSON schemas of others held to their own cases: `python -m benchmarks.structured_conformance`.

    python -m benchmarks.structured_conformance --suite FOLDER --bench ARCHIVE --maskbench FOLDER

--suite: JSON-Schema-Test-Suite's `tests`. --bench: JSONSchemaBench's archive (schemas alone).
--maskbench: MaskBench's `data` (schemas with valid and invalid instances). Of each: how many
schemas compile, how many instances are taken and refused, and why; and, over a real vocabulary
(--tokenizer), how long compiling and each mask take, beside llguidance alone on the same schemas.
An invalid instance that is accepted makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.markdown import surroundings, surroundings_line, table, tell
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.errors import RequestError
from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.vocabulary import Vocabulary
from headrace.weights.tokenizer.data import TokenizerData
from tools.structured.language import Language, LimitError, Splits
from tools.structured.spelling import AS_WRITTEN, LIMIT, cause, has_in_some_order

_TRIES_OF_INVALID = 300
"""An invalid instance is written in other orders as well, in some hundred ways."""

_ANNOTATIONS = ("content.json",)
"""Files whose keywords are annotations since 2019-09: what they call invalid in older drafts."""

_KEYWORD = re.compile(r"the keyword '([^']+)' at ")


class Case(NamedTuple):
    """A schema and instances of it."""

    name: str
    schema: Any
    tests: list[tuple[bool, Any]]


def of_suite(folder: Path) -> Iterator[Case]:
    """JSON-Schema-Test-Suite, the drafts that are supported; formats are annotations there, so
    that their instances say nothing."""
    for draft in ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12"):
        for file in sorted((folder / draft).rglob("*.json")):
            if file.name in (*_ANNOTATIONS, "format.json"):
                continue
            for number, group in enumerate(json.loads(file.read_bytes())):
                tests = [(test["valid"], test["data"]) for test in group["tests"]]
                yield Case(f"{draft}/{file.name}:{number}", group["schema"], tests)


def of_bench(archive: Path) -> Iterator[Case]:
    """JSONSchemaBench: schemas without instances."""
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                yield Case(member.name, json.loads(file.read()), [])


def of_maskbench(folder: Path) -> Iterator[Case]:
    """MaskBench: files of a schema and instances."""
    for file in sorted(folder.glob("*.json")):
        value = json.loads(file.read_bytes())
        tests = [(test["valid"], test["data"]) for test in value["tests"]]
        yield Case(file.name, value["schema"], tests)


def judged(cases: Iterable[Case], every: int) -> dict[str, Any]:
    """Counts over one in `every` cases."""
    schemas: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    valid: Counter[str] = Counter()
    invalid: Counter[str] = Counter()
    wrong: list[str] = []
    unexplained: list[str] = []
    for number, case in enumerate(cases):
        if number % every:
            continue
        if number % 1000 == 0:
            tell(f"{number} schemas")
        try:
            language = Language(of_schema(case.schema, "schema"))
        except RequestError as error:
            schemas["refused"] += 1
            refused[_reason(error)] += 1
            continue
        schemas["compiled"] += 1
        for index, (is_valid, data) in enumerate(case.tests):
            if is_valid:
                why = cause(language, data)
                valid[why] += 1
                if why not in (AS_WRITTEN, LIMIT) and len(unexplained) < 1000:
                    unexplained.append(f"{case.name}#{index}: {why}")
                continue
            accepted = has_in_some_order(language, data, _TRIES_OF_INVALID)
            invalid["accepted" if accepted else "refused"] += 1
            if accepted:
                wrong.append(f"{case.name}#{index}")
    return {
        "schemas": dict(schemas),
        "schemas refused": dict(refused.most_common()),
        "valid instances": dict(valid.most_common()),
        "invalid instances": dict(invalid),
        "accepted wrongly": wrong,
        "not as written": unexplained,
    }


def _reason(error: RequestError) -> str:
    text = str(error)
    named = _KEYWORD.search(text)
    if named is not None:
        return named[1]
    for part, name in (
        ("oneOf", "oneOf (alternatives may overlap)"),
        ("maxProperties", "minProperties, maxProperties"),
        ("not disjoint", "patternProperties (overlap)"),
        ("Unsatisfiable", "no value at all"),
        ("no text belongs", "no value at all"),
        ("circular", "references in a circle"),
        ("regex", "pattern"),
    ):
        if part in text:
            return name
    return str(error.code)


class Times(NamedTuple):
    """Microseconds, of each schema and each token."""

    compile_us: list[float]
    mask_us: list[float]


def timed(cases: list[Case], vocabulary: Vocabulary, tokenizer: GrammarTokenizer) -> Any:
    """Times of the same schemas and instances: as the engine makes them, and llguidance alone
    with the schema as it came; and over-constraint of masks by the way an instance is cut."""
    from llguidance import LLMatcher

    ours, bare = Times([], []), Times([], [])
    masks: Counter[str] = Counter()
    splits = Splits(vocabulary)
    words = np.zeros(tokenizer.end_id // 32 + 1, np.uint32)
    for number, case in enumerate(cases):
        if number % 200 == 0:
            tell(f"timed {number}")
        try:
            begun = time.perf_counter()
            compiled = compile_grammar(of_schema(case.schema, "schema"), tokenizer)
            ours.compile_us.append(1e6 * (time.perf_counter() - begun))
        except RequestError:
            continue
        begun = time.perf_counter()
        alone = LLMatcher(
            tokenizer.tokenizer, LLMatcher.grammar_from_json_schema(case.schema), log_level=0
        )
        alone.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        bare.compile_us.append(1e6 * (time.perf_counter() - begun))
        rng = random.Random(number)
        language = Language(of_schema(case.schema, "schema"))
        for is_valid, data in case.tests:
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
            try:
                if not is_valid or not language.has(text):
                    continue
            except LimitError:
                continue
            raw = text.encode("utf-8", "surrogatepass")
            ids = vocabulary.ids_of(text)
            _walk(compiled.matcher(), ids, words, ours.mask_us)
            _walk(alone.deep_copy(), ids, words, bare.mask_us)
            for name, cut in (
                ("the model's", ids),
                ("longest", splits.greedy(raw)),
                ("shortest", splits.bytewise(raw)),
                ("drawn", splits.drawn(raw, rng)),
            ):
                masks[f"{name}: tokens"] += len(cut)
                ended = _walk(compiled.matcher(), cut, words, [])
                if ended is not None:
                    masks[f"{name}: {ended}"] += 1
    return {
        "schemas": len(ours.compile_us),
        "tokens": len(ours.mask_us),
        "compile µs": _quantiles(ours.compile_us),
        "compile µs, llguidance alone": _quantiles(bare.compile_us),
        "mask µs": _quantiles(ours.mask_us),
        "mask µs, llguidance alone": _quantiles(bare.mask_us),
        "cut in other ways": dict(masks),
    }


def _walk(matcher: Any, ids: list[int], words: Any, took_us: list[float]) -> str | None:
    """Makes the mask before each token; why the walk ended before the last, if it did. Where only
    one token is allowed the grammar forces a text, which is cut as the model cuts it."""
    for token_id in ids:
        begun = time.perf_counter()
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        took_us.append(1e6 * (time.perf_counter() - begun))
        if not words[token_id // 32] >> np.uint32(token_id % 32) & np.uint32(1):
            forced = int(np.unpackbits(words.view(np.uint8)).sum()) == 1
            return "forced otherwise" if forced else "refused"
        if not matcher.consume_token(token_id):
            return "not taken"
    return None


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    at = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
    return {name: round(float(np.percentile(values, share)), 1) for name, share in at.items()}


def main() -> int:
    """Run what is asked for; 1 where an invalid instance was accepted."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--bench", type=Path)
    parser.add_argument("--maskbench", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json or GGUF, for times")
    parser.add_argument("--every", type=int, default=1, help="one in so many schemas")
    parser.add_argument("--timed", type=int, default=1000, help="schemas of MaskBench to time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"on": surroundings(datetime.now())}
    for name, cases in (
        ("JSON-Schema-Test-Suite", options.suite and of_suite(options.suite)),
        ("JSONSchemaBench", options.bench and of_bench(options.bench)),
        ("MaskBench", options.maskbench and of_maskbench(options.maskbench)),
    ):
        if cases:
            tell(name)
            found[name] = judged(cases, options.every)
            if not found[name]["schemas"]:
                raise SystemExit(f"{name}: no schemas where they were looked for")
    if options.tokenizer and options.maskbench:
        vocabulary = _vocabulary(options.tokenizer)
        with_tests = [case for case in of_maskbench(options.maskbench) if case.tests]
        chosen = random.Random(0).sample(with_tests, min(options.timed, len(with_tests)))
        found["times"] = timed(chosen, vocabulary, GrammarTokenizer(vocabulary))
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n" if options.json else _text(found))
    return int(
        any(isinstance(each, dict) and each.get("accepted wrongly") for each in found.values())
    )


def _vocabulary(path: Path) -> Vocabulary:
    if path.suffix == ".json":
        data = TokenizerData("tokenizer.json", json_path=path)
        num_tokens = 1 + max(json.loads(path.read_bytes())["model"]["vocab"].values())
    else:
        from headrace.weights.gguf.file import read_gguf
        from headrace.weights.gguf.tokenizer import tokenizer_of_gguf

        data = tokenizer_of_gguf(read_gguf(path).metadata)
        num_tokens = len(data.gguf["tokens"])
    make = vocabulary_maker(data, num_tokens)
    if make is None:
        raise SystemExit(f"{path} has no tokenizer")
    return make()


def _text(found: dict[str, Any]) -> str:
    parts = []
    for name, counts in found.items():
        if name == "on":
            continue
        parts.append(f"## {name}\n")
        for title, values in counts.items():
            if isinstance(values, dict):
                parts.append(table([title, ""], [[key, value] for key, value in values.items()]))
            elif isinstance(values, list):
                parts.append(f"{title}: {len(values)}; " + "; ".join(values[:20]))
            else:
                parts.append(f"{title}: {values}")
            parts.append("")
    return "\n".join([*parts, surroundings_line(found["on"]), ""])


if __name__ == "__main__":
    sys.exit(main())
