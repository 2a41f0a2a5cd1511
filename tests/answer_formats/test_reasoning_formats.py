"""Reasoning and content are kept apart, whoever opened the reasoning."""

from __future__ import annotations

import pytest

from headrace.answer_formats.formats import AnswerFormat, call_format, reasoning_format
from headrace.answer_formats.parser import AnswerParser
from tests.answer_formats.cuts import parsed

HERMES_CALL = '<tool_call>{"name": "refresh", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("name", "text", "opened", "reasoning", "content"),
    [
        ("think", "<think>\nHm, 2 < 3.\n</think>\n\nYes. ", False, "Hm, 2 < 3.", "Yes. "),
        ("think", "Hm.\n</think>\n\nYes.", True, "Hm.", "Yes."),
        ("think", "<think>Hm.</think>Yes.", True, "Hm.", "Yes."),
        ("think", "\n<think></think>Yes.", False, "", "Yes."),
        ("think", " Yes, <think> is a mark.", False, "", " Yes, <think> is a mark."),
        ("think", "Hm. </thin \n", True, "Hm. </thin", ""),
        ("mistral", "[THINK]Hm.[/THINK]Yes.", False, "Hm.", "Yes."),
        ("seed", "<seed:think>Hm.</seed:think>Yes.", False, "Hm.", "Yes."),
        ("granite", "<think>Hm.</think>\n<response>Yes.</response>", False, "Hm.", "Yes."),
        (
            "command",
            "<|START_THINKING|>🌈<|END_THINKING|>\n<|START_RESPONSE|>Yes.<|END_RESPONSE|>",
            False,
            "🌈",
            "Yes.",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
            "<|message|>Yes.\n<|return|>",
            False,
            "Hm.",
            "Yes.\n",
        ),
    ],
)
def test_reasoning_and_content_at_every_cut(
    name: str, text: str, opened: bool, reasoning: str, content: str
) -> None:
    answer = parsed(AnswerFormat(reasoning=reasoning_format(name)), text, opened)
    assert (answer.reasoning, answer.content) == (reasoning, content)


def test_calls_after_reasoning_and_within_it() -> None:
    format = AnswerFormat(call_format("hermes"), reasoning_format("think"))
    answer = parsed(format, f"<think>{HERMES_CALL}?</think>\n\n{HERMES_CALL}")
    assert answer.reasoning == HERMES_CALL + "?"
    assert (answer.content, len(answer.calls)) == ("", 1)


def test_the_section_of_calls_of_kimi_ends_reasoning() -> None:
    format = AnswerFormat(call_format("kimi_k2"), reasoning_format("think"))
    text = (
        "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.refresh:0"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    )
    answer = parsed(format, text, True)
    assert (answer.reasoning, answer.content, answer.calls[0].name) == ("Hm.", "", "refresh")


CALLS = {
    "qwen3_coder": "<tool_call>\n<function=get_time>\n<parameter=zone>\nUTC\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n</tool_call>",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_comes_before_the_end_of_reasoning_ends_it(name: str) -> None:
    format = AnswerFormat(call_format(name), reasoning_format("think"))
    call = CALLS[name]
    for after in ("", "\n</think>", "\n</think>\n\n"):
        answer = parsed(format, f"Hm.\n{call}{after}", True)
        assert (answer.reasoning, answer.content) == ("Hm.", "")
        assert [(each.name, each.arguments) for each in answer.calls] == [
            ("get_time", '{"zone": "UTC"}')
        ]
    answer = parsed(format, f"<think>{call}\n{call}</think>\nDone. {call}")
    assert (answer.reasoning, answer.content, len(answer.calls)) == ("", "Done.", 3)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_call_of_a_tool_of_the_request_stays_reasoning(name: str) -> None:
    format = AnswerFormat(call_format(name), reasoning_format("think"))
    other = CALLS[name].replace("get_time", "get_tide")
    for thought in (f"Is it {other}?", "I write <tool_call> and </tool_call>.", "<tool_call>\n"):
        answer = parsed(format, f"{thought}\n</think>\n\n{CALLS[name]}", True)
        assert (answer.reasoning, answer.content) == (thought.strip(), "")
        assert [each.name for each in answer.calls] == ["get_time"]
        assert parsed(format, thought, True).reasoning == thought.rstrip()
    assert parsed(format, f"{CALLS[name]}</think>Yes.", True, None).reasoning == CALLS[name]


def test_harmony_says_something_before_a_call() -> None:
    format = AnswerFormat(call_format("harmony"), reasoning_format("harmony"))
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant to=functions.refresh<|channel|>commentary json<|message|>"
        "{}<|call|><|start|>assistant to=python<|channel|>analysis code<|message|>{}"
    )
    answer = parsed(format, text)
    assert (answer.reasoning, answer.content) == ("Hm.", "I look.")
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("refresh", "{}"),
        ("python", "{}"),
    ]


@pytest.mark.parametrize(
    ("name", "pieces", "opened", "within"),
    [
        ("think", ["<th", "ink>", "Hm. ", "</thi", "nk>", "\nYes."], False, "011100"),
        ("think", ["Hm.", "</think>", "Yes."], True, "100"),
        ("think", ["Yes.", "</think>"], False, "00"),
        ("think_assumed", ["Hm.", "</think>", "Yes."], False, "100"),
        ("think", ["<think>", "a <think> b", "</think>", "<think>"], False, "1100"),
        ("think", ["Hm.", "<|tool_calls_section_begin|>"], True, "10"),
        ("granite", ["Here is my thought process:", " Hm. Here is my response: Yes."], False, "10"),
        (
            "harmony",
            ["<|channel|>", "analysis<|message|>", "Hm.", "<|end|>", "<|start|>",
             "assistant<|channel|>final<|message|>", "Yes."],
            False,
            "0110000",
        ),
    ],
)  # fmt: skip
def test_a_parser_says_whether_the_text_so_far_ends_within_reasoning(
    name: str, pieces: list[str], opened: bool, within: str
) -> None:
    format = AnswerFormat(reasoning=reasoning_format(name))
    parser = AnswerParser(format, reasoning_opened=opened or format.opens_reasoning(""))
    seen = []
    for piece in pieces:
        parser.feed(piece)
        seen.append(parser.in_reasoning)
    assert "".join(str(int(value)) for value in seen) == within
    parser.finish()
    assert parser.in_reasoning is seen[-1]


def test_reasoning_closed_after_a_budget_is_followed_by_the_answer() -> None:
    format = AnswerFormat(call_format("hermes"), reasoning_format("think"))
    answer = parsed(format, f"Hm, and then I\n</think>\n\n{HERMES_CALL}", True)
    assert (answer.reasoning, answer.content, len(answer.calls)) == ("Hm, and then I", "", 1)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [("…<think>\n", True), ("…<think>\n\n</think>\n\n", False), ("…assistant\n", False)],
)
def test_a_prompt_that_ends_with_the_mark_opens_reasoning(prompt: str, opened: bool) -> None:
    assert AnswerFormat(reasoning=reasoning_format("think")).opens_reasoning(prompt) is opened


@pytest.mark.parametrize(("prompt", "opened"), [("…assistant\n", True), ("…</think>\n\n", False)])
def test_reasoning_is_assumed_where_the_prompt_does_not_end_it(prompt: str, opened: bool) -> None:
    format = AnswerFormat(reasoning=reasoning_format("deepseek_r1"))
    assert format.opens_reasoning(prompt) is opened


def test_a_mark_that_ends_reasoning_again_is_no_content() -> None:
    format = AnswerFormat(None, reasoning_format("think"))
    for text in ("Hm.</think></think>Yes.", "Hm.\n</think>\n\n</think>\n </think>\n\nYes."):
        answer = parsed(format, text, True)
        assert (answer.reasoning, answer.content) == ("Hm.", "Yes.")
    said = parsed(format, "Hm.</think>The mark is </think>.", True)
    assert said.content == "The mark is </think>.", "an answer may speak of the mark"
    assert parsed(format, "</think>Yes.", False).content == "</think>Yes."


@pytest.mark.parametrize("name", CALLS)
def test_a_mention_of_a_call_that_names_no_tool_stays_reasoning(name: str) -> None:
    format = AnswerFormat(call_format(name), reasoning_format("think"))
    for mention in (
        "<tool_call> is a mark", "<tool_call>\n<function=", "<tool_call>get_time is a tool",
        '<tool_call>\n{"name": "get_time"} has no arguments',
    ):  # fmt: skip
        answer = parsed(format, f"{mention}\n</think>\nYes.", True)
        assert (answer.reasoning, answer.content, answer.calls) == (mention, "Yes.", ())


@pytest.mark.parametrize(
    "content",
    ["and so on.</think>\n\nYes.", "Yes. <think>Again.</think> No.", "<think>Again."],
)
def test_what_follows_the_end_of_reasoning_is_content_with_all_marks(content: str) -> None:
    for opened, begin in ((True, ""), (False, "<think>")):
        format = AnswerFormat(call_format("hermes"), reasoning_format("think"))
        answer = parsed(format, f"{begin}Hm.</think>{content}", opened)
        assert (answer.reasoning, answer.content, answer.calls) == ("Hm.", content, ())
