"""Flags of `vllm serve` about its server that do not exist here by name."""

from __future__ import annotations

from headrace.config.vllm.setting import (
    differs,
    not_there_yet,
    renamed,
    table,
    without_effect,
)

_ONE_SERVER = "HTTP cannot be served by several processes; there is one"
_LIMITS = "headers are bounded by {max_header_bytes}"

SERVER_ARGS = table(
    renamed("uvicorn_log_level", "here it is {log_level}"),
    renamed("disable_fastapi_docs", "here {enable_docs} is switched off"),
    renamed("h11_max_incomplete_event_size", "here it is {max_header_bytes}"),
    renamed("ssl_cert_reqs", "with {ssl_ca_certs} clients have to show a certificate"),
    without_effect("h11_max_header_count", _LIMITS),
    without_effect("enable_request_id_headers", "replies always have x-request-id"),
    without_effect("enable_prompt_tokens_details", "usage always has the cached tokens"),
    without_effect("enable_offline_docs", "the page of /docs loads nothing from elsewhere"),
    without_effect("disable_uvicorn_access_log", "requests are logged with {enable_log_requests} "
                   "alone"),
    without_effect("disable_access_log_for_endpoints", "requests are logged with "
                   "{enable_log_requests} alone"),
    without_effect("enable_log_deltas", "outputs are logged whole, with {enable_log_outputs}"),
    without_effect("log_error_stack", "an error of the server's own is logged with its stack"),
    without_effect("disable_frontend_multiprocessing", "the engine always has its own process"),
    without_effect("enable_server_load_tracking", "/metrics and /admin/requests show the load"),
    without_effect("enable_flash_late_interaction", "there is no scoring"),
    differs("return_tokens_as_token_ids", "a request has return_tokens_as_token_ids", False),
    differs("chat_template_content_format", "a message's parts are given to the template as it "
            "reads them", "auto"),
    differs("response_role", "the role of a reply is assistant", "assistant"),
    differs("enable_tokenizer_info_endpoint", "clients are not shown the tokenizer's settings",
            False),
    differs("log_config_file", "the log is set with {log_level} and {log_format}"),
    differs("middleware", "code named by a setting is never run; put a proxy in front", []),
    differs("root_path", "paths begin at /; let the proxy take its prefix off", ""),
    differs("headless", "`headrace serve` serves HTTP; LLM has no server", False),
    not_there_yet("lora_modules", "adapters (LoRA) are not loaded"),
    not_there_yet("prompt_adapters", "prompt adapters are not loaded"),
    without_effect("enable_auto_tool_choice", "a request with tools may always call them; "
                   "{tool_call_parser} names the format where the chat template does not show it"),
    differs("tool_parser_plugin", "code named by a setting is never run; {tool_call_parser} names "
            "a format that is built in", ""),
    not_there_yet("tool_server", "the server runs no tools; clients run them"),
    not_there_yet("api_server_count", _ONE_SERVER, 1, flags=("-asc",)),
    not_there_yet("enable_ssl_refresh", "certificates are not read again; a new one takes a "
                  "restart", False),
    not_there_yet("ssl_ciphers", "ciphers cannot be chosen; they are those of Python's TLS"),
    not_there_yet("tokens_only", "replies with token ids alone are not sent; return_token_ids adds "
                  "them to the text", False),
    differs("enable_per_request_metrics", "a request has return_metrics", False),
    not_there_yet("fingerprint_mode", "system_fingerprint cannot be chosen; the server sets "
                  "it", "full"),
    not_there_yet("fingerprint_value", "system_fingerprint cannot be chosen; the server sets it"),
)  # fmt: skip
