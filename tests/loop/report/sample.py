"""Reports made of nothing but a given text, and a page that looks like a real one."""

from ringfence.loop.report.diff import PatchReader
from ringfence.loop.report.model import (
    Answer,
    Attempt,
    CheckResult,
    CriterionVerdict,
    DiffSummary,
    Evidence,
    FileDiff,
    FlaggedFile,
    Hunk,
    LoopReport,
    RoleUsage,
    RunReport,
    StoryReport,
    Usage,
)

PATCH = b"""\
diff --git a/calc.py b/calc.py
index 1111111..2222222 100644
--- a/calc.py
+++ b/calc.py
@@ -1,4 +1,8 @@
 import math
\x20
-def add(a, b): pass
+def add(a, b):
+\treturn a + b
+
+def mean(numbers):
+    return math.fsum(numbers) / len(numbers)
\x20
diff --git a/tests/test_calc.py b/tests/test_calc.py
new file mode 100644
--- /dev/null
+++ b/tests/test_calc.py
@@ -0,0 +1,6 @@
+import unittest
+from calc import add
+
+class TestAdd(unittest.TestCase):
+    def test_add(self):
+        self.assertEqual(add(2, 3), 5)
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
"""
USED = Usage(3, 45_600, 0.42, 93.0)


def report_of(text: str) -> LoopReport:
    """A report in which every text is this one: of a story that passed, with a rejected attempt."""
    evidence = (Evidence(file=text, line=1), Evidence(test=text))
    criterion = CriterionVerdict(1, text, "not_met", text, evidence)
    attempt = Attempt(
        kind="code", generation=1, number=1, state="rejected",
        turns=(RunReport("code.1", "implementor", text, text, "unverified", 1, USED, text),),
        checks=(CheckResult(text, "red", "1 failed"),), review=(Answer(text, is_yes=False, evidence=text),),
        verdict=(criterion,), complaints=(text,), commit="c0ffee", patch=text,
        files=(text,), left_out=(text,), configuration=(text,), stat=_stat_of(text),
    )  # fmt: skip
    story = StoryReport(
        id=text, title=text, state="passed", stage="", stages=("", "", "", "", ""), reason=text, answer=text,
        depends_on=(text,), attempt=1, tests_attempt=1, max_attempts=3, generation=1, criteria=(criterion,),
        merged="c0ffee", stat=_stat_of(text), attempts=(attempt,), used=USED, outside=(text,), outside_count=2,
    )  # fmt: skip
    return LoopReport(
        id=text, title=text, source=text, prd=text, state="incomplete", reason=text, base=text, branch=text, tip=text,
        patch=text, record=text, round=2, created_ms=1_767_225_600_000,
        ended_ms=1_767_229_200_000, red_before=(text,), red_before_count=1, stat=_stat_of(text),
        flagged=(FlaggedFile(text, text),), flagged_count=2, stories=(story,), used=USED,
        roles=(RoleUsage("implementor", (text,), USED), RoleUsage("", (), USED)),
    )  # fmt: skip


def _stat_of(text: str) -> DiffSummary:
    line = f"+{text}".replace("\n", " ")
    return DiffSummary(
        (FileDiff(text, 1, 0, is_binary=False, hunks=(Hunk(1, 1, (line,)),), is_truncated=True),), 2, 1, 0
    )


def lifelike(*, hostile: str) -> LoopReport:
    """A report of three stories: one passed, one waits for a person, and one is hostile in all of its texts."""
    stat, rejected = PatchReader().read(PATCH), PatchReader().read(PATCH)
    evil = report_of(hostile)
    used = {"implementor": Usage(4, 61_200, 0.61, 154.0), "judge": Usage(2, 12_900, 0.2, 31.0)}
    turns = tuple(
        RunReport(
            f"{role}.1",
            role,
            "claude-sonnet-4-5",
            "2026-11-26T10-00-00-1",
            "unverified",
            1,
            each,
            "I did it.",
        )
        for role, each in used.items()
    )
    attempt = Attempt(
        kind="code", generation=1, number=1, state="rejected", turns=turns,
        checks=(CheckResult("unittest", "green", "7 passed"),),
        review=(Answer("real_implementation", is_yes=True, evidence="calc.py adds the numbers."),),
        verdict=(CriterionVerdict(1, "add(2, 3) is 5", "unclear", "No test shows it.", (Evidence("calc.py", 4),)),),
        complaints=("criterion 1 is unclear: no test shows it",), commit="c0ffee",
        patch="/home/ana/.cache/ringfence/loops/1/rejected/add/1.patch", files=("calc.py",),
        left_out=("go.mod says how checks run",), configuration=(), stat=rejected,
    )  # fmt: skip
    evidence = (Evidence("calc.py", 4), Evidence(test="tests.test_calc.TestAdd.test_add"))
    met = CriterionVerdict(1, "add(2, 3) == 5", "met", "The function adds, and a test shows it.", evidence)
    first = StoryReport(
        id="add", title="Add two numbers", state="passed", stage="", stages=("", "", "", "", ""), reason="", answer="",
        depends_on=(), attempt=2, tests_attempt=1, max_attempts=3, generation=1, criteria=(met,), merged="c0ffee",
        stat=stat, attempts=(attempt,), used=USED,
    )  # fmt: skip
    second = StoryReport(
        id="mean", title="The mean of numbers", state="blocked", stage="", stages=("", "", "", "", ""),
        reason="What is the mean of no numbers?", answer="", depends_on=("add",), attempt=1, tests_attempt=1,
        max_attempts=3, generation=1, criteria=(CriterionVerdict(1, "mean([1, 2]) is 1.5", None, "", ()),),
        merged=None, stat=None, attempts=(), used=USED,
    )  # fmt: skip
    return LoopReport(
        id="20261126-100000-abcdef", title="A calculator", source="/home/ana/calc", prd="/home/ana/calc/prd.json",
        state="blocked", reason="1 passed, 1 waits for an answer", base="a1b2c3d4e5f6a7b8", branch="ringfence/loop-1",
        tip="c0ffee0c0ffee0", patch="/home/ana/.local/state/ringfence/loops/1/loop.patch",
        record="2026-11-26T10-00-00-00000001", round=1, created_ms=1_795_687_200_000, ended_ms=1_795_687_500_000,
        red_before=(), red_before_count=0, stat=stat,
        flagged=(), flagged_count=0, stories=(first, second, *evil.stories), used=USED,
        roles=tuple(RoleUsage(role, ("claude-sonnet-4-5",), each) for role, each in used.items()),
    )  # fmt: skip
