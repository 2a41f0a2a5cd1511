"""A task: one of lm-evaluation-harness's YAML files over documents in local files.

What is read here means what it means there; a field or a value that would change the result and is
not supported is refused by name, so that a figure is the harness's or none. Templates are Jinja's
over the fields of a document, in a sandbox, or the name of a field.

Source: lm-evaluation-harness 0.4.13, its task guide and lm_eval/api/task.py (ConfigurableTask).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from headrace.config.yaml_file import read_yaml
from headrace.errors import ConfigError, shown

Document = Mapping[str, Any]
OutputType = Literal["multiple_choice", "loglikelihood", "generate_until"]

METRICS: Mapping[str, tuple[str, ...]] = {
    "multiple_choice": ("acc", "acc_norm", "acc_bytes"),
    "loglikelihood": ("acc", "perplexity"),
    "generate_until": ("exact_match",),
}
"""Those that each kind of task can have; without a metric_list it has all of them."""

_NO_EFFECT = {
    "tag", "task_alias", "should_decontaminate", "doc_to_decontamination_query", "metadata",
    "dataset_name", "training_split", "unsafe_code",
}  # fmt: skip
"""Fields that do not change what is measured of local files."""
_DEFAULT_MAX_TOKENS = 256
_MAX_FILE_BYTES = 1 << 30


class Metric(msgspec.Struct, frozen=True):
    """A metric and how exact_match compares."""

    name: str
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: tuple[str, ...] = ()


class FilterStep(msgspec.Struct, frozen=True):
    """A step from the answer as generated to the one that is compared."""

    function: str
    """"regex", "take_first" or "remove_whitespace"."""
    regex_pattern: str = r"#### (\-?[0-9\.\,]+)"
    group_select: int = 0
    fallback: str = "[invalid]"


class AnswerFilter(msgspec.Struct, frozen=True):
    """Steps under a name; each filter has results of its own."""

    name: str
    steps: tuple[FilterStep, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its documents."""

    name: str
    output_type: OutputType
    doc_to_text: str
    doc_to_target: str | int
    doc_to_choice: str | tuple[str, ...] | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    num_fewshot: int = 0
    metrics: tuple[Metric, ...]
    filters: tuple[AnswerFilter, ...] = (AnswerFilter("none"),)
    until: tuple[str, ...] = ()
    max_tokens: int = _DEFAULT_MAX_TOKENS
    documents: tuple[dict[str, Any], ...]
    fewshot_documents: tuple[dict[str, Any], ...] = ()
    same_split: bool = False
    """Whether examples are of the documents themselves; none is an example in its own prompt."""


def read_task(path: Path, *, data: Path | None = None, num_fewshot: int | None = None) -> Task:
    """The task of a YAML file.

    data: a JSON or JSON lines file in place of the one that is named; names in the file are
    relative to it. num_fewshot: in place of the file's. Raises ConfigError naming the field.
    """
    fields = _Fields(path)
    output_type = fields.choice("output_type", "generate_until", tuple(METRICS))
    shots = num_fewshot if num_fewshot is not None else fields.number("num_fewshot", 0)
    validation, training = fields.text("validation_split", ""), fields.text("training_split", "")
    split = fields.text("test_split", "") or validation or "test"
    shot_split = fields.text("fewshot_split", "") or training or validation or split
    files = _data_files(fields, path)
    documents = _documents([data] if data is not None else files.of(split, fields))
    examples: tuple[dict[str, Any], ...] = ()
    shot_config = fields.mapping("fewshot_config")
    if shots:
        sampler = shot_config.pop("sampler", "default")
        if shot_config:
            fields.refuse("fewshot_config", f"{min(shot_config)} is not supported", "remove it")
        if sampler != "first_n":
            fields.refuse(
                "fewshot_config", f"the sampler is {shown(sampler)}, which draws at random",
                "write `fewshot_config: {sampler: first_n}`, or --num-fewshot 0",
            )  # fmt: skip
        # A file in place of those that are named is all there is.
        own = shot_split == split or (data is not None and shot_split not in files.by_split)
        examples = documents if own else _documents(files.of(shot_split, fields))
        if len(examples) < shots + 1:
            fields.refuse(
                "num_fewshot", f"{shots} examples are wanted of {len(examples)} documents",
                "lower it with --num-fewshot",
            )  # fmt: skip
    generation = fields.mapping("generation_kwargs")
    between = fields.text("fewshot_delimiter", "\n\n")
    task = Task(
        name=fields.text("task", path.stem),
        output_type=output_type,  # type: ignore[arg-type]
        doc_to_text=fields.text("doc_to_text"),
        doc_to_target=fields.take("doc_to_target", required=True),
        doc_to_choice=_choices(fields),
        description=fields.text("description", ""),
        target_delimiter=fields.text("target_delimiter", " "),
        fewshot_delimiter=between,
        num_fewshot=shots,
        metrics=_metrics(fields, output_type),
        filters=_filters(fields),
        until=_until(fields, generation, between),
        max_tokens=_max_tokens(fields, generation),
        documents=documents,
        fewshot_documents=examples,
        same_split=examples == documents,
    )
    if output_type == "multiple_choice" and task.doc_to_choice is None:
        fields.refuse("doc_to_choice", "it is missing", "multiple_choice needs the choices")
    fields.end()
    return task


class _Fields:
    """The fields of a file, each taken once."""

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--task {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"--task {path} is not UTF-8 at byte {error.start}") from error
        loaded = [document.loaded for document in read_yaml(text, str(path), once=True)]
        if len(loaded) != 1 or not isinstance(loaded[0], dict):
            raise ConfigError(f"--task {path}: a mapping of fields is required, as in a task of "
                              "lm-evaluation-harness")  # fmt: skip
        self._path = path
        self._fields: dict[str, Any] = loaded[0]

    def take(self, name: str, *, required: bool = False) -> Any:
        if required and name not in self._fields:
            self.refuse(name, "it is missing", "a task needs it")
        return self._fields.pop(name, None)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.take(name, required=default is None)
        if value is None:
            return default or ""
        if not isinstance(value, str):
            self.refuse(name, f"it is {shown(value)}", "write text; Python functions are not run")
        return str(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """Fields within a field, a copy; none where it is missing."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, f"it is {shown(value)}", "write a mapping of fields")
        return {str(key): inner for key, inner in (value or {}).items()}

    def mappings(self, name: str) -> list[dict[str, Any]] | None:
        """A list of mappings; None where it is missing."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(inner, dict) for inner in value):
            self.refuse(name, f"it is {shown(value)}", "write a list of mappings")
        return [dict(inner) for inner in value]

    def number(self, name: str, default: int) -> int:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1000:
            self.refuse(name, f"it is {shown(value)}", "write a whole number from 0 to 1000")
        return int(value)

    def choice(self, name: str, default: str, values: Sequence[str]) -> str:
        value = self.text(name, default)
        if value not in values:
            self.refuse(name, f"it is {shown(value)}", f"supported: {', '.join(values)}")
        return value

    def end(self) -> None:
        """Raise ConfigError for fields that nobody took."""
        if self.take("repeats") not in (None, 1):
            self.refuse("repeats", "every document is answered once", "write 1")
        rest = sorted(self._fields.keys() - _NO_EFFECT)
        if rest:
            self.refuse(rest[0], "it is not supported", "remove it, or run lm-eval on our server")

    def refuse(self, name: str, what: str, remedy: str) -> NoReturn:
        raise ConfigError(f"{self._path}: {name}: {what}; {remedy}")


class _DataFiles(msgspec.Struct, frozen=True):
    """The data files by split; "" is of all splits."""

    by_split: dict[str, list[Path]]

    def of(self, split: str, fields: _Fields) -> list[Path]:
        files = self.by_split.get(split, self.by_split.get(""))
        if not files:
            named = ", ".join(self.by_split) or "none"
            fields.refuse(
                "dataset_kwargs.data_files", f"no file of split {shown(split)} (there are: "
                f"{named})", "name one there, or a file with --data",
            )  # fmt: skip
        return files or []


def _data_files(fields: _Fields, path: Path) -> _DataFiles:
    fields.take("dataset_path")  # what is read are the files that data_files names
    given = fields.mapping("dataset_kwargs").get("data_files") or {}
    listed = given if isinstance(given, dict) else {"": given}
    found = {}
    for split, files in listed.items():
        names = files if isinstance(files, list) else [files]
        found[str(split)] = [path.parent / str(name) for name in names]
    return _DataFiles(found)


def _documents(paths: Sequence[Path]) -> tuple[dict[str, Any], ...]:
    documents: list[dict[str, Any]] = []
    for path in paths:
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise ConfigError(f"{path}: larger than 1 GiB; cut the data into smaller files")
            raw = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        documents += _decoded(raw, path)
    if not documents:
        raise ConfigError(f"{', '.join(map(str, paths))}: no documents in it")
    return tuple(documents)


def _decoded(raw: bytes, path: Path) -> list[dict[str, Any]]:
    """A JSON array of objects, or an object a line."""
    whole = raw.lstrip()[:1] == b"["
    lines = [raw] if whole else raw.splitlines()
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            loaded = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}: line {number} is not JSON: {error}") from error
        found += loaded if whole else [loaded]
    wrong = next((document for document in found if not isinstance(document, dict)), None)
    if wrong is not None:
        raise ConfigError(f"{path}: a document is {shown(wrong)}; objects with fields are required")
    return found


def _choices(fields: _Fields) -> str | tuple[str, ...] | None:
    value: Any = fields.take("doc_to_choice")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return tuple(str(choice) for choice in value)
    if value is not None and not isinstance(value, str):
        fields.refuse("doc_to_choice", f"it is {shown(value)}", "write a template or a list")
    return value


def _metrics(fields: _Fields, output_type: str) -> tuple[Metric, ...]:
    known = METRICS[output_type]
    listed = fields.mappings("metric_list")
    if listed is None:
        return tuple(Metric(name) for name in known)
    metrics = []
    for given in listed:
        name = given.pop("metric", None)
        if name not in known:
            fields.refuse(
                "metric_list", f"{shown(name)} is not a metric of {output_type}",
                f"supported: {', '.join(known)}",
            )  # fmt: skip
        aggregation = given.pop("aggregation", None)
        if aggregation not in (None, "mean", name):
            fields.refuse(
                "metric_list", f"{name} has the aggregation {shown(aggregation)}", "write mean"
            )
        given.pop("higher_is_better", None)
        try:
            metrics.append(msgspec.convert({"name": name, **given}, Metric, strict=True))
        except msgspec.ValidationError as error:
            fields.refuse("metric_list", f"{name}: {error}", "write it as the harness does")
        unknown = given.keys() - set(Metric.__struct_fields__)
        if unknown:
            fields.refuse("metric_list", f"{name} has {min(unknown)}", "remove it")
        _check_patterns(fields, "metric_list", metrics[-1].regexes_to_ignore)
    return tuple(metrics)


def _filters(fields: _Fields) -> tuple[AnswerFilter, ...]:
    listed = fields.mappings("filter_list")
    if not listed:
        return (AnswerFilter("none"),)
    filters = []
    for given in listed:
        try:
            steps = msgspec.convert(given.get("filter", []), tuple[FilterStep, ...])
        except msgspec.ValidationError as error:
            fields.refuse("filter_list", str(error), "write it as the harness does")
        for step in steps:
            if step.function not in ("regex", "take_first", "remove_whitespace"):
                fields.refuse(
                    "filter_list", f"{shown(step.function)} is not supported",
                    "supported: regex, take_first, remove_whitespace",
                )  # fmt: skip
        _check_patterns(fields, "filter_list", [step.regex_pattern for step in steps])
        filters.append(AnswerFilter(str(given.get("name", "none")), steps))
    return tuple(filters)


def _check_patterns(fields: _Fields, name: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            fields.refuse(name, f"{shown(pattern)}: {error}", "write a regular expression")


def _until(fields: _Fields, generation: Mapping[str, Any], default: str) -> tuple[str, ...]:
    until = generation.get("until", default) or []
    listed = [until] if isinstance(until, str) else until
    if not isinstance(listed, list):
        fields.refuse("generation_kwargs", f"until is {shown(until)}", "write a list of texts")
    return tuple(str(stop) for stop in listed if stop)


def _max_tokens(fields: _Fields, generation: Mapping[str, Any]) -> int:
    if generation.get("do_sample") or float(generation.get("temperature") or 0) > 0:
        fields.refuse(
            "generation_kwargs", "answers would be drawn at random", "write `do_sample: false`"
        )
    names = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    rest = sorted(generation.keys() - {*names, "until", "do_sample", "temperature"})
    if rest:
        fields.refuse("generation_kwargs", f"{rest[0]} is not supported", "remove it")
    value = next((generation[name] for name in names if name in generation), _DEFAULT_MAX_TOKENS)
    if not isinstance(value, int) or not 1 <= value <= 1_000_000:
        fields.refuse("generation_kwargs", f"max_gen_toks is {shown(value)}", "write 1 or more")
    return int(value)
