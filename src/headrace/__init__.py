"""headrace serves language models, routes to models served elsewhere, measures and plans them.

`headrace.LLM` is the engine in process, `headrace.AsyncLLM` one in its own process, for asyncio;
`headrace.HeadraceError` is the base of what either raises on purpose.
They are imported on first use, so that `import headrace` stays cheap.
"""

from __future__ import annotations

# Not from typing: that takes 10 ms, in which nothing can be done about a Ctrl-C yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headrace.async_llm import AsyncLLM
    from headrace.engine.params import ThinkingBudget
    from headrace.errors import EngineDeadError, HeadraceError, RequestError
    from headrace.llm import LLM
    from headrace.offline.params import SamplingParams
    from headrace.offline.structured import StructuredOutputsParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "EngineDeadError",
    "HeadraceError",
    "RequestError",
    "SamplingParams",
    "StructuredOutputsParams",
    "ThinkingBudget",
    "__version__",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from headrace.llm import LLM

        return LLM
    if name == "AsyncLLM":
        from headrace.async_llm import AsyncLLM

        return AsyncLLM
    if name == "SamplingParams":
        from headrace.offline.params import SamplingParams

        return SamplingParams
    if name == "StructuredOutputsParams":
        from headrace.offline.structured import StructuredOutputsParams

        return StructuredOutputsParams
    if name == "ThinkingBudget":
        from headrace.engine.params import ThinkingBudget

        return ThinkingBudget
    if name in ("EngineDeadError", "HeadraceError", "RequestError"):
        from headrace import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
