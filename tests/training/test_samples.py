"""Completion samples: what is drawn, what the engine makes of it, and the marks it gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headrace import LLM, SamplingParams
from training.measure import samples
from training.measure.heldout_text import Document
from training.measure.marks import marks_of, settled

ROOT = Path(__file__).resolve().parents[2]


def test_settled_is_outside_of_strings_and_brackets() -> None:
    assert settled("def f(x):\n")
    assert settled('x = """\na\n"""\n# (\n')
    for text in ('def f():\n    """Say\n', "f(\n", "x = 1", "x = 1 + \\\n", "x = ']'  # [\nf([)\n"):
        assert not settled(text), text


def test_marks_of_good_code() -> None:
    prompt = "class A:\n    def f(self, x):\n"
    good = (
        "        if x:\n            return [\n          1,\n   2]\n        # odd ( comment\n"
        '        text = """\n  ) free\n"""\n        return {x: ")"}\n\n    def g(self): pass\n'
    )
    found = marks_of(prompt, good)
    assert found.parsed_share == 1.0
    assert (found.brackets_match, found.n_open_brackets) == (True, 0)
    assert found.indented_share == 1.0
    assert found.n_lines == 10  # the blank one is none


def test_marks_of_text_that_breaks_off() -> None:
    found = marks_of("def f(x):\n", "    y = x\n    return g(y,")
    assert found.parsed_share == 1.0
    assert (found.brackets_match, found.n_open_brackets) == (True, 1)
    assert found.n_lines == 2
    assert marks_of("import nu", "mpy").parsed_share is None
    assert marks_of("import nu", "").indented_share is None
    assert marks_of("def f(x):\n", "\n  \n").n_lines == 0
    # The line that the prompt began is the prompt's: its indentation says nothing.
    assert marks_of("import nu", "mpy\nimport os\n").indented_share == 1.0


def test_marks_of_bad_code() -> None:
    assert marks_of("def f(x):\n", "    a = (x]\n    b = 1\n").brackets_match is False
    assert marks_of("def f(x):\n", "    a = x)\n").brackets_match is False
    # Not deeper behind a colon, then not a multiple of four, then deeper without a colon.
    assert marks_of("def f(x):\n", "a = 1\n").indented_share == 0.0
    assert marks_of("def f(x):\n", "   a = 1\n   b = 1\n").indented_share == 0.0
    assert marks_of("def f(x):\n", "    a = 1\n        b = 1\n").indented_share == 0.5
    assert marks_of("", "a = 1\nb = 2\nif a\n    c = 3\n").parsed_share == 0.5
    assert marks_of("", "a = '\0'\n").parsed_share == 0.0


def held_out_document(name: str, n_functions: int, n_lines: int) -> Document:
    function = "def {name}(a,\n         b):\n" + "    a += b\n" * n_lines + "\n\n"
    text = "import os\n\n\n" + "".join(
        function.replace("{name}", f"{name}_{i}") for i in range(n_functions)
    )
    return Document("p", f"p/{name}.py", text)


def test_prompts_are_drawn_by_seed_one_of_a_file() -> None:
    documents = [held_out_document(f"f{i}", 3, 40) for i in range(14)]
    documents.append(held_out_document("short", 5, 20))
    documents.append(Document("p", "p/README.md", "not Python ("))
    drawn = samples.drawn_prompts(documents, seed=1)
    assert drawn == samples.drawn_prompts(documents, seed=1)
    assert drawn != samples.drawn_prompts(documents, seed=2)
    assert len({prompt.source.partition(":")[0] for prompt in drawn}) == samples.N_DRAWN
    texts = {document.path: document.text for document in documents}
    for prompt in drawn:
        path, _, line = prompt.source.partition(":")
        assert path != "p/short.py"
        assert prompt.text.startswith("def f")
        assert prompt.text.count("\n") == samples.PROMPT_LINES
        assert prompt.reference.count("\n") == samples.COMPLETION_LINES
        rest = "".join(texts[path].splitlines(keepends=True)[int(line) - 1 :])
        assert rest.startswith(prompt.text + prompt.reference)


def test_prompt_ends_outside_of_a_docstring() -> None:
    text = 'def f():\n    """Say\n' + "    more\n" * 15 + '    """\n' + "    f()\n" * 30
    (prompt,) = samples.definitions(Document("p", "p/a.py", text))
    assert prompt.text.endswith('more\n    """\n')
    without_end = text.replace("    more\n" * 15, "    more\n" * 40)
    assert samples.definitions(Document("p", "p/a.py", without_end)) == []


def test_samples_are_those_of_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = sorted((ROOT / "src" / "headrace" / "embedded").glob("*.gguf"))
    if not embedded:
        pytest.skip("the embedded model has not been built")
    monkeypatch.setattr(samples, "COMPLETION_TOKENS", 6)
    monkeypatch.setattr(samples, "HAND_PROMPTS", ("import nu",))
    monkeypatch.setattr(samples, "CHAT_MESSAGES", ("Hello",))
    (tmp_path / "corpus").mkdir()
    documents = [held_out_document(f"f{i}", 2, 40) for i in range(3)]
    lines = [json.dumps(document._asdict()) + "\n" for document in documents]
    (tmp_path / "corpus" / "heldout.jsonl").write_text("".join(lines))
    reports = []
    for name in ("one.json", "two.json"):
        options = [str(embedded[0]), "--data", str(tmp_path), "--json", str(tmp_path / name)]
        monkeypatch.setattr(sys, "argv", ["samples", *options])
        samples.main()
        reports.append(json.loads((tmp_path / name).read_text()))
    assert reports[0] == reports[1]
    found = reports[0]["samples"]
    assert [one["kind"] for one in found] == ["heldout"] * 3 + ["hand", "chat"]
    assert [one["seed"] for one in found[:3]] == [samples.SEED + i for i in range(3)]
    assert [one["temperature"] for one in found] == [0.6] * 3 + [0.0] * 2
    llm = LLM(embedded[0], threads=1)
    params = SamplingParams(temperature=0.0, max_tokens=6)
    [expected] = llm.generate("import nu", params)
    assert found[3]["completion"] == expected.text
    assert found[3]["n_tokens"] == len(expected.token_ids)
    assert found[4]["completion"] == llm.chat([{"role": "user", "content": "Hello"}], params).text
    assert reports[0]["reference_means"] == {
        "parsed_share": 1.0,
        "brackets_match": 1.0,
        "indented_share": 1.0,
        "n_lines": 20.0,
        "empty_share": 0.0,
    }
    assert "import nu" in capsys.readouterr().out
