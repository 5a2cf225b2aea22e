"""A small project with stories, and scripted models that play all roles of their loops."""

import json
from typing import Any

from tests.promises.product import Ended, Product, says

PATIENCE_S = 240.0
OLD_TEST = """import unittest


class TestOld(unittest.TestCase):
    def test_old(self):
        self.assertTrue(True)
"""


def write_tests(name: str, result: int) -> str:
    """A command that writes a story's test."""
    return (
        f"cat > tests/test_{name}.py <<'EOF'\nimport unittest\n\n\nclass Test{name.title()}(unittest.TestCase):\n"
        f"    def test_{name}(self):\n        import calc\n\n        self.assertEqual(calc.{name}(5, 3), {result})\nEOF"
    )


def write_code(name: str, sign: str) -> str:
    """A command that writes a story's code."""
    return f"printf 'def {name}(a, b):\\n    return a {sign} b\\n' >> calc.py"


def case(role: str, story: str, *commands: str, text: str = "done") -> dict[str, Any]:
    """The scripted conversation of one role on one story."""
    acts = [says("", *commands)] if commands else []
    return {"when": [f"role: {role}", f"story: {story}\n"], "turns": [*acts, says(text)]}


def judge(story: str, verdict: str, hostile: str = "", file: str = "calc.py") -> dict[str, Any]:
    """What the judge says, and what it would have act where it is shown."""
    overall = {"met": "pass"}.get(verdict, "reject")
    evidence = [{"file": file, "line": 1}]
    reason = f"see there{hostile}"
    criteria = [{"criterion": 1, "verdict": verdict, "evidence": evidence, "reason": reason}]
    feedback = "" if overall == "pass" else f"It is not what was asked for.{hostile}"
    return case(
        "judge", story, text=json.dumps({"criteria": criteria, "overall": overall, "feedback": feedback})
    )


def story(name: str, number: int, **more: Any) -> dict[str, Any]:
    """A story about a function of `calc.py`."""
    return {
        "id": f"S{number}",
        "title": f"Story of {name}",
        "description": f"{name}() in calc.py.",
        "acceptance_criteria": [f"{name}(5, 3) is right"],
        "files": ["calc.py", f"tests/test_{name}.py"],
        **more,
    }


GOOD = [
    case("test_writer", "S1", write_tests("add", 8)),
    case("implementor", "S1", write_code("add", "+")),
    judge("S1", "met"),
]


def prepare(product: Product, *stories: dict[str, Any], command: str = "python3 -m unittest -q") -> None:
    """Put a project with stories under git."""
    product.write("calc.py", '"""Sums."""\n')
    product.write("tests/__init__.py")
    product.write("tests/test_old.py", OLD_TEST)
    document = {"title": "Calc", "test_command": command, "stories": list(stories)}
    product.write("prd.json", json.dumps(document))
    product.git("add", "-A")
    product.git("commit", "-qm", "Start")


def start(
    product: Product,
    cases: list[dict[str, Any]],
    *words: str,
    stories: str = "prd.json",
    is_reviewed: bool = False,
) -> Ended:
    """Start a loop, one attempt for each story unless words say otherwise."""
    model = product.script(name="loop", cases=cases, price={"input": 0, "output": 0})
    options = ("--prd", stories, "--model", model, "--attempts", "1", "--json")
    words = words if is_reviewed else ("--no-review", *words)
    return product("loop start", *options, *words, timeout_s=PATIENCE_S)


def kinds(ended: Ended) -> list[str]:
    """The names of the events that it printed."""
    return [event["event"] for event in ended.events]
