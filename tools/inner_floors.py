"""The floors inside the large rooms: gateway, plan, bench and server.

An inner room is a folder of the large room, or a file that lies loose in it; it imports only inner
rooms on floors below its own, when the program runs: imports for types alone do not count. Where
rooms import each other in a ring, one of them at least imports upward. `RINGS` and `UPWARD` name
all of those there are: a new one fails, and so does a name here that is no longer needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tools.house import rings

Edge = tuple[str, str]
"""A room and one that it imports."""

# From the ground up, each line a floor.
_FLOORS: Mapping[str, tuple[str, ...]] = {
    "gateway": (
        "batch_writer client_address importing in_time pii redis_idle ticking upstream within",
        "settings sqlite_verdict",
        "accounts listening targets",
        "credentials guests held_bodies ledger routing",
        "access alerts cache engines telemetry",
        "guards key_answer own_answers request_log",
        "replaying serving",
        "asgi_sink feedback logged_post ollama_posts prompts",
        "client_watch count_posts embedding_posts own_replies",
        "app",
        "building",
        "assemble explaining prompt_cache",
        "admin",
        "workers",
        "run",
    ),
    "plan": (
        "formatting formulas header parallel_notes reference run_file saved_plan validation",
        "explanation quantity",
        "machine model",
        "memory step",
        "calibration",
        "speed",
        "cost lint simulation",
        "recommendation report",
        "page",
    ),
    "bench": (
        "arrivals cost machine proportion record roofline saturation search_result "
        "server_history signals statistics timer vllm_form writer",
        "client concurrency definitions engine journal known_prices mock pooled ratio "
        "series token_count verdict",
        "collected draft_steps reply_journal server_figures slo throughput workload",
        "goodput prompts",
        "summary traces vllm_result",
        "load_point",
        "report",
        "load",
        "against providers",
    ),
    "server": (
        "api_error responses_store",
        "admission connection model observability",
        "generation service_messages state",
        "openapi prompts",
        "lifecycle replies",
        "cors dialects llamacpp",
        "auth",
        "call",
        "answer",
        "routes",
        "app",
        "run",
    ),
}

FLOORS: Mapping[str, Mapping[str, int]] = {
    house: {room: floor for floor, row in enumerate(rows) for room in row.split()}
    for house, rows in _FLOORS.items()
}
"""Of each large room its inner rooms, and the floor each stands on."""

RINGS: Mapping[str, frozenset[frozenset[str]]] = {
    "gateway": frozenset(
        {frozenset({"cache", "guards", "ledger", "request_log", "serving", "telemetry"})}
    ),
    "plan": frozenset(),
    "bench": frozenset(),
    "server": frozenset(),
}
"""Rooms of which each imports each, if not directly. There may only be fewer, of fewer rooms."""

UPWARD: Mapping[str, frozenset[Edge]] = {
    "gateway": frozenset(
        {
            ("cache", "serving"),
            ("guards", "serving"),
            ("ledger", "serving"),
            ("request_log", "serving"),
            ("telemetry", "serving"),
        }
    ),
    "plan": frozenset(),
    "bench": frozenset(),
    "server": frozenset(),
}
"""The imports of those rings that run upward."""


def faults(
    edges: Mapping[Edge, Sequence[str]],
    rooms: Iterable[str],
    floors: Mapping[str, int],
    known_rings: Iterable[frozenset[str]],
    upward: Iterable[Edge],
) -> list[str]:
    """Where the imports between inner rooms and the tables differ, as sentences that say what to
    do.

    edges: every import between two of `rooms`, with the places in the code where it stands.
    """
    found = [
        f"{room} is not there: take it off the floors" for room in sorted(set(floors) - {*rooms})
    ]
    graph = {room: sorted(low for high, low in edges if high == room) for room in sorted(rooms)}
    for room, others in graph.items():
        if room not in floors:
            least = max((floors.get(other, -1) + 1 for other in others), default=0)
            found.append(f"{room} has no floor: its imports need floor {least} or a higher one")
    listed = set(upward)
    for edge, places in sorted(edges.items()):
        high, low = edge
        if edge in listed or not {high, low} <= set(floors) or floors[low] < floors[high]:
            continue
        found.append(
            f"{high} (floor {floors[high]}) imports {low} (floor {floors[low]}): raise the one, or "
            f"move down what it needs; {'; '.join(places)}"
        )
    for high, low in sorted(listed):
        if (high, low) not in edges:
            found.append(f"{high} no longer imports {low}: take it off the imports that run upward")
        elif floors.get(low, 0) < floors.get(high, 0):
            found.append(f"{high} imports {low} downward: take it off the imports that run upward")
        if not any({high, low} <= ring for ring in known_rings):
            found.append(f"{high} imports {low} upward and is in no listed ring with it")
    there = rings(graph)
    for ring in sorted(there - set(known_rings), key=sorted):
        found.append(f"a ring that is not listed: {', '.join(sorted(ring))}")
    for ring in sorted(set(known_rings) - there, key=sorted):
        found.append(f"a listed ring that is gone, or has other rooms: {', '.join(sorted(ring))}")
    return found
