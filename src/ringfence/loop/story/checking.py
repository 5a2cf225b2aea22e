"""The preflight: what would stop a loop, found before any agent starts."""

from collections.abc import Iterator

from ringfence.loop.story.model import Plan, Story
from ringfence.loop.story.order import problems
from ringfence.loop.story.words import one_line, quoted

_QUESTION_CHARS = 300


def check_plan(plan: Plan, *, has_check: bool) -> list[str]:
    """Everything that stands against working on a plan, each in one line; empty: nothing. See also `questions`.

    Args:
        plan: The plan.
        has_check: Whether the loop has a command of its own that proves each story, such as a test runner.
    """
    return list(_problems(plan, has_check=has_check or "test" in plan.checks))


def questions(plan: Plan) -> list[str]:
    """The stories that a person has to say something to before they are begun, each in one line.

    They do not stand against working on the others.
    """
    return [
        f'story {quoted(story.id)}: it needs a person: "{one_line(story.question, _QUESTION_CHARS)}"; '
        "answer it in the description and remove the question, or later by `ringfence loop retry --answer`"
        for story in plan.stories
        if story.question is not None and not story.is_done
    ]


def _problems(plan: Plan, *, has_check: bool) -> Iterator[str]:
    open_stories = [story for story in plan.stories if not story.is_done]
    if not plan.stories:
        yield "the plan has no stories; write at least one"
    elif not open_stories:
        yield "every story is done already; nothing is left to do"
    elif all(story.question is not None for story in open_stories):
        yield "every story that is left needs a person; answer the questions, and remove them"
    for problem in problems(plan.stories):
        yield f"story {quoted(plan.stories[problem.place].id)}: {problem.field}: {problem.message}"
    for story in open_stories:
        for reason in _of_story(story, has_check=has_check):
            yield f"story {quoted(story.id)}: {reason}"


def _of_story(story: Story, *, has_check: bool) -> Iterator[str]:
    if not any(text.strip() for text in story.criteria):
        yield "it has no criteria; write when it is done"
    if story.check is None and not has_check:
        yield "nothing proves it: no test runner was found, and it has no `check`; write a command that does"
