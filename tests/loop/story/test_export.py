"""A plan goes out as it came in, with its progress, and never over the file that it came from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.loop.story import Plan, Story, StoryEnd, check_plan, export, plan_again, read_plan
from ringfence.loop.story.export import document_with_progress

FILES = ["runtime.json", "pipeline.json", "ralph.json", "features.json", "waves.json", "runtime.yaml"]


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("name", FILES)
def test_nothing_changes_where_nothing_happened(dialects: Path, tmp_path: Path, name: str, suffix: str):
    """Every field comes out as it was, in its order, in either format."""
    plan = read_plan(dialects / name)
    copy = tmp_path / f"copy{suffix}"
    export(plan, copy, {})
    again = read_plan(copy)
    assert json.dumps(again.document) == json.dumps(plan.document)
    assert (again.stories, again.dialect, again.extra) == (plan.stories, plan.dialect, plan.extra)


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("runtime.json", "passes", [True, True, False]),
        ("pipeline.json", "status", ["done", "done", "skipped"]),
        ("ralph.json", "passes", [True, False]),
        ("features.json", "passes", [True, True, False]),
        ("waves.json", "status", ["done", None, "skipped", None, None]),
    ],
)
def test_progress_is_written_as_the_dialect_has_it(dialects: Path, name: str, field: str, values: list[Any]):
    """A tool that reads the dialect goes on where the loop ended."""
    plan = read_plan(dialects / name)
    ends: dict[str, Any] = {
        plan.stories[0].id: "passed",
        plan.stories[-1].id: "skipped",
        "CLEAN-2": "passed",
        "S2": "passed",
    }
    ends |= {"use": "skipped", "release": None} if name == "waves.json" else {}
    states = {each: StoryEnd(end) for each, end in ends.items() if end}
    document = document_with_progress(plan, states)
    stories = (
        document if isinstance(document, list) else document.get("stories") or document.get("userStories")
    )
    stories = stories or [story for wave in document["waves"] for story in wave["stories"]]
    assert [story.get(field) for story in stories] == values


def test_a_passed_story_is_done_when_it_is_read_again(dialects: Path, tmp_path: Path):
    """An export is a plan of what remains."""
    for name in FILES:
        plan = read_plan(dialects / name)
        export(plan, tmp_path / "copy.json", {story.id: StoryEnd("passed") for story in plan.stories})
        again = read_plan(tmp_path / "copy.json")
        assert all(story.is_done for story in again.stories), name
        assert check_plan(again, has_check=True)[0] == "every story is done already; nothing is left to do"


def test_a_story_that_was_skipped_can_be_told_from_one_that_passed(dialects: Path):
    """Both marks that the dialect knows follow."""
    document = document_with_progress(read_plan(dialects / "runtime.json"), {"S3": StoryEnd("passed")})
    assert (document["stories"][2]["passes"], document["stories"][2]["skipped"]) == (True, False)


def test_notes_are_added_to(dialects: Path):
    """What stood there stays, and the same note does not come twice."""
    plan = read_plan(dialects / "ralph.json")
    states = {story.id: StoryEnd("skipped", "three attempts failed") for story in plan.stories}
    document = document_with_progress(plan, states)
    assert [story["notes"] for story in document["userStories"]] == [
        "three attempts failed",
        "after US-001\nthree attempts failed",
    ]
    assert document_with_progress(plan_again(document, source=None), states) == document


def test_a_note_is_added_although_it_is_part_of_another(dialects: Path):
    """Whole lines are compared."""
    document = json.loads((dialects / "ralph.json").read_text())
    document["userStories"][0]["notes"] = "three attempts failed twice"
    plan = plan_again(document, source=None)
    document = document_with_progress(plan, {"US-001": StoryEnd("skipped", "three attempts failed")})
    assert document["userStories"][0]["notes"] == "three attempts failed twice\nthree attempts failed"


def test_of_a_feature_nothing_but_passes_is_changed(dialects: Path):
    """Tools that read such a list may rely on it, also where a feature has other fields of progress."""
    further = {"status": "open", "skipped": False, "notes": "before"}
    document = [{**each, **further} for each in read_plan(dialects / "features.json").document]
    plan = plan_again(document, source=None)
    changed = document_with_progress(plan, {plan.stories[0].id: StoryEnd("passed", "well done")})
    assert changed == [{**document[0], "passes": True}, *document[1:]]


def test_a_note_of_an_agent_is_bounded_and_shows_whatever_it_holds(dialects: Path):
    """An export is read in terminals, too."""
    plan = read_plan(dialects / "ralph.json")
    document = document_with_progress(
        plan, {"US-001": StoryEnd("skipped", "\x1b[2J\u202e\ud800" + "x" * 100_000)}
    )
    note = document["userStories"][0]["notes"]
    assert note.startswith("\\x1b[2J\\u202e\\ud800xxx")
    assert len(note) < 2100


@pytest.mark.parametrize("how", ["itself", "link", "hard link", "other path"])
def test_the_file_that_stories_came_from_is_never_written(dialects: Path, tmp_path: Path, how: str):
    """By whatever name it is called."""
    source = tmp_path / "prd.json"
    source.write_bytes((dialects / "ralph.json").read_bytes())
    target = tmp_path / "other.json"
    if how == "link":
        target.symlink_to(source)
    elif how == "hard link":
        target.hardlink_to(source)
    else:
        (tmp_path / "below").mkdir()
        target = source if how == "itself" else tmp_path / "below" / ".." / "prd.json"
    with pytest.raises(UsageError, match="is never written; give another one"):
        export(read_plan(source), target, {"US-001": StoryEnd("passed")})
    assert source.read_bytes() == (dialects / "ralph.json").read_bytes()


def test_a_source_that_was_read_by_a_link_is_not_written_either(dialects: Path, tmp_path: Path):
    """A plan that was read by a link protects what the link leads to."""
    real = tmp_path / "real.json"
    real.write_bytes((dialects / "ralph.json").read_bytes())
    (tmp_path / "prd.json").symlink_to(real)
    with pytest.raises(UsageError, match="never written"):
        export(read_plan(tmp_path / "prd.json"), real, {})


def test_a_source_that_is_gone_is_not_written_either(dialects: Path, tmp_path: Path):
    """Its name still means what somebody wrote, who may be about to bring it back."""
    source = tmp_path / "prd.json"
    source.write_bytes((dialects / "ralph.json").read_bytes())
    plan = read_plan(source)
    source.unlink()
    with pytest.raises(UsageError, match="never written"):
        export(plan, source, {})


def test_a_plan_stays_as_it_was_read_when_it_is_exported(dialects: Path):
    """Progress goes into the copy."""
    plan = read_plan(dialects / "runtime.json")
    document_with_progress(plan, {story.id: StoryEnd("blocked", "why") for story in plan.stories})
    assert plan == read_plan(dialects / "runtime.json")


def test_an_export_replaces_an_earlier_one(dialects: Path, tmp_path: Path):
    """Progress can be exported as often as one likes, and leaves nothing else behind."""
    plan = read_plan(dialects / "ralph.json")
    (tmp_path / "out.json").write_text("old")
    export(plan, tmp_path / "out.json", {})
    assert json.loads((tmp_path / "out.json").read_text()) == plan.document
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


def test_a_link_or_directory_in_the_place_of_an_export_is_refused(dialects: Path, tmp_path: Path):
    """A link could lead anywhere."""
    plan = read_plan(dialects / "ralph.json")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "directory").mkdir()
    for name in ("link", "directory"):
        with pytest.raises(UsageError, match="no regular file"):
            export(plan, tmp_path / name, {})
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_told(dialects: Path, tmp_path: Path):
    """The reason of the system and what to do."""
    with pytest.raises(InfrastructureFault, match=r"No such file or directory; check the path"):
        export(read_plan(dialects / "ralph.json"), tmp_path / "none" / "out.json", {})


def test_a_plan_that_no_file_holds_is_written_as_one(tmp_path: Path):
    """What was made by hand or by an agent can be read again as the same plan."""
    stories = (
        Story("a", "A", "Do a.", ("it is done",), 3, files=("src",), check="make a", extra={"owner": "me"}),
        Story("b", "B", "Do b.", ("so is b",), 1, depends_on=("a",), question="How?"),
    )
    plan = Plan("P", description="All of it.", context=("Rust",), stories=stories, extra={"team": 7})
    export(plan, tmp_path / "prd.yaml", {})
    again = read_plan(tmp_path / "prd.yaml")
    assert again.stories == stories
    assert (again.title, again.description, again.context, again.extra) == (
        "P",
        "All of it.",
        ("Rust",),
        {"team": 7},
    )


def test_a_plan_comes_back_from_what_was_kept_of_it(dialects: Path):
    """A loop that goes on after a crash has the same stories, though the file may have changed meanwhile."""
    for name in FILES:
        plan = read_plan(dialects / name)
        kept = json.loads(json.dumps(plan.document))
        assert plan_again(kept, source=plan.source) == plan


_words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _words
)
_anything = st.recursive(
    _scalars,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_words, below, max_size=3),
    max_leaves=6,
)
_unknown = st.dictionaries(_words.map(lambda word: f"x-{word}"), _anything, max_size=3)
_text = _words.filter(str.strip)


@st.composite
def _documents(draw: st.DrawFn) -> dict[str, Any]:
    """Plans with unknown fields of any kind between those that are known, in any order."""
    count = draw(st.integers(1, 4))
    key = draw(st.sampled_from(["acceptance_criteria", "acceptance", "acceptanceCriteria"]))
    stories = []
    for number in range(count):
        known = {
            "id": f"S{number}",
            "title": draw(_text),
            "description": draw(_text),
            key: draw(st.lists(_text, min_size=1, max_size=3)),
            "priority": draw(st.integers(-5, 5) | st.floats(-1e6, 1e6)),
            "depends_on": [f"S{draw(st.integers(0, number - 1))}"] if number and draw(st.booleans()) else [],
            "passes": draw(st.booleans()),
            **draw(_unknown),
        }
        stories.append({name: known[name] for name in draw(st.permutations(sorted(known)))})
    whole = {
        "title": draw(_text),
        draw(st.sampled_from(["stories", "userStories"])): stories,
        **draw(_unknown),
    }
    return {name: whole[name] for name in draw(st.permutations(sorted(whole)))}


@pytest.mark.slow
@given(_documents(), st.sampled_from(["copy.json", "copy.yaml"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_read_is_written_and_read_as_the_same(
    written: Callable[..., Path], document: dict[str, Any], name: str
):
    """No field is lost, altered or moved, known or not, by any number of exports in either format."""
    plan = read_plan(written(document))
    assert plan.document == document
    assert plan.extra == _unknown_of(document)
    assert [story.extra for story in plan.stories] == [_unknown_of(each) for each in _stories(document)]
    file = written("").with_name(name)
    export(plan, file, {})
    again = read_plan(file)
    assert json.dumps(again.document) == json.dumps(document)
    assert (again.stories, again.extra) == (plan.stories, plan.extra)


def _stories(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document.get("stories") or document["userStories"]
    return found


def _unknown_of(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key.startswith("x-")}
