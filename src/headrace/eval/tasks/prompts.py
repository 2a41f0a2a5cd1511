"""From a document to what the model reads and to the answer that is right.

A prompt is the description, the examples (each text, delimiter, answer, and the delimiter between
examples), and the document's text. Of a choice the model reads the prompt, the target delimiter and
the choice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError
from headrace.eval.tasks.task_file import Document, Task

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

# A template that is one expression: its value is taken as it is, a list or a number included.
_EXPRESSION = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)


class Prompter:
    """The templates of one task."""

    def __init__(self, task: Task) -> None:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self._task = task
        self._environment: ImmutableSandboxedEnvironment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        self._environment.filters["regex_replace"] = _regex_replace

    def prompt(self, document: Document) -> str:
        """What precedes the answer."""
        task = self._task
        parts = [str(self._value(task.description, document))]
        for example in self._examples(document):
            parts += [
                self._text(example), task.target_delimiter, self._answer(example),
                task.fewshot_delimiter,
            ]  # fmt: skip
        parts.append(self._text(document))
        return "".join(parts)

    def choices(self, document: Document) -> list[str]:
        """The texts of the choices; raises ConfigError where they are not a list of texts."""
        given = self._task.doc_to_choice
        found = list(given) if isinstance(given, tuple) else self._value(given or "", document)
        if not isinstance(found, list) or not found:
            raise ConfigError(f"{self._task.name}: doc_to_choice gives {found!r:.80}, not a list")
        return [str(choice) for choice in found]

    def target(self, document: Document) -> int | str | list[int] | list[str]:
        """The right answer: the number of a choice, a text, or several of one of both."""
        found = self._value(self._task.doc_to_target, document)
        if isinstance(found, list):
            return found
        if self._task.doc_to_choice is not None and str(found).isdigit():
            return int(found)
        return str(found)

    def _examples(self, document: Document) -> list[Document]:
        task = self._task
        pool = task.fewshot_documents[: task.num_fewshot + 1]
        if task.same_split:
            pool = tuple(example for example in pool if example != document)
        return list(pool[: task.num_fewshot])

    def _answer(self, document: Document) -> str:
        target = self.target(document)
        if isinstance(target, int):
            return self.choices(document)[target]
        return str(target[0] if isinstance(target, list) else target)

    def _text(self, document: Document) -> str:
        return str(self._value(self._task.doc_to_text, document))

    def _value(self, template: str | int, document: Document) -> Any:
        import jinja2

        if isinstance(template, int):
            return template
        if not isinstance(template, str):
            raise ConfigError(f"{self._task.name}: {template!r:.80} is not a template or a number")
        if template in document:
            return document[template]
        expression = _EXPRESSION.fullmatch(template)
        try:
            if expression is not None:
                compiled = self._environment.compile_expression(
                    expression[1], undefined_to_none=False
                )
                found = compiled(**document)
                # An undefined value raises when it is used, as in a template.
                return str(found) if isinstance(found, jinja2.Undefined) else found
            return self._environment.from_string(template).render(**document)
        except jinja2.TemplateError as error:
            raise ConfigError(
                f"{self._task.name}: template {template!r:.80} on a document with the fields "
                f"{', '.join(sorted(document))}: {error}"
            ) from error


def _regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """The filter of that name in the harness's templates."""
    return re.sub(pattern, replacement, text, count=count)
