"""What the reviewer and the judge of a loop are shown of the checks."""

import json
import re

import pytest
from tests.promises.loop_scripts import GOOD, case, prepare, start, story
from tests.promises.product import Product

pytestmark = pytest.mark.timeout(300)  # a loop starts many sandboxes
QUESTIONS = ("criteria_tested", "real_implementation", "truthful_tests", "intent_met")
TEST_OF_OURS = re.compile(r"[Cc]anary|ringfence[-_][0-9a-f]{16}")


def test_what_judges_read_of_checks(product: Product) -> None:
    """Reviewer and judge read what each test came to, and nothing of the tests that try the runner."""
    answers = [{"id": name, "answer": True, "evidence": "looked"} for name in QUESTIONS]
    review = case("reviewer", "S1", text=json.dumps({"questions": answers}))
    prepare(product, story("add", 1))
    assert start(product, [*GOOD, review], is_reviewed=True).code == 0
    created = {run: product.recorded("job.created", run)[0]["prompt"] for run in product.runs()}
    judges = [text for text in created.values() if text.startswith(("role: reviewer", "role: judge"))]
    assert len(judges) == 2
    for text in judges:
        assert not TEST_OF_OURS.search(text)
        assert "2 passed" in text
        assert "passed: tests.test_add.TestAdd.test_add" in text
        assert not re.search(r"FAIL|Traceback|[1-9]\d* failed", text)
    printed = [said["stdout"] for run in created for said in product.recorded("command.ended", run)]
    assert any(TEST_OF_OURS.search(text) for text in printed)
