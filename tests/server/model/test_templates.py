"""Which chat template a request is rendered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.errors import ConfigError, RequestError, TemplateError
from headrace.server.lifecycle.load import TextSide, load_text
from headrace.server.model.templates import (
    KEPT_TEMPLATES,
    RequestTemplates,
    chosen_template,
    template_defaults,
)
from headrace.text import Tokenizer
from tests.tiny import write_tiny_gguf

HI = [{"role": "user", "content": "hi"}]


def test_templates_of_requests_are_refused_compiled_and_kept(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="--trust-request-chat-template") as refused:
        RequestTemplates(tokenizer).of("x")
    assert refused.value.param == "chat_template"
    templates = RequestTemplates(tokenizer, trusted=True)
    first = templates.of("{{ messages[0].content }}!")
    assert first.render(HI) == "hi!"
    assert templates.of("{{ messages[0].content }}!") is first
    for number in range(KEPT_TEMPLATES):
        templates.of(f"{number}")
    assert templates.of("{{ messages[0].content }}!") is not first, "the oldest made room"
    with pytest.raises(TemplateError, match="does not parse"):
        templates.of("{% for %}")
    with pytest.raises(TemplateError, match="at most"):
        templates.of("x" * 300_000)


def test_a_named_template() -> None:
    templates = {"default": "a", "rag": "b"}
    assert chosen_template(templates, None) == templates
    assert chosen_template(templates, "rag") == {"default": "b"}
    with pytest.raises(ConfigError, match=r"--chat-template-name x: .*default, rag"):
        chosen_template(templates, "x")
    with pytest.raises(ConfigError, match="it has: none"):
        chosen_template({}, "x")


def test_default_variables() -> None:
    assert template_defaults(None, ()) == {}
    assert template_defaults('{"enable_thinking": false}', ("tools",)) == {"enable_thinking": False}
    for text in ("[]", "{", "5", "{'a': 1}"):
        with pytest.raises(ConfigError, match=r"--default-chat-template-kwargs .*JSON object"):
            template_defaults(text, ())
    with pytest.raises(ConfigError, match="'tools' is a field of requests"):
        template_defaults('{"tools": []}', ("tools",))


def test_the_settings_reach_the_model(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path)

    def load(**settings: Any) -> TextSide:
        return load_text(EngineConfig(model=str(path)), ServerConfig(**settings))

    plain = load()
    assert plain.template_defaults == {} and plain.trust_request_template is False
    assert plain.excludes_unused_tools is False
    changed = load(
        default_chat_template_kwargs='{"a": 1}',
        trust_request_chat_template=True,
        chat_template_name="default",
        exclude_tools_when_tool_choice_none=True,
    )
    assert changed.excludes_unused_tools is True
    assert changed.template_defaults == {"a": 1} and changed.trust_request_template is True
    with pytest.raises(ConfigError, match="--chat-template-name rag"):
        load(chat_template_name="rag")
    with pytest.raises(ConfigError, match="'messages' is a field of requests"):
        load(default_chat_template_kwargs='{"messages": 1}')
