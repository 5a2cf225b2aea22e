"""What of a story's work comes onto a loop's branch: what leads out, is too large or was not asked for is named."""

import json
from collections.abc import Callable

import pytest
from tests.promises.loop_scripts import (
    GOOD,
    case,
    judge,
    prepare,
    start,
    story,
    write_code,
    write_tests,
)
from tests.promises.product import Ended, Product

pytestmark = pytest.mark.timeout(300)  # a loop starts many sandboxes
EXTRAS = {
    "link to an absolute path": ("ln -s /etc/passwd users", "users"),
    "link that goes up": ("ln -s ../secrets above", "above"),
    "link that goes up behind a name": ("mkdir a; ln -s sub/../../.. a/behind", "a/behind"),
    "link to git's own directory": ("ln -s .git/config settings", "settings"),
    "file of 82 MB": ("head -c 82000000 /dev/urandom > large.bin", "large.bin"),
    "file of more than 100 MiB": ("head -c 105000000 /dev/urandom > huge.bin", "huge.bin"),
    "sparse file": ("truncate -s 90000000 hollow.bin", "hollow.bin"),
    "many files": ("mkdir many; cd many; seq 20000 | xargs touch", "20001 files"),
}
INSIDE = "mkdir sub; ln -s ../calc.py sub/link.py; echo x > other.txt"


@pytest.fixture(scope="module")
def done(make_product: Callable[[], Product]) -> tuple[Product, Ended]:
    """A loop of stories that each bring something besides their code."""
    product = make_product()
    first, code, verdict = GOOD
    code = case("implementor", "S1", f"{write_code('add', '+')}; {INSIDE}")
    cases, stories = [first, code, verdict], [story("add", 1)]
    for number, (command, _) in enumerate(EXTRAS.values(), 2):
        name = f"more{number}"
        stories.append(story(name, number))
        cases += [
            case("test_writer", f"S{number}", write_tests(name, 8)),
            case("implementor", f"S{number}", f"{write_code(name, '+')}; {command}"),
            judge(f"S{number}", "met"),
        ]
    prepare(product, *stories)
    return product, start(product, cases)


@pytest.mark.parametrize("name", EXTRAS)
def test_work_that_is_refused(done: tuple[Product, Ended], name: str) -> None:
    """Links that lead out of the repository, and what is too large, are refused by name before anything is judged."""
    number = 2 + list(EXTRAS).index(name)
    about = [each for each in done[1].events if each.get("story") == f"S{number}"]
    assert [each["event"] for each in about][-1] == "story.skipped"
    assert EXTRAS[name][1] in json.dumps([each for each in about if each["event"] == "story.failed"])


def test_links_within_the_repository(done: tuple[Product, Ended]) -> None:
    """A link to a file of the repository comes onto the branch."""
    product, ended = done
    assert product.git("show", f"{ended.events[-1]['branch']}:sub/link.py") == "../calc.py"


def test_files_that_a_story_does_not_name(done: tuple[Product, Ended]) -> None:
    """Result and report name what a story changed outside of its `files`, its tests aside."""
    product, ended = done
    outside = ["other.txt", "sub/link.py"]
    (passed,) = [each for each in ended.events if each["event"] == "story.passed"]
    assert passed["outside"] == outside
    assert ended.events[-1]["outside"] == {"S1": outside}
    report = product.does("loop show", "--json").json["stories"][0]
    assert (report["outside"], report["outside_count"]) == (outside, 2)
    page = product.place / "page.html"
    product.does("loop show", "--html", page)
    for text in (product.does("loop show").out, page.read_text()):
        assert "Outside of the files" in text
