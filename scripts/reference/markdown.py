"""The few forms of Markdown that the pages use, and what the code says beside its names."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Text that stays within one cell of a table."""
    return " ".join(str(text).replace("|", "\\|").split())


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell(one) for one in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """Text as code, whatever quotes it holds; nothing for nothing."""
    shown = str(text)
    fence = "``" if "`" in shown else "`"
    return f"{fence}{shown}{fence}" if shown else ""


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def attribute_docs(owner: type) -> dict[str, str]:
    """The docstrings that stand under the attributes of a class, by the attribute's name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        name = _assigned(statement)
        if name and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[name] = " ".join(str(following.value.value).split())
    return found


def _assigned(statement: ast.stmt) -> str | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return target.id if isinstance(target, ast.Name) else None
