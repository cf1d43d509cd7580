# SPDX-License-Identifier: Apache-2.0
"""Writing: a letter from its template, whole in one file, or one sentence of why not.

Templates lie in ``letters/LANGUAGE/`` of the registry's folder, and those that are not
there in the package. They run in a sandbox, and see the facts of the letter, the
operator and today. ``letters/operator.json`` says who the operator is.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ..core.values import loads
from ..exceptions import InvalidInput, needing
from ..registry.now import today
from .facts import LetterFacts

with needing("cli", "a letter"):
    from jinja2 import (
        ChoiceLoader,
        FileSystemLoader,
        StrictUndefined,
        TemplateError,
        TemplateSyntaxError,
    )
    from jinja2.sandbox import ImmutableSandboxedEnvironment

OURS = Path(__file__).parent / "templates"
FOLDER = "letters"  # in that of the registry
LONGEST = 1 << 20  # characters of a letter
MONTHS = {
    "en": "January February March April May June July August September October "
    "November December",
    "de": "Januar Februar M\u00e4rz April Mai Juni Juli August September Oktober "
    "November Dezember",
}


class LetterFailed(InvalidInput):
    """A template failed; nothing was written."""


@dataclass(frozen=True, slots=True)
class Letterhead:
    """Who writes: name, how to reach them, and where one may complain."""

    name: str = ""
    contact: str = ""
    authority: str = ""


def list_languages(folder: Path) -> list[str]:
    """Return the languages of letters: those of the package and of a registry."""
    places = [OURS, folder / FOLDER]
    found = {one.name for place in places if place.is_dir() for one in place.iterdir()}
    return sorted(name for name in found if name.isalpha() and name.islower())


def write_letter(facts: LetterFacts, folder: Path, *, language: str = "en") -> str:
    """Return a letter as HTML, for a screen and for print.

    Parameters
    ----------
    facts
        What it may say.
    folder
        Of the registry, whose templates count first.
    language
        The name of a folder of templates, such as "en" or "de".
    """
    known = list_languages(folder)
    if language not in known:
        raise InvalidInput(
            f"no letters in language {language!r}; give one of {', '.join(known)}, or "
            f"put templates into {folder / FOLDER / language}"
        )
    own = [folder / FOLDER / language, folder / FOLDER]
    ours = [OURS / language, OURS / "en", OURS]
    environment = ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(place) for place in (*own, *ours)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["day"] = lambda text: _spell_day(str(text), language)
    values: dict[str, Any] = {
        "letter": asdict(facts),
        "operator": asdict(_read_operator(folder)),
        "today": today().isoformat(),
        "language": language,
    }
    try:
        text = environment.get_template(f"{facts.kind}.html.j2").render(values)
    except RecursionError:
        raise LetterFailed(
            f"template {facts.kind}.html.j2 includes itself; nothing was written"
        ) from None
    except Exception as error:
        raise LetterFailed(
            f"{_locate(error, facts.kind)}: {_explain(error)}; nothing was written; "
            "mend the template, or remove it to use that of expunge"
        ) from None
    if len(text) > LONGEST:
        raise LetterFailed(
            f"template {facts.kind}.html.j2 makes a letter of {len(text)} characters; "
            "nothing was written"
        )
    return text


def _explain(error: Exception) -> str:
    if isinstance(error, TemplateError | TypeError | ArithmeticError | LookupError):
        return str(error.message if isinstance(error, TemplateError) else error)[:200]
    return type(error).__name__


def _locate(error: Exception, kind: str) -> str:
    """Return which file of a template failed, and in which line."""
    if isinstance(error, TemplateSyntaxError):
        return f"{error.filename or error.name}, line {error.lineno}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_filename.endswith(".j2")
    ]
    if frames:
        file, line = frames[-1]
        return f"{file}, line {line}"
    return f"template {kind}.html.j2"


def _read_operator(folder: Path) -> Letterhead:
    path = folder / FOLDER / "operator.json"
    if not path.exists():
        return Letterhead()
    try:
        said = loads(path.read_bytes(), "operator.json")
        return Letterhead(**{name: str(value) for name, value in said.items()})
    except (InvalidInput, TypeError, OSError, json.JSONDecodeError):
        raise LetterFailed(
            f"{path} is not JSON with name, contact and authority alone; correct it"
        ) from None


def _spell_day(text: str, language: str) -> str:
    """Return a day as people write it; where nobody said how, as it is."""
    parts = text.split("-")
    if language not in MONTHS or len(parts) != 3:
        return text
    year, month, day = parts
    name = MONTHS[language].split()[int(month) - 1]
    return f"{int(day)}{'.' if language == 'de' else ''} {name} {year}"
