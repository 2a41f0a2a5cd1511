"""Checks of prompts: prefixes as they are measured, repeats, languages, templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded import embedded_model
from headrace.plan.lint.known import model_files
from headrace.plan.lint.prefix import common_prefix
from headrace.plan.lint.repeats import repeated_characters
from headrace.plan.lint.scripts import script_of
from headrace.plan.lint.subject import ModelFiles
from tests.plan.lint.subjects import found, lacks, outcome, prompts, request, run, subject, values

RULES = " ".join(
    f"Rule {n}: answer politely and name the law numbered {n * 37}." for n in range(30)
)


@pytest.fixture(scope="module")
def files() -> ModelFiles:
    return model_files(str(embedded_model()), {})


def chat(system: str, user: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"messages": messages, **fields}


def test_dynamic_text_before_static_text_is_measured(tmp_path: Path, files: ModelFiles) -> None:
    lines = [chat(f"It is 2026-11-22 10:{n:02d}. {RULES}", f"Why {n}?") for n in range(10, 20)]
    one = found("L-prefix", subject(prompts=prompts(tmp_path, lines), tokenizer=files.tokenizer,
                                    tokenizer_name="base"))  # fmt: skip
    told = {(item.name, item.unit): item.value for item in one.evidence}
    # "system", a line's end, and the text up to the last digit of the minute.
    assert told["longest common prefix", "characters"] == len("system\nIt is 2026-11-22 10:1")
    assert 0 < float(told["longest common prefix", "tokens"]) < 30
    assert told["breaks in", ""] == "messages[0].content, character 21"
    assert one.says.startswith("a date or time at messages[0].content")


def test_static_text_first_is_clean(tmp_path: Path) -> None:
    lines = [chat(RULES, f"It is 2026-11-22 10:{n:02d}. Why?") for n in range(10)]
    assert outcome("L-prefix", subject(prompts=prompts(tmp_path, lines))) == ()
    other = [chat(f"Poem {n}", " ".join(f"w{n}x{m}" for m in range(200))) for n in range(10)]
    assert outcome("L-prefix", subject(prompts=prompts(tmp_path, other))) == ()


def test_one_prompt_is_too_few(tmp_path: Path) -> None:
    assert "two" in lacks("L-prefix", subject(prompts=prompts(tmp_path, [chat("a", "b")])))
    assert "--prompts" in lacks("L-prefix-order", subject())


def test_tools_in_another_order(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("find", "read")]
    lines = [chat("x", "y", tools=tools), chat("x", "z", tools=tools[::-1])]
    one = found("L-prefix-order", subject(prompts=prompts(tmp_path, lines)))
    assert [item.name for item in one.evidence] == ["tools[0]", "tools[0]"]
    lines[1]["tools"] = tools
    assert outcome("L-prefix-order", subject(prompts=prompts(tmp_path, lines))) == ()
    lines[1]["tools"] = [{"function": {"name": "find"}, "type": "function"}, tools[1]]
    assert found("L-prefix-order", subject(prompts=prompts(tmp_path, lines)))


def test_text_that_stands_twice(tmp_path: Path) -> None:
    twice = prompts(tmp_path, [chat(RULES, RULES)])
    told = values(found("L-prompt-long", subject(prompts=twice)))
    assert len(RULES) * 0.9 < float(told["repeated"]) <= len(RULES)
    once = prompts(tmp_path, [chat(RULES, "Why?")])
    assert outcome("L-prompt-long", subject(prompts=once)) == ()


def test_instructions_that_dwarf_what_is_asked(tmp_path: Path) -> None:
    rules = "".join(f"Rule {n * 7919}: say {n**5}.\n" for n in range(400))
    both = prompts(tmp_path, [chat(rules, "Why?"), chat(rules, "How?")])
    one = found("L-prompt-long", subject(prompts=both))
    assert one.severity == "info" and "instructions" in one.says


def test_repeats_are_counted_once() -> None:
    words = " ".join(f"word{n}" for n in range(40))
    assert repeated_characters(words) == 0
    assert repeated_characters(f"{words} {words}") == len(words)
    assert repeated_characters("- - - " * 100) == 0  # a rule of a table


def test_a_budget_that_ignores_the_language(tmp_path: Path, files: ModelFiles) -> None:
    english, chinese = (
        "The court decides on the plea of the owner. " * 8,
        "法院对业主的请求作出裁决。" * 20,
    )
    lines = [chat(english, english, max_tokens=500), chat(chinese, chinese, max_tokens=500)]
    given: dict[str, Any] = {"tokenizer": files.tokenizer, "tokenizer_name": "base"}
    one = found("L-language", subject(prompts=prompts(tmp_path, lines), **given))
    told = values(one)
    assert float(told["Latin: characters of a token"]) > 1.5 * float(
        told["Chinese: characters of a token"]
    )
    lines[1]["max_tokens"] = 5000
    assert outcome("L-language", subject(prompts=prompts(tmp_path, lines), **given)) == ()
    one_language = prompts(tmp_path, [chat(english, english, max_tokens=500)] * 2)
    assert outcome("L-language", subject(prompts=one_language, **given)) == ()
    assert "--tokenizer" in lacks("L-language", subject(prompts=one_language))


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Ça va?", "Latin"),
        ("你好 ok", "Chinese"),
        ("これは本です", "Japanese"),
        ("привет", "Cyrillic"),
        ("안녕", "Korean"),
        ("مرحبا", "Arabic"),
        ("123 !?", None),
    ],
)
def test_scripts(text: str, script: str | None) -> None:
    assert script_of(text) == script


def test_a_chat_without_a_template(tmp_path: Path, files: ModelFiles) -> None:
    base = ModelFiles(name="base", format="gguf", templates={})
    chats = prompts(tmp_path, [chat("a", "b")])
    line = "headrace serve base"
    assert found("L-template", subject(line, files=base, prompts=chats)).severity == "error"
    api = run([request(0)], about={"endpoint_kind": "openai-chat"})
    assert found("L-template", subject(line, files=base, run=api)).severity == "error"
    texts = prompts(tmp_path, [{"prompt": "Once"}])
    assert outcome("L-template", subject(line, files=base, prompts=texts)) == ()
    assert outcome("L-template", subject(line, files=files, prompts=chats)) == ()
    assert "--model" in lacks("L-template", subject(line, prompts=chats))


def test_another_template_than_the_models_own(files: ModelFiles) -> None:
    line = "headrace serve base --chat-template chatml.jinja"
    own = next(iter(files.templates.values()))
    other = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    one = found("L-template", subject(line, files=files, template=other))
    assert values(one)["they differ from"] == common_prefix(
        str(values(one)["the model's own has"]), str(values(one)["the one that is set has"])
    )
    assert outcome("L-template", subject(line, files=files, template=own)) == ()
    broken = found("L-template", subject(line, files=files, template="{{ raise_exception('no') }}"))
    assert broken.severity == "error"


def test_marks_of_another_format(tmp_path: Path, files: ModelFiles) -> None:
    given: dict[str, Any] = {"tokenizer": files.tokenizer, "tokenizer_name": "base"}
    strange = prompts(tmp_path, [{"prompt": "[INST] Why? [/INST]"}])
    one = found("L-template-marks", subject(prompts=strange, **given))
    assert "[INST]" in str(values(one)["marks"])
    assert files.tokenizer is not None
    own = prompts(tmp_path, [{"prompt": files.tokenizer.control_tokens[0] + " Why?"}])
    assert outcome("L-template-marks", subject(prompts=own, **given)) == ()


def test_a_tokenizer_that_is_not_the_models(shared_assets: Path, files: ModelFiles) -> None:
    other = model_files(str(shared_assets / "models/stories260K/stories260K.gguf"), {})
    line = "vllm serve base --tokenizer stories"
    one = found("L-tokenizer", subject(line, files=files, other_tokenizer=other.tokenizer))
    assert values(one)["--tokenizer"] == "stories"
    same = subject(line, files=files, other_tokenizer=files.tokenizer)
    assert outcome("L-tokenizer", same) == ()
    assert outcome("L-tokenizer", subject("vllm serve base")) == ()
    assert "disk" in lacks("L-tokenizer", subject(line, files=files))


def test_low_bits_without_an_importance_matrix() -> None:
    line = "headrace serve base"
    low = {"name": "m.gguf", "format": "gguf", "templates": {}, "kinds": {"Q2_K": 90, "F32": 10}}
    assert found("L-rtn", subject(line, files=ModelFiles(**low)))  # type: ignore[arg-type]
    made = ModelFiles(**low, imatrix="wiki.dat")  # type: ignore[arg-type]
    assert outcome("L-rtn", subject(line, files=made)) == ()
    rounded = ModelFiles(name="m", format="safetensors", templates={},
                         quantization={"quant_method": "bitsandbytes"})  # fmt: skip
    assert found("L-rtn", subject(line, files=rounded))
    assert "--model" in lacks("L-rtn", subject(line))


def test_a_prompts_place_is_told(tmp_path: Path) -> None:
    one = prompts(tmp_path, [chat("abc", "def")]).prompts[0]
    assert one.text == "system\nabcuser\ndef"
    assert one.place_of(8) == "messages[0].content, character 1"
    assert json.loads((tmp_path / "prompts.jsonl").read_text().splitlines()[0])
