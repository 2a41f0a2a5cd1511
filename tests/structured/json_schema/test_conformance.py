"""JSON-Schema-Test-Suite: what a schema forbids is never written, whatever was not refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from headrace.errors import RequestError
from headrace.structured.request import grammar_of
from tools.structured.language import Language

_FAR = {"format.json"}  # formats are enforced here, where the suite takes them for annotations
_ANNOTATIONS = {"content.json"}  # contentEncoding, contentMediaType: annotations since 2019-09
_DEPARTURES = {
    "allOf.json", "const.json", "enum.json", "ref.json", "type.json",  # order, form of numbers
    "bignum.json", "float-overflow.json",  # numbers beyond 64 bits, exponents
    "ecmascript-regex.json",  # control characters
    "date-time.json", "time.json", "hostname.json", "email.json", "ipv6.json",  # rarer forms
}  # fmt: skip


def _run(files: list[Path]) -> tuple[Counter[str], list[str], set[str]]:
    counts: Counter[str] = Counter()
    accepted: list[str] = []
    refused: set[str] = set()
    for file in files:
        for group in json.loads(file.read_bytes()):
            try:
                grammar = grammar_of({"guided_json": group["schema"]})
                assert grammar is not None
                language = Language(grammar)
            except RequestError as error:
                counts[str(error.code)] += 1
                continue
            counts["compiled"] += 1
            for case in group["tests"]:
                written = json.dumps(case["data"], separators=(",", ":"), ensure_ascii=False)
                if language.has(written) == case["valid"]:
                    continue
                if case["valid"]:
                    refused.add(file.name)
                elif file.name not in _ANNOTATIONS:
                    accepted.append(f"{file.name}: {group['description']}: {case['description']}")
    assert counts.keys() <= {"compiled", "unsupported_schema", "invalid_schema", "invalid_grammar"}
    return counts, accepted, refused


def _suite(assets: Path, draft: str) -> Path:
    folder = assets / "conformance" / "JSON-Schema-Test-Suite" / "tests" / draft
    if not folder.is_dir():
        pytest.skip(f"needs JSON-Schema-Test-Suite at {folder}")
    return folder


def test_no_invalid_value_of_the_keywords_of_objects_is_accepted(shared_assets: Path) -> None:
    folder = _suite(shared_assets, "draft2020-12")
    names = ("additionalProperties", "patternProperties", "required", "minProperties")
    counts, accepted, refused = _run([folder / f"{name}.json" for name in names])
    assert counts["compiled"] >= 10
    assert accepted == []
    assert refused == set()


@pytest.mark.parametrize(
    ("draft", "least"),
    [("draft2020-12", 199), ("draft2019-09", 202), ("draft7", 194), ("draft6", 186),
     ("draft4", 152)],
)  # fmt: skip
@pytest.mark.long
def test_no_invalid_value_is_accepted(shared_assets: Path, draft: str, least: int) -> None:
    counts, accepted, refused = _run(sorted(_suite(shared_assets, draft).rglob("*.json")))
    assert accepted == []
    assert refused <= _DEPARTURES | _FAR
    assert counts["compiled"] >= least
