"""/metrics of the mock endpoint: the few that tools look at, under vLLM's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.bench.mock.endpoint import MockEndpoint


def metrics_text(endpoint: MockEndpoint) -> str:
    """Prometheus' text format."""
    label = endpoint.settings.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    rows: list[tuple[str, str, str, int]] = [
        ("vllm:num_requests_running", "gauge", "Requests in progress.", endpoint.running),
        ("vllm:num_requests_waiting", "gauge", "Requests waiting.", endpoint.waiting),
        (
            "vllm:prompt_tokens_total",
            "counter",
            "Prompt tokens of answered requests.",
            endpoint.prompt_tokens,
        ),
        (
            "vllm:generation_tokens_total",
            "counter",
            "Output tokens of complete answers.",
            endpoint.output_tokens,
        ),
    ]
    lines = []
    for name, kind, text, value in rows:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines.append(f'{name}{{model_name="{label}"}} {value}')
    name = "mock:requests_total"
    lines += [f"# HELP {name} Requests by outcome.", f"# TYPE {name} counter"]
    for outcome, count in sorted(endpoint.outcomes.items()):
        lines.append(f'{name}{{model_name="{label}",outcome="{outcome}"}} {count}')
    return "\n".join(lines) + "\n"
