"""Reading a model's config so that nothing in it is overlooked.

Families, and writers of GGUF files, read each key with its type and default, and say which values
they implement. What is not implemented stops the load, and so does every key that nobody read: a
model that loads, runs and is wrong is the worst outcome. The only keys let pass unread are null
ones, those known not to touch the forward pass (`weights.model_config.no_effect`), and those the
user lists.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from headrace.errors import UnsupportedModelError
from headrace.weights.model_config.no_effect import is_harmless

T = TypeVar("T", int, float, bool, str)

MAX_SIZE = 2**31 - 1
"""The largest number of positions, rows or heads; indices of the kernels have 32 bits."""


# An error names so many keys, of so many characters: a config is a stranger's.
_MOST_NAMES, _LONGEST_NAME = 12, 80


class ConfigReader:
    """One config, or one nested section of it; remembers which keys were read."""

    def __init__(
        self, config: Mapping[str, Any], *, ignore_keys: Collection[str] = (), prefix: str = ""
    ) -> None:
        self._config = config
        self._ignore_keys = ignore_keys
        self._prefix = prefix
        self._read: set[str] = set()
        self._sections: dict[str, ConfigReader] = {}

    def get(self, key: str, kind: type[T], default: T) -> T:
        """The value of `key`; `default` where it is absent or null."""
        value = self.optional(key, kind)
        return default if value is None else value

    def required(self, key: str, kind: type[T]) -> T:
        """The value of `key`, which must be there."""
        value = self.optional(key, kind)
        if value is None:
            raise UnsupportedModelError(
                f"config key {self._name(key)} is missing; it must hold {_KIND_NAMES[kind]}. "
                "Add it to config.json, or fetch the checkpoint again"
            )
        return value

    def size(self, key: str, default: int | None = None, *, most: int = MAX_SIZE) -> int:
        """A whole number from 1 to `most`; required where there is no default."""
        value = self.required(key, int) if default is None else self.get(key, int, default)
        if value < 1:
            raise UnsupportedModelError(
                f"config key {self._name(key)} is {value}; it must be at least 1"
            )
        if most < value <= MAX_SIZE:
            self.refuse(key, value, f"1 to {most}")
        if value > most:
            raise UnsupportedModelError(
                f"config key {self._name(key)} is {_shortened(value)}; it must be at most {most}"
            )
        return value

    def optional_size(self, key: str) -> int | None:
        """A whole number from 1 on, or None where it is absent or null."""
        return None if self.raw(key) is None else self.size(key)

    def uniform_size(self, key: str, count: int, default: int, *, most: int = MAX_SIZE) -> int:
        """A size, or a list with the same one at each of `count` places."""
        value = self.raw(key)
        if not isinstance(value, list):
            return self.size(key, default, most=most)
        if [*map(type, value)] != [int] * count or value.count(value[0]) != count:
            self.refuse(key, value, f"one whole number, or the same one {count} times")
        return ConfigReader({key: value[0]}, prefix=self._prefix).size(key, most=most)

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0; required where there is no default."""
        value = self.required(key, float) if default is None else self.get(key, float, default)
        if not 0 < value < math.inf:
            raise UnsupportedModelError(
                f"config key {self._name(key)} is {value}; it must be above 0 and finite in float32"
            )
        return value

    def positives(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers above 0, rounded to float32; required."""
        values = self.raw(key)
        if not isinstance(values, (list, tuple)) or not values:
            self.refuse(key, values, "lists of numbers")
        inner = ConfigReader(
            {str(at): value for at, value in enumerate(values)}, prefix=f"{self._name(key)}."
        )
        return tuple(inner.positive(str(at)) for at in range(len(values)))

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of `key`, or None where it is absent or null.

        Numbers are rounded to float32: GGUF files hold no more, and a model must not depend on
        the container it came in.
        """
        self._read.add(key)
        value = self._config.get(key)
        if value is None:
            return None
        accepted = {
            int: (int, np.integer),
            float: (int, float, np.integer, np.floating),
            bool: (bool, np.bool_),
            str: (str,),
        }[kind]
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise UnsupportedModelError(
                f"config key {self._name(key)} is {_shortened(value)}; "
                f"it must be {_KIND_NAMES[kind]}"
            )
        if kind is float:
            # Through str for whole numbers, which may be too large for any float.
            with np.errstate(over="ignore"):
                return kind(np.float32(str(value)))
        return kind(value)

    def expect(self, key: str, kind: type[T], supported: Sequence[T], default: T) -> T:
        """The value of `key` (`default` where absent), which must be one of `supported`."""
        value = self.get(key, kind, default)
        if value not in supported:
            self.refuse(key, value, " or ".join(repr(item) for item in supported))
        return value

    def expect_all(
        self, key: str, supported: str, count: int, *, older: tuple[str, ...] = ()
    ) -> None:
        """A list with `supported` at each of `count` places; absent and null will do.

        older: names that mean the same.
        """
        value = self.raw(key)
        names = (supported, *older)
        is_list = isinstance(value, (list, tuple)) and len(value) == count
        if value is not None and not (is_list and all(kind in names for kind in value)):
            self.refuse(key, value, f"{supported!r}, {count} times")

    def refuse(self, key: str, value: object, supported: str) -> NoReturn:
        """Stop the load over one value."""
        raise UnsupportedModelError(
            f"config key {self._name(key)} = {_shortened(value)} is not implemented for this "
            f"family; supported: {supported}. Use a checkpoint without it, or an engine that has it"
        )

    def raw(self, key: str) -> Any:
        """The value as it stands, marked as read; None where absent."""
        self._read.add(key)
        return self._config.get(key)

    def states(self, key: str) -> bool:
        """Whether the key is there, be it null; for families where null is not the default."""
        return key in self._config

    def unused(self, *keys: str) -> None:
        """Mark keys as read that have no effect given what was read before."""
        self._read.update(keys)

    def section(self, key: str) -> ConfigReader | None:
        """The nested config under `key`, the same each time; None where it is absent or null."""
        self._read.add(key)
        if key in self._sections:
            return self._sections[key]
        value = self._config.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UnsupportedModelError(
                f"config key {self._name(key)} is {_shortened(value)}; it must be an object or null"
            )
        inner = ConfigReader(value, ignore_keys=self._ignore_keys, prefix=f"{self._prefix}{key}.")
        self._sections[key] = inner
        return inner

    def unread(self) -> list[str]:
        """Names of keys, nested ones included, that were not read and might matter."""
        names = []
        for key, value in self._config.items():
            name = f"{self._prefix}{key}"
            if key in self._read or name in self._ignore_keys or is_harmless(key, value):
                continue
            names.append(name)
        for inner in self._sections.values():
            names += inner.unread()
        return names

    def finish(self) -> None:
        """Stop the load where a key was left unread."""
        names = self.unread()
        if names:
            listed = [name for name in names if len(name) <= _LONGEST_NAME][:_MOST_NAMES]
            stated = ", ".join(f"{name} = {_shortened(self.value(name))}" for name in listed)
            if others := len(names) - len(listed):
                stated += f", and {others} more" if listed else f"{others} with very long names"
            flags = " ".join(f"--ignore-config-keys {shlex.quote(name)}" for name in listed)
            raise UnsupportedModelError(
                f"config keys that headrace does not know for this family: {stated}. They may "
                "change what the model computes. If they do not, load with "
                f"{flags}, or LLM(..., ignore_config_keys={tuple(listed)!r})"
            )

    def _name(self, key: str) -> str:
        return f"{self._prefix}{key}"

    def value(self, name: str) -> Any:
        """The value of a name as unread() gives it; keys of GGUF files have dots of their own."""
        for inner in self._sections.values():
            if name.startswith(inner._prefix):
                return inner.value(name)
        return self._config[name.removeprefix(self._prefix)]


_KIND_NAMES: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
