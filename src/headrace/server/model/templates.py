"""The chat templates of a server: the model's, and where that is allowed, those requests bring.

A template is code, however bounded; so one in a request is taken only where the operator said so.
Compiled templates of requests are kept, a few of them, because clients send the same one again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from headrace.errors import ConfigError, RequestError
from headrace.text import ChatTemplate, Tokenizer
from headrace.text.template_limits import check_source

# Of requests' templates; each is at most MAX_SOURCE_BYTES long.
KEPT_TEMPLATES = 8


class RequestTemplates:
    """Templates from requests, compiled. Safe to use from several threads.

    trusted: whether any is taken at all.
    """

    def __init__(self, tokenizer: Tokenizer, *, trusted: bool = False) -> None:
        self._tokenizer = tokenizer
        self._trusted = trusted
        self._kept: OrderedDict[str, ChatTemplate] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, source: str) -> ChatTemplate:
        """The template a request brings.

        Raises RequestError where none is taken, TemplateError for one that is too long or does
        not parse.
        """
        if not self._trusted:
            raise RequestError(
                "chat_template: a template is code, and this server accepts none from "
                "requests; omit the field, or start the server with "
                "--trust-request-chat-template",
                param="chat_template",
            )
        with self._lock:
            known = self._kept.get(source)
            if known is not None:
                self._kept.move_to_end(source)
                return known
        check_source(source, "chat_template")
        template = ChatTemplate.for_tokenizer(source, self._tokenizer)
        template.compile()
        with self._lock:
            self._kept[source] = template
            if len(self._kept) > KEPT_TEMPLATES:
                self._kept.popitem(last=False)
        return template


def chosen_template(templates: Mapping[str, str], name: str | None) -> dict[str, str]:
    """The templates to serve with: all the model has, or only the one named, for everything.

    Raises ConfigError naming those there are.
    """
    if name is None:
        return dict(templates)
    if name not in templates:
        known = ", ".join(sorted(templates)) or "none"
        raise ConfigError(
            f"--chat-template-name {name}: the model has no such chat template (it has: {known})"
        )
    return {"default": templates[name]}


def template_defaults(text: str | None, taken: Collection[str]) -> dict[str, Any]:
    """Variables every rendering gets, from the JSON of --default-chat-template-kwargs.

    taken: names that are no variables. Raises ConfigError for what is no JSON object.
    """
    if text is None:
        return {}
    setting = "--default-chat-template-kwargs"
    try:
        values = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{setting} {text!r} is not a JSON object: {error}") from error
    for name in values:
        if name in taken:
            raise ConfigError(
                f"{setting}: {name!r} is a field of requests, not a template variable"
            )
    return values
