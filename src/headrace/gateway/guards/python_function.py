"""A guardrail that is a Python function of the user.

    from headrace.gateway.guards.guard import Subject, Verdict

    def check(subject: Subject) -> Verdict | None:
        if any("project-x" in one.text for one in subject.passages):
            return Verdict("names a confidential project")
        return None

It may be `async`. One that is not runs in a thread, so that it may wait without holding up others.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError, shown
from headrace.gateway.guards.guard import NOTHING, GuardFailedError, Subject, Verdict

# A function that hangs keeps its thread; beyond so many it counts as failed at once.
_MOST_THREADS = 16


def imported(name: str, folder: Path) -> Callable[[Subject], Any]:
    """The function of `module:function`; `folder` is looked in after where Python looks anyway.

    Raises ConfigError.
    """
    module_name, mark, function = name.partition(":")
    if not mark or not function.isidentifier():
        raise ConfigError(f"function: {shown(name)} is not `module:function`")
    place = str(folder.resolve())
    sys.path.append(place)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # Whatever it raises is the user's own and has to be told, not only ImportError.
        raise ConfigError(
            f"function: {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(place)
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError(f"function: {module_name} has no function {shown(function)}")
    return found  # type: ignore[no-any-return]


class PythonGuard:
    """A guardrail that calls a Python function. timeout_s: for one verdict."""

    def __init__(self, function: Callable[[Subject], Any], timeout_s: float) -> None:
        self._function = function
        self._timeout_s = timeout_s
        self._running = 0

    async def __call__(self, subject: Subject) -> Verdict:
        """See Look."""
        is_async = inspect.iscoroutinefunction(self._function)
        try:
            async with asyncio.timeout(self._timeout_s):
                if is_async:
                    told = await self._function(subject)
                else:
                    told = await self._in_thread(subject)
        except TimeoutError:
            raise GuardFailedError(f"no verdict within {self._timeout_s:g} s") from None
        except GuardFailedError:
            raise
        except Exception as error:
            # Its words may quote what it was given.
            raise GuardFailedError(f"it raised {type(error).__name__}") from error
        return _checked(told, len(subject.passages))

    async def _in_thread(self, subject: Subject) -> Any:
        if self._running >= _MOST_THREADS:
            raise GuardFailedError(f"{_MOST_THREADS} calls of it are still running")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def tell(value: Any, error: BaseException | None) -> None:
            self._running -= 1
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def call() -> None:
            value, failure = None, None
            try:
                value = self._function(subject)
            except Exception as error:
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, value, failure)

        self._running += 1
        # A pool's threads would be waited for when the process ends; one of these may never end.
        threading.Thread(target=call, name="guardrail", daemon=True).start()
        return await future


def _checked(told: Any, texts: int) -> Verdict:
    if told is None:
        return NOTHING
    if not isinstance(told, Verdict) or not isinstance(told.reason, str):
        raise GuardFailedError(f"it returned a {type(told).__name__}; expected Verdict or None")
    if told.texts is not None and (
        len(told.texts) != texts or not all(isinstance(text, str) for text in told.texts)
    ):
        raise GuardFailedError(f"it was given {texts} texts and returned {len(told.texts)}")
    return told
