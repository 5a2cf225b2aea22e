"""The guards that have a mutant: read from `guards.toml`, applied to a text, held against the tree."""

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("guards.toml")
PACKAGE = PurePosixPath("src/ringfence")


class GuardMovedError(Exception):
    """A guard's text is not found exactly once in its file."""


@dataclass(frozen=True)
class Guard:
    """One line of the product that protects its user, and the change that disables it."""

    id: str
    prevents: str
    """What goes wrong without the guard, in one sentence."""
    file: str
    """Path below `src/ringfence`."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids of the tests that should notice, as pytest takes them."""
    needs: tuple[str, ...] = ()
    """What the tests need that not every machine has, such as `docker`."""
    survives: str = ""
    """Why no test notices; empty where one does."""

    @property
    def area(self) -> str:
        """The package of the guard, at most two levels deep."""
        return "/".join(PurePosixPath(self.file).parent.parts[:2]) or "top level"

    @property
    def path(self) -> PurePosixPath:
        """Path of the file in the repository."""
        return PACKAGE / self.file

    def mutated(self, text: str) -> str:
        """The text of the file without the guard.

        Raises:
            GuardMovedError: The guard's text does not occur exactly once.
        """
        count = text.count(self.old)
        if count != 1:
            raise GuardMovedError(
                f"{self.id}: its text occurs {count} times in {self.path}: guard moved: update the list ({LIST.name})"
            )
        return text.replace(self.old, self.new)


def read_guards(file: Path = LIST) -> list[Guard]:
    """All guards of the list, in its order."""
    rows: list[dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))["guard"]
    return [Guard(**{name: _frozen(value) for name, value in row.items()}) for row in rows]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def problems_of(guard: Guard, root: Path = ROOT) -> list[str]:
    """What keeps a guard's mutant from being made and judged in a tree; nothing is run."""
    found = []
    try:
        mutated = guard.mutated((root / guard.path).read_text(encoding="utf-8"))
        if guard.path.suffix == ".py":
            ast.parse(mutated)
    except OSError:
        found.append(f"{guard.id}: there is no {guard.path}: guard moved: update the list ({LIST.name})")
    except GuardMovedError as exc:
        found.append(str(exc))
    except SyntaxError as exc:
        found.append(f"{guard.id}: the mutant is no Python: {exc}")
    if guard.old == guard.new:
        found.append(f"{guard.id}: the mutant changes nothing")
    if not guard.tests:
        found.append(f"{guard.id}: no tests are named")
    return found + [
        f"{guard.id}: there is no test {test!r}" for test in guard.tests if not _exists(root, test)
    ]


def _exists(root: Path, test: str) -> bool:
    """Whether a file or a function with tests is there; parameters are not looked at."""
    name, _, function = test.partition("::")
    path = root / name
    if not function:
        return path.exists()
    return path.is_file() and re.sub(r"\[.*", "", function, flags=re.DOTALL) in _functions(path)


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
