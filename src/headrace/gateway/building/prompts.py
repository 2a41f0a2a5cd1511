"""Prompt templates of the file, of files of their own, and of a folder.

Importing this imports jinja2.
"""

from __future__ import annotations

from pathlib import Path

from headrace.config.nested import S, read_nested
from headrace.config.text_file import read_text_file
from headrace.config.yaml_file import Document, read_yaml
from headrace.errors import ConfigError, RequestError
from headrace.gateway.prompts.prompt import Prompt, TemplateMessage, Version
from headrace.gateway.prompts.prompts import Prompts
from headrace.gateway.prompts.template import Templates
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.prompts import PromptSettings, PromptVersionSettings
from headrace.gateway.settings.yaml_words import prompts_named

_MOST_FILE_BYTES = 2**20
_MOST_FILES = 1000


def prompts_of(settings: GatewaySettings, folder: Path) -> Prompts | None:
    """The prompts of the file; None if there are none. folder: the base of relative paths. Raises
    ConfigError."""
    found = {name: (one, folder) for name, one in settings.prompts.items()}
    if settings.prompts_folder is not None:
        place = folder / settings.prompts_folder
        for name, one in _of_folder(place).items():
            if name in found:
                raise ConfigError(f"prompts.{name}: it is in prompts_folder too; keep one of them")
            found[name] = (one, place)
    if not found:
        return None
    templates = Templates()
    return Prompts(
        {
            name: Prompt(
                name,
                {
                    key: _version(name, key, version, place, templates)
                    for key, version in one.versions.items()
                },
                one.labels,
            )
            for name, (one, place) in found.items()
        }
    )


def _of_folder(place: Path) -> dict[str, PromptSettings]:
    """NAME.yaml has the versions and labels of the prompt NAME."""
    if not place.is_dir():
        raise ConfigError(f"prompts_folder: there is no folder {place}")
    files = sorted(one for one in place.iterdir() if one.suffix in (".yaml", ".yml"))
    if len(files) > _MOST_FILES:
        raise ConfigError(f"prompts_folder: {place} has more than {_MOST_FILES} files")
    found: dict[str, PromptSettings] = {}
    for file in files:
        document = _document(file)
        named = prompts_named({file.stem: document.loaded})[file.stem]
        settings = read_nested(Document(named, document.lines), PromptSettings, str(file))
        if file.stem in found:
            raise ConfigError(
                f"prompts_folder: {file.stem} exists as .yaml and as .yml; keep one of them"
            )
        found[file.stem] = settings
    return found


def _version(
    prompt: str, name: str, settings: PromptVersionSettings, folder: Path, templates: Templates
) -> Version:
    where = f"prompts.{prompt}.versions.{name}"
    if settings.file is not None:
        if settings.messages:
            raise ConfigError(f"{where}: give either file or messages")
        file = folder / settings.file
        settings = _read(file, PromptVersionSettings)
        if settings.file is not None:
            raise ConfigError(f"{where}: {file} refers to another file; write the prompt out there")
    if not settings.messages:
        raise ConfigError(f"{where}: messages: at least one is required")
    messages = []
    for at, one in enumerate(settings.messages):
        try:
            messages.append(TemplateMessage(one.role, templates.template(one.content)))
        except ConfigError as error:
            raise ConfigError(f"{where}.messages.{at}: {error}") from None
    variables = sorted({name for message in messages for name in message.content.variables})
    version = Version(
        prompt=prompt,
        name=name,
        messages=tuple(messages),
        model=settings.model,
        parameters=settings.parameters,
        variables=tuple(variables),
    )
    if settings.example is not None:
        try:
            version.said(settings.example)
        except RequestError as error:
            raise ConfigError(f"{where}.example: {error}") from None
    return version


def _read(file: Path, of: type[S]) -> S:
    return read_nested(_document(file), of, str(file))


def _document(file: Path) -> Document:
    documents = read_yaml(read_text_file(file, "prompts", _MOST_FILE_BYTES), str(file), once=True)
    if len(documents) != 1:
        raise ConfigError(f"{file}: expected one document, found {len(documents)}")
    return documents[0]
