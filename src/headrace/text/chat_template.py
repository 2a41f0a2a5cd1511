"""Chat messages to the prompt text a model was trained on, by the template that came with it.

Byte for byte what transformers' apply_chat_template gives for the same messages; work and output
are bounded. Importing this is cheap: jinja2 is imported by the first rendering.
`render_segments` tells template text from text users wrote, so that a control token in a message
stays ordinary text.
Knows no token ids: what is rendered is encoded with add_special_tokens=False.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.errors import RequestError, TemplateError, shown
from headrace.text.template_limits import Budget, RenderLimits, check_nodes, check_source
from headrace.text.template_messages import check_nesting, normalized_messages, plain
from headrace.text.user_text import Disguise, disguises, segments_of, unused_private

MAX_ERROR_CHARACTERS = 2000
"""Of what a template's error says: names in it may be as long as a template, and fill a log."""

if TYPE_CHECKING:
    import jinja2

    from headrace.text.template_traits import TemplateTraits
    from headrace.text.tokenizer import Segment, Tokenizer


class ChatTemplate:
    """One checkpoint's chat templates, compiled once. Safe to use from several threads.

    source: the template, or templates by name: "default", and "tool_use" for requests with tools.
    bos_token, eos_token: their texts, None for none. special_tokens: further names templates may
    use ("pad_token", ...). media: content parts the model takes beside text, by their type. clock:
    what `strftime_now` shows. limits: what one rendering may do.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        media: Collection[str] = (),
        clock: Callable[[], datetime] = datetime.now,
        limits: RenderLimits | None = None,
    ) -> None:
        self._sources = {"default": source} if isinstance(source, str) else dict(source)
        self._variables = {
            **(special_tokens or {}),
            "bos_token": bos_token or "",
            "eos_token": eos_token or "",
        }
        self._media = frozenset(media)
        self._clock = clock
        self._limits = limits or RenderLimits()
        self._compiled: dict[str, tuple[jinja2.Template, TemplateTraits]] = {}

    @classmethod
    def for_tokenizer(
        cls, source: str | Mapping[str, str], tokenizer: Tokenizer, **options: Any
    ) -> ChatTemplate:
        """Templates with the names of a tokenizer's special tokens; options: of the class."""
        return cls(
            source,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            special_tokens=tokenizer.named_tokens,
            **options,
        )

    @property
    def source_text(self) -> str:
        """All templates as one text."""
        return "\n".join(self._sources.values())

    def compile(self) -> None:
        """Compile every template now. Raises TemplateError where one does not parse."""
        for name in self._sources:
            self._template(name)

    def traits(self, template_name: str = "default") -> TemplateTraits:
        """What a template expects of messages. Raises TemplateError where it does not parse."""
        return self._template(self._name(template_name, None))[1]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        template_name: str | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt text.

        continue_final_message: leave the last message open for the model to go on. kwargs: further
        variables of the template (enable_thinking, ...). An empty `tools` is none.
        Raises RequestError for messages it cannot be, TemplateError with the template's own words
        where it refuses them, and when it exceeds the limits.
        """
        job = self._job(
            template_name,
            messages,
            add_generation_prompt,
            tools,
            documents,
            continue_final_message,
            kwargs,
        )
        return self._render(job, job.user_inputs)

    def render_segments(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        control_tokens: Iterable[str],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool = False,
        template_name: str | None = None,
        **kwargs: Any,
    ) -> list[Segment]:
        """The text of `render` in pieces, for Tokenizer.encode_segments.

        Pieces that say False came from a message, a tool or a document and could begin a control
        token. The joined pieces equal `render` exactly. Control tokens that the template itself
        looks for in messages, so that telling them apart would change its output, say True; where
        even that is not enough, everything does, as other engines treat everything. Roles and types
        that are plain words count as the template's.
        """
        job = self._job(
            template_name,
            messages,
            add_generation_prompt,
            tools,
            documents,
            continue_final_message,
            kwargs,
        )
        text = self._render(job, job.user_inputs)
        for disguise in disguises(job.user_inputs, tuple(control_tokens), job.looked_for):
            segments = self._segments(job, disguise)
            if segments is not None and "".join(piece for piece, _ in segments) == text:
                return segments
        return [(text, True)]

    def _segments(self, job: _Job, disguise: Disguise) -> list[Segment] | None:
        try:
            return segments_of(self._render(job, disguise.apply(job.user_inputs)), disguise)
        except TemplateError:
            # It renders undisguised: what it looked for is what was disguised.
            return None

    def _name(self, wanted: str | None, tools: Sequence[Any] | None) -> str:
        name = wanted or ("tool_use" if tools and "tool_use" in self._sources else "default")
        if name not in self._sources:
            known = ", ".join(sorted(self._sources)) or "none"
            raise TemplateError(
                f"this model has no chat template named {shown(name)} (it has: {known}); use raw "
                "completions or give a chat template"
            )
        return name

    def _job(
        self,
        template_name: str | None,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        continue_final_message: bool,
        kwargs: Mapping[str, Any],
    ) -> _Job:
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other; set "
                "add_generation_prompt to false to continue the last message",
                param="continue_final_message",
            )
        template, traits = self._template(self._name(template_name, tools))
        for name, value in kwargs.items():
            check_nesting(value, name)
        user_inputs = {
            **kwargs,
            "messages": normalized_messages(messages, traits, self._media),
            "tools": plain(tools, "tools") if tools else None,
            "documents": plain(documents, "documents") if documents else None,
        }
        mark = None
        if continue_final_message:
            mark = unused_private(user_inputs, 1)[0]
            _mark_end(user_inputs["messages"], mark)
        flags = {"add_generation_prompt": add_generation_prompt}
        return _Job(template, flags, user_inputs, mark, traits.looked_for)

    def _render(self, job: _Job, user_inputs: Mapping[str, Any]) -> str:
        from headrace.text.template_sandbox import BUDGET

        budget = Budget(self._limits)
        variables = {**self._variables, **user_inputs, **job.flags, BUDGET: budget}
        pieces: list[str] = []
        length = 0
        with _errors_named("the chat template refuses these messages"):
            for piece in job.template.generate(variables):
                length += len(piece)
                budget.charge_chars(len(piece))
                budget.check_chars(length)
                pieces.append(piece)
        text = "".join(pieces)
        return text if job.mark is None else _cut_at_mark(text, job.mark)

    def _template(self, name: str) -> tuple[jinja2.Template, TemplateTraits]:
        compiled = self._compiled.get(name)
        if compiled is None:
            from headrace.text.template_traits import num_nodes, traits_of

            source = self._sources[name]
            check_source(source, f"chat template {name!r}")
            with _errors_named(f"chat template {name!r} does not parse"):
                tree = self._environment.parse(source)
                check_nodes(num_nodes(tree), f"chat template {name!r}")
                template = self._environment.from_string(source)
                # A rendering copies them: a chain of mappings is walked name by name for that.
                template.globals = dict(template.globals)
                compiled = template, traits_of(tree, source)
            self._compiled[name] = compiled
        return compiled

    @cached_property
    def _environment(self) -> jinja2.Environment:
        from headrace.text.template_sandbox import SandboxEnvironment

        return SandboxEnvironment(self._clock, self._limits)


@dataclass(frozen=True)
class _Job:
    """One rendering: the template, what the server says, what users say.

    mark: a private-use character that ends the message to continue; None for none. looked_for: as
    in TemplateTraits.
    """

    template: jinja2.Template
    flags: Mapping[str, Any]
    user_inputs: Mapping[str, Any]
    mark: str | None
    looked_for: Collection[str]


def _mark_end(chat: list[dict[str, Any]], mark: str) -> None:
    """Put the mark behind the text of the last message; a space tells whether a template trims."""
    content = chat[-1]["content"] if chat else None
    if isinstance(content, str):
        chat[-1]["content"] = f"{content}{mark} "
    elif isinstance(content, list) and content and "text" in content[-1]:
        content[-1]["text"] += f"{mark} "
    else:
        raise RequestError(
            "continue_final_message needs a last message with a text to continue",
            param="continue_final_message",
        )


def _cut_at_mark(text: str, mark: str) -> str:
    """What stands before the last mark; without trailing spaces where the template trims messages.

    A template may write the last message more than once.
    """
    before, found, after = text.rpartition(mark)
    if not found:
        raise TemplateError(
            "continue_final_message is not possible: this chat template omits the last "
            "message's text"
        )
    kept = before if after.startswith(" ") else before.rstrip()
    return kept.replace(f"{mark} ", "").replace(mark, "")


def _brief(words: str | None) -> str:
    """An error's words, cut where names in them are absurdly long."""
    words = words or ""
    if len(words) <= MAX_ERROR_CHARACTERS:
        return words
    return f"{words[:MAX_ERROR_CHARACTERS]}... ({len(words)} characters)"


@contextmanager
def _errors_named(what: str) -> Iterator[None]:
    """Whatever template code raises, as a TemplateError; a template's own words stay as they are.

    A template is foreign code: it may raise what any expression may raise.
    """
    import jinja2

    try:
        yield
    except TemplateError:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{what}: line {error.lineno}: {_brief(error.message)}") from error
    except jinja2.TemplateRuntimeError as error:
        raise TemplateError(f"{what}: {_brief(error.message)}") from error
    except jinja2.TemplateError as error:
        raise TemplateError(_brief(str(error))) from error
    except (
        ArithmeticError,
        AssertionError,  # of filters: truncate to less than its own ending
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,  # recursion without end, an iterable changed while it is looped over
        SyntaxError,  # of the Python that a template becomes: blocks nested too deeply
        TypeError,
        ValueError,
    ) as error:
        raise TemplateError(f"{what}: {type(error).__name__}: {_brief(str(error))}") from error
