"""The texts of a prompt, as templates in the sandbox that chat templates run in too."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import meta

from headrace.errors import ConfigError, TemplateError
from headrace.text.template_limits import Budget, RenderLimits, check_source
from headrace.text.template_sandbox import BUDGET, SandboxEnvironment

# Other requests wait while one is rendered.
_LIMITS = RenderLimits(max_chars=2_000_000, max_steps=100_000, max_seconds=1.0)
_UNDEFINED = re.compile(r"'(\w+)' is undefined")


class MissingVariablesError(ValueError):
    """Variables that the template needs are missing; `names` lists them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class Templates:
    """A compiler of templates; one for each configuration."""

    def __init__(self) -> None:
        self._environment = SandboxEnvironment(lambda: dt.datetime.now(dt.UTC), _LIMITS)
        self._environment.undefined = jinja2.StrictUndefined

    def template(self, source: str) -> Template:
        """Raises ConfigError."""
        try:
            check_source(source, "the template")
            tree = self._environment.parse(source)
            names = meta.find_undeclared_variables(tree) - self._environment.globals.keys()
            return Template(self._environment.from_string(source), frozenset(names))
        except (jinja2.TemplateError, TemplateError) as error:
            raise ConfigError(f"the template cannot be read: {error}") from None


class Template:
    """A compiled template. variables: names that it uses, required or not."""

    def __init__(self, compiled: jinja2.Template, variables: frozenset[str]) -> None:
        self._compiled = compiled
        self.variables = variables

    def rendered(self, variables: Mapping[str, Any]) -> str:
        """Raises MissingVariablesError, and TemplateError where it fails or works too long."""
        missing: list[str] = []
        given = dict(variables)
        while True:
            try:
                text = self._compiled.render({**given, BUDGET: Budget(_LIMITS)})
            except jinja2.UndefinedError as error:
                found = _UNDEFINED.search(str(error))
                if found is None or found[1] in given or found[1] not in self.variables:
                    raise TemplateError(f"the template fails: {error}") from None
                # So that all that are missing are told at once.
                missing.append(found[1])
                given[found[1]] = ""
                continue
            except jinja2.TemplateError as error:
                raise TemplateError(f"the template fails: {error}") from None
            except TemplateError:
                raise
            except Exception as error:
                # Whatever a filter raises for a value it was not made for.
                raise TemplateError(f"the template fails: {error}") from None
            if missing:
                raise MissingVariablesError(missing)
            return text
