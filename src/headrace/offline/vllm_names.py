"""Names of vLLM's Python API: whoever writes one reads what it is called here.

The tables are read only then; a caller who writes the names there are does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from headrace.errors import RequestError

P = ParamSpec("P")
R = TypeVar("R")


def arguments_of_vllm(method: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a method: an argument of vLLM's raises RequestError with its name here, or is
    dropped where its value changes nothing."""

    @wraps(method)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        for name in _without_effect(method, named):
            del named[name]
        return method(*args, **named)

    return checked


def _without_effect(method: Callable[..., object], named: dict[str, Any]) -> list[str]:
    """The arguments that are vLLM's and change nothing; raises RequestError for its others."""
    if named.keys() <= (method.__kwdefaults__ or {}).keys():
        return []
    from headrace.config.vllm.calls import CALL_ARGS

    of_vllm = [name for name in named if name in CALL_ARGS]
    for name in of_vllm:
        if not CALL_ARGS[name].takes(named[name]):
            refusal = CALL_ARGS[name].refusal(method.__qualname__, named[name], str)
            raise RequestError(refusal, param=name, code="unsupported")
    return of_vllm


class ClassOfVllm(type):
    """The type of LLM and AsyncLLM: vLLM's class methods are explained as well."""

    if not TYPE_CHECKING:  # a type checker has to find unknown names

        def __getattr__(cls, name: str) -> Any:
            """Raises AttributeError."""
            raise no_attribute(cls, name, "llm")


def no_attribute(owner: object, name: str, kind: Literal["llm", "result"]) -> AttributeError:
    """The error about an attribute that `owner` does not have, with vLLM's name explained."""
    problem = (
        f"type object {owner.__name__!r} has no attribute {name!r}"
        if isinstance(owner, type)
        else f"{type(owner).__name__!r} object has no attribute {name!r}"
    )
    if not name.startswith("_"):
        from headrace.config.vllm.calls import LLM_NAMES, RESULT_NAMES

        setting = (LLM_NAMES if kind == "llm" else RESULT_NAMES).get(name)
        if setting is not None:
            problem += f", which is vLLM's: {setting.hint(str)}"
    return AttributeError(problem, name=name, obj=owner)
