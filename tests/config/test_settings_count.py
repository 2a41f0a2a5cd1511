"""No setting is for show: each is read outside config/, and a test shows what it changes.

A new setting fails here until both are so. Reading is looked for in the source (an attribute of
something called `config`), so a setting that is only listed, shown or documented does not count.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import msgspec
import pytest

from headrace.config import EngineConfig, ServerConfig, flags_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headrace"

# Setting, and the test of its effect.
SHOWN = {
    "host": "http/test_listen.py::test_host_and_port",
    "port": "http/test_listen.py::test_host_and_port",
    "allowed_hosts": "http/test_host_names.py::test_names_of_a_listener",
    "uds": "server/connections/test_tls.py::test_headrace_serve_on_a_unix_socket",
    "ssl_certfile": "server/connections/test_tls.py::test_it_speaks_tls",
    "ssl_keyfile": "server/connections/test_tls.py::test_it_speaks_tls",
    "ssl_ca_certs": "server/connections/test_tls.py::test_clients_have_to_show_a_certificate",
    "api_key": "server/lifecycle/test_run_seeing.py"
    "::test_a_log_of_json_has_nothing_else_and_no_secrets",
    "enable_key_shares": "server/admission/test_key_shares.py"
    "::test_without_shares_it_is_the_order_of_arrival",
    "admin_api_key": "server/test_auth.py::test_an_admin_key_alone_leaves_the_rest_open",
    "allowed_origins": "server/test_cors.py::test_a_question_beforehand_needs_no_key",
    "allowed_methods": "server/test_cors.py::test_every_origin_and_the_other_settings",
    "allowed_headers": "server/test_cors.py::test_every_origin_and_the_other_settings",
    "allow_credentials": "server/test_cors.py::test_every_origin_and_the_other_settings",
    "max_body_bytes": "server/connections/test_client_limits.py"
    "::test_the_body_limit_is_the_settings",
    "max_header_bytes": "server/connections/test_client_limits.py::test_headers_up_to_the_limit",
    "max_connections": "server/connections/test_client_limits.py::test_one_connection_too_many",
    "slow_client_timeout": "server/connections/test_client_limits.py"
    "::test_a_refused_body_that_never_comes_is_not_waited_for",
    "sse_keep_alive": "server/connections/test_wire.py::test_keep_alive_comments_during_silence",
    "max_num_queued_reqs": "server/replies/test_choices.py::test_choices_take_places_in_the_queue",
    "max_num_queued_tokens": "server/replies/test_choices.py"
    "::test_prompt_tokens_of_choices_are_queued_once",
    "request_timeout": "server/replies/test_reply_fields.py"
    "::test_the_deadline_counts_from_the_arrival",
    "shutdown_timeout": "system/test_ending.py::test_the_timeout_bounds_it",
    "max_engine_restarts": "system/test_engine_dies.py"
    "::test_an_engine_that_is_killed_again_and_again_is_given_up",
    "engine_stall_timeout": "system/test_engine_dies.py::test_a_stopped_engine_is_replaced",
    "served_model_name": "server/lifecycle/test_run.py"
    "::test_a_folder_and_a_file_give_the_same_text_but_say_which_they_are",
    "responses_store": "server/dialects/test_responses_engine.py"
    "::test_a_later_turn_computes_its_new_tokens_and_a_restart_forgets_nothing",
    "max_stored_responses": "server/responses_store/test_store.py"
    "::test_the_bounds_are_the_settings",
    "max_stored_response_bytes": "server/responses_store/test_store.py"
    "::test_the_bounds_are_the_settings",
    "stored_response_days": "server/responses_store/test_store.py"
    "::test_the_bounds_are_the_settings",
    "tool_call_parser": "server/model/test_load.py"
    "::test_formats_of_calls_and_reasoning_are_the_templates_or_those_named",
    "exclude_tools_when_tool_choice_none": "server/model/test_templates.py"
    "::test_the_settings_reach_the_model",
    "reasoning_parser": "server/model/test_load.py"
    "::test_formats_of_calls_and_reasoning_are_the_templates_or_those_named",
    "chat_template": "server/model/test_load.py::test_a_template_from_a_file",
    "chat_template_name": "server/model/test_templates.py::test_the_settings_reach_the_model",
    "default_chat_template_kwargs": "server/model/test_templates.py"
    "::test_the_settings_reach_the_model",
    "trust_request_chat_template": "server/model/test_templates.py"
    "::test_the_settings_reach_the_model",
    "enable_force_include_usage": "server/replies/test_reply_fields.py"
    "::test_a_server_may_end_every_stream_with_usage",
    "enable_docs": "server/openapi/test_openapi.py::test_it_can_be_turned_off",
    "log_level": "server/lifecycle/test_run_seeing.py"
    "::test_a_log_of_json_has_nothing_else_and_no_secrets",
    "log_format": "server/lifecycle/test_run_seeing.py"
    "::test_a_log_of_json_has_nothing_else_and_no_secrets",
    "enable_log_requests": "server/lifecycle/test_run_seeing.py"
    "::test_a_text_log_is_lines_with_times",
    "enable_log_outputs": "server/observability/test_access_log.py"
    "::test_texts_where_both_settings_ask_for_them",
    "max_log_len": "server/observability/test_access_log.py"
    "::test_texts_where_both_settings_ask_for_them",
    "status_interval": "server/lifecycle/test_run_seeing.py"
    "::test_a_log_of_json_has_nothing_else_and_no_secrets",
    "otlp_traces_endpoint": "server/observability/test_tracing.py::test_a_call_over_http",
}


def _reads(source: str) -> set[str]:
    """Attributes that are read of a name or attribute that ends in `config`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            base = node.value
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if name.endswith("config"):
                found.add(node.attr)
    return found


@functools.cache
def parsed(path: str) -> ast.Module:
    """A file of tests."""
    return ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def read() -> set[str]:
    files = (one for one in SOURCE.rglob("*.py") if one.relative_to(SOURCE).parts[0] != "config")
    texts = (file.read_text(encoding="utf-8") for file in files)
    # Only files with an attribute of something called `config` are worth parsing.
    return set().union(*(_reads(text) for text in texts if "config." in text))


@pytest.mark.parametrize("config", [ServerConfig, EngineConfig])
def test_every_setting_is_read(config: type[msgspec.Struct], read: set[str]) -> None:
    unread = {flag.name for flag in flags_of(config)} - read
    assert not unread, "nothing reads these settings, so they have no effect"


def test_a_setting_nobody_reads_would_be_found() -> None:
    assert _reads("x = self._config.a; config.b = 1; settings.c; f(server_config.d)") == {"a", "d"}


def test_every_server_setting_has_a_test_of_its_effect() -> None:
    assert set(SHOWN) == {flag.name for flag in flags_of(ServerConfig)}


@pytest.mark.parametrize(("setting", "test"), SHOWN.items())
def test_that_test_sets_it(setting: str, test: str) -> None:
    path, name = test.split("::")
    (function,) = [
        one
        for one in parsed(path).body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name
    ]
    flag = f"--{setting.replace('_', '-')}"
    given = {one.arg for one in ast.walk(function) if isinstance(one, ast.keyword)}
    given |= {
        one.value
        for one in ast.walk(function)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    assert {setting, flag} & given, f"{test} does not give {flag}"
