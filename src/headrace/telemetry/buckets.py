"""Bounds of the histograms: vLLM's, so that its dashboards and alerts fit, where not said."""

from __future__ import annotations

# Time to first token: from a cached prompt of a small model to minutes of queueing.
TIME_TO_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip

# Time between tokens of one request.
INTER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip

# Whole requests and their parts.
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip

# Steps of the engine (ours): from a small model's decode to a prompt's chunk on few cores.
STEP_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    60.0,
)  # fmt: skip

# Tokens of one step.
ITERATION_TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip

# Choices of a request (n), and how often one was preempted.
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

# From an engine's end to the next one's being ready: mostly loading (ours).
RECOVERY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def token_counts(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, … up to `max_model_len` (at least the first)."""
    bounds = [1.0]
    decade = 1
    while True:
        for step in (1, 2, 5):
            bound = step * decade
            if bound > max_model_len:
                return tuple(bounds)
            if bound > 1:
                bounds.append(float(bound))
        decade *= 10
