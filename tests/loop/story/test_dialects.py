"""Every dialect that stories are written in becomes the same model."""

import json
from pathlib import Path

import pytest

from ringfence.loop.story import Plan, Story, read_plan


def _by_id(plan: Plan) -> dict[str, Story]:
    return {story.id: story for story in plan.stories}


@pytest.mark.parametrize(
    ("name", "dialect", "title", "ids"),
    [
        ("runtime.json", "runtime", "Search over notes", ["S1", "S2", "S3"]),
        ("runtime.yaml", "runtime", "Greeting", ["G1", "2"]),
        ("pipeline.json", "pipeline", "Cleaner pipeline", ["CLEAN-1", "CLEAN-2", "CLEAN-3"]),
        ("ralph.json", "ralph", "TaskApp", ["US-001", "US-002"]),
        ("waves.json", "waves", "Move the settings", ["model", "docs", "use", "remove", "release"]),
    ],
)
def test_a_dialect_is_known_by_its_shape(dialects: Path, name: str, dialect: str, title: str, ids: list[str]):
    """Nobody has to say which dialect a file is in."""
    plan = read_plan(dialects / name)
    assert (plan.dialect, plan.title, [story.id for story in plan.stories]) == (dialect, title, ids)
    assert plan.source == dialects / name


def test_criteria_have_three_names(dialects: Path):
    """Each spelling that is met in the wild is read."""
    stories = read_plan(dialects / "runtime.json").stories
    assert [story.criteria for story in stories] == [
        ("build() maps each word to its files", "case does not matter"),
        ("find() of an unknown word is empty",),
        ("the order is stable",),
    ]


def test_a_story_says_what_it_touches_and_what_proves_it(dialects: Path):
    """Files, a command and dependencies of its own come with a story."""
    story = _by_id(read_plan(dialects / "runtime.json"))["S2"]
    assert story.files == ("notes/search.py", "tests")
    assert story.check == "python -m pytest tests/test_search.py"
    assert story.depends_on == ("S1",)


def test_priority_is_the_place_where_none_is_written(dialects: Path):
    """Stories are worked on in the order of the file unless it says otherwise."""
    assert [story.priority for story in read_plan(dialects / "runtime.json").stories] == [2, 1, 3]


def test_unknown_fields_are_kept(dialects: Path):
    """What means nothing here is there for those to whom it means something."""
    plan = read_plan(dialects / "runtime.json")
    assert plan.extra == {"adr": "0042", "workDir": "/srv/notes", "project": "notes"}
    assert _by_id(plan)["S1"].extra == {"estimate": {"days": 1.5, "by": ["ada", "grace"]}}
    assert _by_id(plan)["S2"].extra == {"tool": "codex"}


def test_a_done_story_is_done_by_either_word(dialects: Path):
    """`passes` and `status` both say so; neither is begun again."""
    runtime, pipeline = read_plan(dialects / "runtime.json"), read_plan(dialects / "pipeline.json")
    assert [story.is_done for story in (*runtime.stories, *pipeline.stories)] == [True, False, False] * 2


def test_what_passes_is_done_whatever_its_status_says(plan_of):
    """Work that is done once is not done twice."""
    plan = plan_of(
        {"id": "a", "passes": True, "status": "todo"}, {"id": "b", "passes": False, "status": "Done"}
    )
    assert [story.is_done for story in plan.stories] == [True, True]


def test_commands_of_a_pipeline_are_its_checks(dialects: Path):
    """What the context says of tests, types and lint is run; the rest of it is told to the roles."""
    plan = read_plan(dialects / "pipeline.json")
    assert plan.checks == {"test": "npm test", "type": "npx tsc --noEmit", "lint": "npx biome check"}
    assert plan.context == ("repo: /srv/app", "codex_timeout_seconds: 900")


def test_a_blocked_story_asks_its_question(dialects: Path):
    """A story that waits for a person says what for."""
    assert _by_id(read_plan(dialects / "runtime.json"))["S3"].question == "By date or by count?"
    assert (
        _by_id(read_plan(dialects / "pipeline.json"))["CLEAN-3"].question == "Which name does marketing want?"
    )


def test_an_escaped_pair_of_surrogates_is_one_character(dialects: Path):
    """Most writers of JSON write characters beyond the basic plane so, and some indent by tabs."""
    assert read_plan(dialects / "ralph.json").description == "Tasks have a priority 🚀"


def test_a_feature_becomes_a_story(dialects: Path):
    """Its steps are its criteria, and its description is its title."""
    story = read_plan(dialects / "features.json").stories[0]
    assert story.title == story.description == "New chat button creates a fresh conversation"
    assert story.criteria[-1] == "Verify a new conversation is created"
    assert story.extra == {"category": "functional"}


def test_ids_of_features_stay_when_the_list_changes(dialects: Path, tmp_path: Path):
    """Features that are moved, ticked off or given other steps are the same features."""
    features = json.loads((dialects / "features.json").read_text())
    before = [story.id for story in read_plan(dialects / "features.json").stories]
    features[0]["passes"], features[0]["steps"] = True, ["Other"]
    (tmp_path / "list.json").write_text(json.dumps(features[1:] + features[:1]))
    after = [story.id for story in read_plan(tmp_path / "list.json").stories]
    assert after == before[1:] + before[:1]
    assert len(set(before)) == 3


def test_ids_of_features_tell_categories_apart(written):
    """The same words of two categories are two features, in whichever order they stand."""
    features = [{"category": each, "description": "Dark", "steps": ["s"]} for each in ("style", "functional")]
    before, after = (read_plan(written(each)).stories for each in (features, features[::-1]))
    assert [story.id for story in before] == [story.id for story in reversed(after)]


def test_a_wave_waits_for_the_one_before(dialects: Path):
    """Each story of a wave depends on all of the wave before, beside its own dependencies."""
    needs = {story.id: story.depends_on for story in read_plan(dialects / "waves.json").stories}
    assert needs == {
        "model": (),
        "docs": (),
        "use": ("model", "docs"),
        "remove": ("use", "model", "docs"),
        "release": ("use", "remove"),
    }


def test_a_story_of_a_wave_is_proved_by_what_sums_it_up(dialects: Path):
    """Waves have no criteria; what stands for them is said."""
    plan = read_plan(dialects / "waves.json")
    assert plan.stories[0].criteria == ("Settings are one class.",)
    assert plan.stories[0].description == "Settings are one class.\n\nWrite src/settings.py."
    assert "story 'model' has no criteria; what sums it up is taken for the only one" in plan.notes


def test_yaml_is_read_too(dialects: Path):
    """Blocks of text, comments and numbers as ids."""
    plan = read_plan(dialects / "runtime.yaml")
    assert plan.stories[0].description == "hello() greets by name.\n\nIt is in greeting.py."
    assert plan.stories[1].extra == {"owner": "yes"}
    assert (plan.context, plan.checks) == (("Python only.",), {"test": "python -m unittest"})


def test_a_feature_list_may_stand_under_a_key(plan_of, written):
    """`features:` is the same list in a mapping."""
    plan = read_plan(written({"features": [{"description": "A", "steps": ["B"]}], "app": "x"}))
    assert (plan.dialect, plan.stories[0].criteria, plan.extra) == ("features", ("B",), {"app": "x"})


def test_a_title_is_one_line_that_shows(plan_of):
    """Whatever a file says there, a list of stories stays a list."""
    plan = plan_of(
        {"id": "a", "title": " Say\n\x1b[2J\u202ehello\u00a0there "},
        {"id": "b", "title": None, "description": "word " * 100},
    )
    assert plan.stories[0].title == "Say \\x1b[2J\\u202ehello there"
    assert plan.stories[1].title == "word " * 39 + "wo..."
    assert plan.stories[1].description == ("word " * 100).strip()


def test_a_story_of_a_title_alone_is_noted(plan_of):
    """Whoever wrote so little is told what the roles will see."""
    plan = plan_of({"id": "a", "description": None})
    assert plan.stories[0].description == "T"
    assert plan.notes == ("story 'a' has no description; its title is all that roles are told",)


def test_a_story_that_an_earlier_loop_gave_up_is_noted(dialects: Path):
    """It is worked on again, and nobody wonders why."""
    assert read_plan(dialects / "runtime.json").notes == (
        "story 'S3' was skipped before; it is worked on again",
    )


def test_a_file_may_be_reached_by_a_link(dialects: Path, tmp_path: Path):
    """Whoever names a file says which one is meant."""
    (tmp_path / "prd.json").symlink_to(dialects / "ralph.json")
    assert read_plan(tmp_path / "prd.json").title == "TaskApp"


def test_reading_writes_nothing(dialects: Path, tmp_path: Path):
    """Repairs are made in the model alone."""
    for file in dialects.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / file.name).chmod(0o444)
        read_plan(tmp_path / file.name)
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    assert len(list(tmp_path.iterdir())) == len(list(dialects.iterdir()))
