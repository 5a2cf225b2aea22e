"""Product code that reaches for the runner, or asks whether it is being tested.

Judged by what it imports and names, not by what it would do: code that hides what it does is not found here.
"""

import ast
import re
from collections.abc import Iterator

from ringfence.check.freeze.model import Rule
from ringfence.check.freeze.names import RUNNER_MODULES

MOST_BYTES = 1 << 20
"""Of a larger file only the words are looked at, not the syntax."""

Finding = tuple[Rule, str]

_NAMES = "|".join(sorted(RUNNER_MODULES))
_JS_RUNNERS = r"((?:node:test|vitest|jest|mocha|ava|tap|@jest/|@vitest/)[^'\"`\n]{0,80})"
_GO_IMPORT = r"^[ \t]*(?:import[ \t]*(?:\([ \t]*)?)?(?:[\w.]+[ \t]+)?[\"`](testing(?:/\w+)?)[\"`]"
_GO_IMPORTS = r"^[ \t]*import[ \t]*\([^)\n]{0,500}?[\"`](testing(?:/\w+)?)[\"`]"
_GO_LINK = r"^//go:linkname[ \t]+\S+[ \t]+(testing\.\S{1,80})"
_MACRO = r"\bmacro_rules!\s*((?:debug_)?assert(?:_eq|_ne)?|panic)\b"
_TEST_PATH = r"(cfg_attr\s*\(\s*(?:not\s*\(\s*)?test\b[^\]]{0,80}\b(?:path|cfg)\b)"
_JAVA_PACKAGE = (
    r"^[ \t]*package\s+(org\.(?:junit|testng|mockito|assertj|hamcrest|opentest4j)|junit\.framework)\b"
)
_NOT_TEST = r"(cfg!\s*\(\s*(?:not\s*\(\s*)?test\b|cfg\s*\(\s*not\s*\(\s*test\b)"
_WORDS: dict[str, list[tuple[Rule, str, str]]] = {
    "py": [
        ("runner_import", "imports", rf"^[ \t;]*(?:from|import)\s[^\n#]{{0,500}}?\b({_NAMES})\b"),
        ("runner_import", "imports", rf"(?:import_module|__import__)\s*\(\s*['\"]({_NAMES})\b"),
        ("runner_import", "defines", r"\bdef\s+(pytest_\w+|load_tests)"),
        ("runner_import", "changes", r"\b(builtins\.\w+\s*=[^=]|sys\.meta_path|sys\.path_hooks)"),
        ("asks_for_tests", "asks for", rf"(PYTEST_\w+|sys\.modules[^\n]{{0,80}}(?:{_NAMES}))"),
    ],
    "js": [
        (
            "runner_import",
            "imports",
            rf"(?:from\s*|require\s*\(\s*|import\s*(?:\(\s*)?)['\"`]{_JS_RUNNERS}['\"`]",
        ),
        ("runner_import", "changes", r"\b(Module\._\w+|globalThis\.(?:test|it|describe|expect)\s*=[^=])"),
        ("asks_for_tests", "asks for", r"\b(NODE_TEST_CONTEXT|JEST_WORKER_ID|VITEST(?:_\w+)?)\b"),
    ],
    "go": [
        ("runner_import", "imports", _GO_IMPORT),
        ("runner_import", "imports", _GO_IMPORTS),
        ("runner_import", "changes", _GO_LINK),
        ("asks_for_tests", "asks for", r"(flag\.Lookup\(\s*[\"`]test\.)"),
    ],
    "rs": [
        ("asks_for_tests", "asks for", _NOT_TEST),
        ("asks_for_tests", "asks for", _TEST_PATH),
        ("runner_import", "defines", _MACRO),
    ],
    "java": [
        ("runner_import", "imports", r"import\s+(?:static\s+)?(org\.(?:junit|testng|mockito)\b)"),
        ("runner_import", "defines", _JAVA_PACKAGE),
    ],
}
_LANGUAGES = {
    **dict.fromkeys(("py", "pyi", "pyw"), "py"),
    **dict.fromkeys(("js", "cjs", "mjs", "ts", "cts", "mts", "jsx", "tsx"), "js"),
    **dict.fromkeys(("java", "kt", "groovy", "scala"), "java"),
    "go": "go",
    "rs": "rs",
}


def reaches(path: str, data: bytes) -> set[Finding]:
    """What in the file is about the runner: the rule, and words that say what was seen."""
    language = _LANGUAGES.get(path.rpartition(".")[2])
    if language is None:
        return set()
    if language == "py" and len(data) <= MOST_BYTES:
        try:
            return set(_in_syntax(ast.parse(data)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # of a newer Python, or none at all: its words are looked at
    return set(_in_words(language, data))


def _in_words(language: str, data: bytes) -> Iterator[Finding]:
    text = data.decode("utf-8", "replace")
    for rule, verb, pattern in _WORDS[language]:
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield rule, f"{verb} {_short(match[1])}"


def _short(text: str) -> str:
    return repr(" ".join(text.split())[:80])


def _in_syntax(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        yield from _bound(node)
        if isinstance(node, ast.Import):
            yield from (_imported(alias.name) for alias in node.names if _is_runner(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (_imported(name) for name in [node.module or ""] if _is_runner(name))
        elif isinstance(node, ast.FunctionDef):
            yield from _defined(node)
        elif isinstance(node, ast.Call):
            yield from _called(node)
        elif isinstance(node, ast.Subscript | ast.Compare):
            yield from _looked_up(node)
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("PYTEST_")
        ):
            yield "asks_for_tests", f"asks for {_short(node.value)}"


def _defined(node: ast.FunctionDef) -> Iterator[Finding]:
    if node.name.startswith("pytest_") or node.name == "load_tests":
        yield "runner_import", f"defines {_short(node.name)}, which the runner calls"


def _bound(node: ast.AST) -> Iterator[Finding]:
    """The same by another name, or by an import from elsewhere."""
    names = [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.alias):
        names = [node.asname or node.name]
    for name in names:
        if name == "load_tests" or _HOOK.match(name):
            yield "runner_import", f"defines {_short(name)}, which the runner calls"


_HOOK = re.compile(
    r"pytest_(?:runtest|collect|pyfunc_call|pycollect|generate_tests|configure|session|itemcollected|report)"
)


def _is_runner(module: object) -> bool:
    return isinstance(module, str) and module.split(".")[0] in RUNNER_MODULES


def _imported(module: str) -> Finding:
    return "runner_import", f"imports {_short(module)}"


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _called(node: ast.Call) -> Iterator[Finding]:
    name = _name(node.func)
    first = node.args[0] if node.args else None
    if first is None:
        return
    if name in ("import_module", "__import__", "find_spec", "run_module") and _is_runner(_text(first)):
        yield _imported(_text(first) or "")
    if name in ("setattr", "delattr", "patch") and _name(first) in ("builtins", "__builtins__"):
        yield "runner_import", "changes builtins"
    if (
        name in ("get", "pop", "setdefault", "__getitem__")
        and _is_runner(_text(first))
        and _is_modules(node.func)
    ):
        yield _in_modules(_text(first) or "")


def _is_modules(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) and _name(function.value) == "modules"


def _in_modules(module: str) -> Finding:
    return "asks_for_tests", f"looks for {_short(module)} in sys.modules"


def _looked_up(node: ast.Subscript | ast.Compare) -> Iterator[Finding]:
    if isinstance(node, ast.Subscript):
        if _name(node.value) == "modules" and _is_runner(_text(node.slice)):
            yield _in_modules(_text(node.slice) or "")
        is_stored = isinstance(node.ctx, ast.Store | ast.Del)
        if is_stored and _is_builtins(node.value):
            yield "runner_import", "changes builtins"
    elif _is_runner(_text(node.left)) and any(_name(each) == "modules" for each in node.comparators):
        yield _in_modules(_text(node.left) or "")


def _is_builtins(node: ast.AST) -> bool:
    return _name(node) == "__builtins__" or (
        isinstance(node, ast.Attribute)
        and node.attr == "__dict__"
        and _name(node.value) in ("builtins", "__builtins__")
    )


def _attribute(node: ast.Attribute) -> Iterator[Finding]:
    if isinstance(node.ctx, ast.Store | ast.Del) and _name(node.value) in ("builtins", "__builtins__"):
        yield "runner_import", f"changes builtins.{node.attr[:80]}"
    if node.attr in ("meta_path", "path_hooks") and _name(node.value) == "sys":
        yield "runner_import", f"changes how modules are imported: sys.{node.attr}"
