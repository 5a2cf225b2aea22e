"""Which checks a repository has, by its files: nothing of it is run. What is not there is said, never taken as green."""

from collections.abc import Collection, Mapping

from ringfence.check.suite.finders import LANGUAGES, MARKS, TIMEOUTS_S
from ringfence.check.suite.model import Check, Kind
from ringfence.check.suite.project_files import ProjectFiles, Read
from ringfence.check.suite.runners import runner_of
from ringfence.errors import ConfigurationError
from ringfence.frozen import frozen


@frozen
class Detected:
    """What was found."""

    checks: tuple[Check, ...]
    lacking: tuple[str, ...]
    """What is not checked since nothing for it was found, in words for the user and the report."""


def detect(files: Collection[str], read: Read, *, commands: Mapping[Kind, str] | None = None) -> Detected:
    """The checks of a repository.

    Args:
        files: Its paths, relative to its root.
        read: The bytes of one, None where there is none.
        commands: Given by configuration: replaces what would be found of that kind; an empty one means none.

    Raises:
        ConfigurationError: No way to run tests was found, and none is given.
    """
    project = ProjectFiles(files, read)
    given = dict(commands or {})
    checks = [_given(kind, command) for kind, command in given.items() if command.strip()]
    languages, lacking = list[str](), list[str]()
    for language, finders in LANGUAGES.items():
        if not project.has(*MARKS[language]):
            continue
        languages.append(language)
        for kind, (looked_for, find) in finders.items():
            if kind in given:
                continue
            found = find(project)
            checks += found
            if not found and looked_for:
                lacking.append(f"no {_WORDS[kind]} for {language} (looked for {looked_for}): not checked")
    if not any(check.kind == "test" for check in checks):
        seen = ", ".join(languages) or "no language that is known"
        raise ConfigurationError(
            f"no way to run tests was found (seen: {seen}); say how: by `test_command` in the "
            "stories' file, or `loop.checks` in ringfence.yaml"
        )
    lacking += [
        f"no {_WORDS[kind]}: its command is empty" for kind, command in given.items() if not command.strip()
    ]
    return Detected(tuple(checks), tuple(lacking))


_WORDS: Mapping[Kind, str] = {"test": "tests", "type": "type checker", "lint": "linter", "other": "check"}


def _given(kind: Kind, command: str) -> Check:
    return Check(kind, kind, command, TIMEOUTS_S[kind], runner_of(command) if kind == "test" else None)
