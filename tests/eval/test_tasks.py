"""Tasks: what is read of their files, prompts, scores by hand, and refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.eval.tasks.prompts import Prompter
from headrace.eval.tasks.run import harness_results, run_task, sample_fields
from headrace.eval.tasks.scores import choice_scores, filtered, match_scores
from headrace.eval.tasks.task_file import AnswerFilter, FilterStep, Metric, read_task

CHOICE = """
task: letters
dataset_path: json
dataset_kwargs: {data_files: {test: letters.jsonl}}
output_type: multiple_choice
doc_to_text: "Q: {{question}}\\nA:"
doc_to_target: answer
doc_to_choice: choices
"""
LETTERS = [
    {"question": "first", "choices": ["a", "bbbb"], "answer": 0},
    {"question": "second", "choices": ["c", "dd"], "answer": 1},
    {"question": "third", "choices": ["e", "f"], "answer": 1},
]


class Listed:
    """A model whose answers are listed."""

    def __init__(self, likelihoods: dict[str, float], answer: str = "") -> None:
        self._likelihoods, self._answer = likelihoods, answer
        self.seen: list[tuple[str, str]] = []

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        self.seen += pairs
        return [(self._likelihoods[text.strip()], text.strip() == "a") for _, text in pairs]

    def answers(self, prompts: Sequence[str], until: Sequence[str], max_tokens: int) -> list[str]:
        self.seen += [(prompt, "") for prompt in prompts]
        return [self._answer] * len(prompts)


def written(folder: Path, text: str = CHOICE) -> Path:
    lines = "".join(json.dumps(document) + "\n" for document in LETTERS)
    (folder / "letters.jsonl").write_text(lines, encoding="utf-8")
    (folder / "task.yaml").write_text(text, encoding="utf-8")
    return folder / "task.yaml"


def test_choices_are_scored_as_they_are_and_over_their_lengths(tmp_path: Path) -> None:
    model = Listed({"a": -2.0, "bbbb": -4.0, "c": -1.0, "dd": -3.0, "e": -1.0, "f": -0.5})
    result = run_task(read_task(written(tmp_path)), model)
    assert model.seen[0] == ("Q: first\nA:", " a")
    by_name = {score.metric: score for score in result.scores}
    assert by_name["acc"].value == pytest.approx(2 / 3)
    assert by_name["acc_norm"].value == pytest.approx(1 / 3), "-1 a character beats -2"
    assert by_name["acc"].error == pytest.approx(math.sqrt(2 / 9 / 2))
    fields = harness_results([result])["results"]["letters"]
    assert fields["acc,none"] == by_name["acc"].value and fields["sample_len"] == 3
    sample = sample_fields(result.samples[1])
    assert (sample["doc_id"], sample["target"], sample["acc"]) == (1, 1, 0.0)
    assert sample["resps"] == [[-1.0, False], [-3.0, False]]


def test_examples_come_first_and_a_document_is_none_of_its_own(tmp_path: Path) -> None:
    text = CHOICE + "num_fewshot: 1\nfewshot_config: {sampler: first_n}\n"
    prompter = Prompter(read_task(written(tmp_path, text)))
    assert prompter.prompt(LETTERS[1]) == "Q: first\nA: a\n\nQ: second\nA:"
    assert prompter.prompt(LETTERS[0]) == "Q: second\nA: dd\n\nQ: first\nA:"


def test_a_likelihood_task_has_accuracy_and_perplexity(tmp_path: Path) -> None:
    text = (
        "task: last\noutput_type: loglikelihood\ndoc_to_text: question\n"
        "doc_to_target: \"{{choices[0]}}\"\n"
    )  # fmt: skip
    data = written(tmp_path, text).with_name("letters.jsonl")
    task = read_task(tmp_path / "task.yaml", data=data)
    scores = run_task(task, Listed({"a": -1.0, "c": -2.0, "e": -3.0})).scores
    assert [score.metric for score in scores] == ["acc", "perplexity"]
    assert scores[0].value == pytest.approx(1 / 3)
    assert scores[1].value == pytest.approx(math.exp(2.0))
    assert scores[1].error == pytest.approx(math.exp(2.0) / math.sqrt(3))


def test_answers_are_filtered_before_they_are_compared(tmp_path: Path) -> None:
    text = """
task: numbers
doc_to_text: question
doc_to_target: "{{answer}}"
metric_list: [{metric: exact_match, ignore_case: true}]
filter_list:
  - {name: strict, filter: [{function: regex, regex_pattern: "#### ([0-9]+)"}]}
  - {name: last, filter: [{function: regex, regex_pattern: "[0-9]+", group_select: -1}]}
"""
    data = written(tmp_path, text).with_name("letters.jsonl")
    result = run_task(read_task(tmp_path / "task.yaml", data=data), Listed({}, "7, so 1"))
    found = {score.filter: score.value for score in result.scores}
    assert found == {"strict": 0.0, "last": pytest.approx(2 / 3)}


def test_parts_of_scores() -> None:
    metrics = [Metric("acc"), Metric("acc_bytes")]
    likelihoods = [(-3.0, False), (-2.0, False)]
    assert choice_scores(metrics, ["ää", "x"], [0], likelihoods) == {"acc": 0.0, "acc_bytes": 1.0}
    loose = Metric("exact_match", ignore_punctuation=True, regexes_to_ignore=(r"\$",))
    assert match_scores([loose], "$5.", ["4", "5"]) == {"exact_match": 1.0}
    steps = AnswerFilter("f", (FilterStep("regex", "(x)|(y+)"),))
    assert filtered("a yy", steps) == "yy" and filtered("a", steps) == "[invalid]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("process_docs: f", "process_docs: it is not supported"),
        ("num_fewshot: 2", "sampler is 'default', which draws at random"),
        ("metric_list: [{metric: f1}]", "'f1' is not a metric of multiple_choice"),
        ("repeats: 3", "every document is answered once"),
        ("filter_list: [{name: a, filter: [{function: map}]}]", "'map' is not supported"),
    ],
)  # fmt: skip
def test_what_would_change_the_result_is_refused_by_name(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_task(written(tmp_path, f"{CHOICE}{line}\n"))


def test_splits_are_the_harnesss(tmp_path: Path) -> None:
    text = CHOICE.replace(
        "{test: letters.jsonl}", "{test: absent.jsonl, validation: letters.jsonl}"
    )
    path = written(tmp_path, text + "test_split: null\nvalidation_split: validation\n")
    assert len(read_task(path).documents) == 3
    (tmp_path / "train.jsonl").write_text('{"question": "x", "choices": ["y"], "answer": 0}\n' * 2)
    text = CHOICE.replace("{test: letters.jsonl}", "{test: letters.jsonl, train: train.jsonl}")
    shots = "training_split: train\nnum_fewshot: 1\nfewshot_config: {sampler: first_n}\n"
    prompter = Prompter(read_task(written(tmp_path, text + shots)))
    assert prompter.prompt(LETTERS[0]) == "Q: x\nA: y\n\nQ: first\nA:"


def test_a_description_is_a_template_and_answers_end_where_examples_would(tmp_path: Path) -> None:
    text = CHOICE.replace("multiple_choice", "generate_until").replace("doc_to_choice: choices", "")
    task = read_task(written(tmp_path, text + 'description: "About {{question}}. "\n'))
    assert Prompter(task).prompt(LETTERS[0]) == "About first. Q: first\nA:"
    assert task.until == ("\n\n",)


@pytest.mark.parametrize(
    "line",
    [
        "fewshot_config: first_n", "generation_kwargs: [x]", "dataset_kwargs: x",
        "metric_list: [acc]", "filter_list: [x]",
        "metric_list: [{metric: acc, aggregation: median}]",
        "num_fewshot: 1\nfewshot_config: {sampler: first_n, split: x}",
    ],
)  # fmt: skip
def test_fields_of_another_shape_are_refused_by_name(line: str, tmp_path: Path) -> None:
    text = "".join(
        kept + "\n"
        for kept in CHOICE.splitlines()
        if not line.startswith(kept.partition(":")[0] + ":") or not kept
    )
    with pytest.raises(ConfigError, match=line.rpartition("\n")[2].partition(":")[0]):
        read_task(written(tmp_path, text + line + "\n"))


def test_data_that_is_not_there_or_not_json_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(ConfigError, match=r"nothing.jsonl: No such file"):
        read_task(path, data=tmp_path / "nothing.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad.jsonl: line 2 is not JSON"):
        read_task(path, data=tmp_path / "bad.jsonl")
