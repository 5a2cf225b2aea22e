"""Finds identifiers and module names that use a private word where the field has a term.

Only names that a package itself introduces are checked: its modules, classes, functions, parameters, variables and
attributes. Prose is judged by readers.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CHECKED_PACKAGES: tuple[str, ...] = ()
"""Packages of `src/ringfence` whose names are checked. None is yet; add a package once all of its names pass."""

TERMS: dict[str, tuple[str, ...]] = {
    "request, response, forward, reject": ("asked", "asking", "came", "passed on", "turned down"),
    "report, log, notify; message": (
        "told",
        "tell",
        "tells",
        "telling",
        "say",
        "says",
        "said",
        "saying",
        "words",
    ),
    "lease, release; inject": ("lend", "lends", "lent", "lending", "give back", "put inside"),
    "resume": ("go on", "goes on", "went on", "going on"),
    "snapshot, stat cache, walk": ("taking", "known", "remembered", "survey"),
    "bind mount, mask, upload, download": (
        "overlay",
        "cover",
        "covered",
        "carry",
        "carried",
        "bring",
        "brought",
    ),
    "end reason, abort": ("blame", "condemn", "condemned", "sentence"),
    "scheduler, executor, dispatcher, queue, lock": (
        "whole",
        "performing",
        "performer",
        "entering",
        "owning",
        "busy",
        "errand",
    ),
    "worktree (loop), due time (schedule), capacity (limits)": ("slot", "slots"),
    "attempt, retry, revision": ("try", "tries", "round", "rounds", "generation", "generations"),
    "fleet": ("crew", "crews"),
    "protected files; auto-executed files": ("frozen", "freeze"),
    "rate limiter, reservation, usage": ("pace", "charge", "charged"),
}
"""Terms to use, and the words that they replace; a phrase matches consecutive words of a name."""

REPEATED_MODULES = frozenset({"__init__", "__main__", "base", "registry", "config"})
"""Module names that may occur more than once: a contract, its table of backends, a component's settings."""

_NOT_PARTICIPLES = frozenset(
    {"string", "ring", "thing", "encoding", "logging", "speed", "feed", "embed", "seed"}
)
"""Words that end in -ing or -ed and are no participles, or are terms of the field."""
_CHUNK = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def misnamed(root: Path, packages: tuple[str, ...] = CHECKED_PACKAGES) -> list[str]:
    """One line for each name in the packages that does not use the field's terms.

    Args:
        root: The directory that holds the packages.
        packages: Names of its sub-directories.

    Raises:
        FileNotFoundError: There is no such package.
    """
    places: list[str] = []
    modules = [module for package in packages for module in _modules_of(root, package)]
    counts = Counter(module.stem for module in modules)
    for module in modules:
        where = module.relative_to(root).as_posix()
        places += [f"{where}: {complaint}" for complaint in _of_module(module, counts[module.stem])]
        for line, name in _introduced(ast.parse(module.read_text(encoding="utf-8"))):
            if (complaint := _of_name(name)) is not None:
                places.append(f"{where}:{line}: {complaint}")
    return places


def _modules_of(root: Path, package: str) -> list[Path]:
    folder = root / package
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a package; correct CHECKED_PACKAGES in {Path(__file__).name}"
        )
    return sorted(folder.rglob("*.py"))


def _of_module(module: Path, count: int) -> Iterator[str]:
    name = module.parent.name if module.stem == "__init__" else module.stem
    if re.search(r"(ing|ed)$", name) and name not in _NOT_PARTICIPLES:
        yield f"module {name!r} ends like a participle; name the thing that it holds"
    if (complaint := _of_name(name)) is not None:
        yield complaint
    if count > 1 and module.stem not in REPEATED_MODULES:
        yield f"module {name!r} occurs {count} times in the checked packages; give each a name of its own"


def _of_name(name: str) -> str | None:
    """What is wrong with an identifier, if anything."""
    spoken = " ".join(chunk.lower() for chunk in _CHUNK.findall(name))
    for term, words in TERMS.items():
        for word in words:
            if re.search(rf"\b{word}\b", spoken):
                return f"{name!r} uses {word!r}; say: {term}"
    return None


def _introduced(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each name that a module defines, with the line where it is first defined."""
    seen: set[str] = set()
    for node in ast.walk(tree):
        name = _name_of(node)
        if name is not None and name not in seen:
            seen.add(name)
            yield getattr(node, "lineno", 1), name


def _name_of(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case (
            ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store())
        ):
            return name
        case ast.alias(asname=str(name)):
            return name
        case _:
            return None
