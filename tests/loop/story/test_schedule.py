"""Which story comes when, and what keeps one from being begun."""

from collections.abc import Callable
from itertools import combinations
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.loop.story import Plan, Ready, Story, check_plan, names_path, questions, ready

PlanOf = Callable[..., Plan]


def _ids(found: Ready) -> list[str]:
    return [story.id for story in found.stories]


def test_dependencies_come_first_then_priority_then_place(plan_of: PlanOf):
    """A story that others wait for is before them however low its priority."""
    plan = plan_of(
        {"id": "late", "priority": 9},
        {"id": "needs-late", "priority": 0, "depends_on": ["late"]},
        {"id": "second", "priority": 5},
        {"id": "first", "priority": -1},
        {"id": "third", "priority": 5},
    )
    assert [story.id for story in plan.ordered()] == ["first", "second", "third", "late", "needs-late"]


def test_a_story_waits_for_what_it_depends_on(plan_of: PlanOf):
    """What runs is not done yet."""
    plan = plan_of({"id": "a"}, {"id": "b", "depends_on": ["a"]})
    assert _ids(ready(plan, (), (), ())) == ["a"]
    assert _ids(ready(plan, (), (), ["a"])) == []
    assert _ids(ready(plan, ["a"], (), ())) == ["b"]


def test_a_story_that_the_file_calls_done_is_done(plan_of: PlanOf):
    """It is not begun, and nobody waits for it."""
    plan = plan_of({"id": "a", "passes": True}, {"id": "b", "depends_on": ["a"]})
    assert _ids(ready(plan, (), (), ())) == ["b"]


def test_what_depends_on_a_skipped_story_is_skipped(plan_of: PlanOf):
    """Also over several, and each says because of which."""
    plan = plan_of(
        {"id": "a"}, {"id": "c", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}, {"id": "d"}
    )
    found = ready(plan, (), ["a"], ())
    assert found.skipped == {
        "b": "it depends on 'a', which was skipped",
        "c": "it depends on 'b', which was skipped",
    }
    assert _ids(found) == ["d"]


def test_a_question_blocks_a_story_and_those_that_wait_for_it(plan_of: PlanOf):
    """Nobody guesses what a person has to say; the rest goes on."""
    plan = plan_of(
        {"id": "a", "question": "Red\nor \x1b[31mblue?"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}
    )
    found = ready(plan, (), (), ())
    assert found.blocked == {
        "a": 'it needs an answer: "Red or \\x1b[31mblue?"',
        "b": "it depends on 'a', which is blocked",
    }
    assert _ids(found) == ["c"]
    assert ready(plan, ["c"], (), ()).stories == []


def test_stories_that_share_files_never_run_at_once(plan_of: PlanOf):
    """A directory holds its files, a pattern all it could match; who names none shares none."""
    plan = plan_of(
        {"id": "module", "files": ["src/a.py"]},
        {"id": "directory", "files": ["src/"]},
        {"id": "beside", "files": ["src.py", "docs/x.md"]},
        {"id": "pattern", "files": ["docs/*.md"]},
        {"id": "elsewhere", "files": ["tests/**/test_*.py"]},
        {"id": "nowhere"},
    )
    assert _ids(ready(plan, (), (), ())) == ["module", "beside", "elsewhere", "nowhere"]
    assert _ids(ready(plan, ["module"], (), ["beside"])) == ["directory", "elsewhere", "nowhere"]


@pytest.mark.parametrize(
    ("pattern", "path", "is_named"),
    [
        ("src/{a,b}.py", "src/a.py", True),
        ("src/{a,b}.py", "src/c.py", False),
        ("{src,lib}/{a,b{1,2}}", "lib/b2/c.py", True),
        ("src/{a*,b}.py", "src/again.py", True),
        ("app/{id}/page.py", "app/{id}/page.py", True),
        ("app/{a,b}.py", "app/{a,b}.py", True),
        ("app/{a,b", "app/a", False),
    ],
)
def test_braces_of_patterns_are_alternatives(pattern: str, path: str, is_named: bool):
    """As in a shell: braces without a comma are part of the name."""
    assert names_path([pattern], path) is is_named


def test_a_pattern_with_too_many_alternatives_is_refused(plan_of: PlanOf):
    """Patterns are expanded, so their number is bounded."""
    plan = plan_of({"id": "a", "files": ["{0,1,2,3,4}" * 60]}, {"id": "b", "files": ["{0,1}" * 6]})
    (problem,) = check_plan(plan, has_check=True)
    assert problem.startswith("story 'a': files: ")
    assert "stands for more than 100 patterns" in problem
    assert not names_path(plan.stories[0].files, "0" * 60)


def test_it_is_over_when_nothing_runs_and_nothing_may(plan_of: PlanOf):
    """A story that runs keeps the loop going, though none may be begun."""
    plan = plan_of({"id": "a"}, {"id": "b", "depends_on": ["a"]})
    assert ready(plan, (), (), ["a"]) == Ready()
    assert ready(plan, ["a", "b"], (), ()) == Ready()


def test_a_circle_ends_a_loop_rather_than_keeping_it_waiting():
    """A plan that nobody checked still ends, and says why."""
    plan = Plan("P", stories=tuple(_story(one, needs=[other]) for one, other in ("ab", "ba")))
    found = ready(plan, (), (), ())
    assert found.stories == []
    assert found.blocked["a"] == "it depends on 'b', which will never be done"
    assert [story.id for story in plan.ordered()] == ["a", "b"]


def _story(name: str, *, needs: list[str], priority: float = 1, files: tuple[str, ...] = ()) -> Story:
    return Story(name, name, "", ("c",), priority, depends_on=tuple(needs), files=files)


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    """Plans without circles, whose stories stand in any order."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 8)))]
    paths = st.sampled_from(["a", "a/b", "a/c", "d/*", "d/e", "f"])
    stories = [
        _story(
            name,
            needs=draw(st.lists(st.sampled_from(names[:number]), unique=True)) if number else [],
            priority=draw(st.integers(0, 3)),
            files=tuple(draw(st.lists(paths, max_size=2))),
        )
        for number, name in enumerate(names)
    ]
    return Plan("P", stories=tuple(draw(st.permutations(stories))))


@given(_plans())
def test_any_order_keeps_dependencies_and_the_most_urgent_first(plan: Plan):
    """Each story is the most urgent of those that could come at its place."""
    ordered = plan.ordered()
    assert sorted(story.id for story in ordered) == sorted(story.id for story in plan.stories)
    for number, story in enumerate(ordered):
        before = {each.id for each in ordered[:number]}
        possible = [each for each in ordered[number:] if before.issuperset(each.depends_on)]
        assert story == min(possible, key=lambda each: (each.priority, plan.stories.index(each)))


@given(_plans(), st.data())
def test_any_loop_ends_with_each_story_done_or_skipped(plan: Plan, data: st.DataObject):
    """However stories end, none is begun twice or too soon, none at once with one of its files, none is forgotten."""
    done: set[str] = set()
    skipped: set[str] = set()
    running: dict[str, Story] = {}
    while (found := ready(plan, done, skipped, running)).stories or running or found.skipped:
        skipped.update(found.skipped)
        for story in found.stories:
            assert done.issuperset(story.depends_on)
            assert story.id not in done | skipped | running.keys()
            running[story.id] = story
        for one, other in combinations(running.values(), 2):
            assert not any(_meet(first, second) for first in one.files for second in other.files)
        if running:
            ended = data.draw(st.sampled_from(sorted(running)))
            del running[ended]
            (done if data.draw(st.booleans()) else skipped).add(ended)
    assert done | skipped == {story.id for story in plan.stories}
    assert found.blocked == {}


def _meet(one: str, other: str) -> bool:
    first, second = (PurePosixPath(path.replace("/*", "")) for path in (one, other))
    return first.is_relative_to(second) or second.is_relative_to(first)


def test_a_preflight_tells_all_that_stands_against_a_plan(plan_of: PlanOf):
    """Nothing that can be known before is found out by an agent."""
    plan = plan_of(
        {"id": "a"}, {"id": "b", "check": "make b", "question": "Which?"}, {"id": "c", "passes": True}
    )
    assert check_plan(plan, has_check=False) == [
        "story 'a': nothing proves it: no test runner was found, and it has no `check`; write a command that does",
    ]
    assert check_plan(plan_of({"id": "a"}), has_check=True) == []


def test_a_story_that_needs_a_person_does_not_hold_up_the_others(plan_of: PlanOf):
    """It is named before the loop, which works on the rest; there is no loop where nothing else is left."""
    plan = plan_of(
        {"id": "a"}, {"id": "b", "question": "Which\n\x07one?"}, {"id": "c", "question": "?", "passes": True}
    )
    (told,) = questions(plan)
    assert told.startswith("story 'b': it needs an answer: \"Which \\x07one?\"; answer it in the description")
    assert check_plan(plan, has_check=True) == []
    assert check_plan(plan_of({"id": "b", "question": "?"}), has_check=True) == [
        "every story that is left needs an answer; answer the questions, and remove them"
    ]


def test_a_command_for_all_stories_proves_each(plan_of: PlanOf):
    """`test_command` beside the stories is a check for those without one."""
    assert check_plan(plan_of({"id": "a"}, test_command="make test"), has_check=False) == []


def test_a_preflight_judges_a_plan_that_no_file_holds():
    """What a reader would refuse is refused of a plan that was made otherwise."""
    stories = (_story("a", needs=["b"]), _story("b", needs=["a", "z"]), Story("A", "t", "", (), 1))
    assert check_plan(Plan("P", stories=stories), has_check=True) == [
        "story 'A': id: there is a story 'a' already, which has the same slug as 'A'; give each an id of its own",
        "story 'b': depends_on: there is no story 'z'; write the id of one, or remove it",
        "story 'a': depends_on: 'a' -> 'b' -> 'a' is a dependency cycle; remove one of these",
        "story 'A': it has no criteria; write when it is done",
    ]


def test_a_plan_with_nothing_to_do_says_so(plan_of: PlanOf):
    """An agent that is started for nothing costs money."""
    assert check_plan(plan_of({"id": "a", "passes": True}), has_check=True) == [
        "every story is done already; nothing is left to do"
    ]
    assert check_plan(Plan("P"), has_check=True) == ["the plan has no stories; write at least one"]


@given(st.lists(st.text(max_size=300), min_size=2, unique=True))
def test_slugs_are_safe_and_differ_where_ids_do(ids: list[str]):
    """Whatever an id is, its slug is a good part of a git ref and of a file name, also where case does not count."""
    slugs = [Story(each, "", "", (), 1).slug for each in ids]
    assert len({each.casefold() for each in slugs}) == len(ids)
    for each in slugs:
        assert len(each) <= 45
        assert all("a" <= letter <= "z" or "0" <= letter <= "9" or letter == "-" for letter in each)
        assert each[0] != "-"
