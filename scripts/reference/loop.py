"""docs/reference/loop.md."""

from collections.abc import Iterator
from enum import StrEnum
from typing import get_args

from reference.answers import shape
from reference.commands import overview
from reference.fleet import settings_table
from reference.markdown import attribute_docs, code, first_paragraph, table
from ringfence import events
from ringfence.config.template import describe
from ringfence.loop.report.model import STAGES
from ringfence.loop.role import ROLES
from ringfence.loop.settings import (
    CheckSettings,
    LoopLimits,
    LoopSettings,
    ModelChoice,
    RoleName,
    RoleSettings,
)
from ringfence.loop.state import EXIT_CODES, LoopState, StoryState

_HEAD = """\
# Loops

The keys of test-first loops in `ringfence.yaml`, and their commands, states, exit codes and events. How to use a loop:
[guide](../how-to/run-a-loop.md); how to write stories: [stories](stories.md).

The other sections of the file, such as `sandbox`, `run`, `limits` and `egress`, are those of
[runs](configuration.md) and apply to every role. A loop works unattended, so a project's file with `loop:` must be
trusted with `ringfence config trust`.
"""
_ROLES = "Roles are {names}. Each key under `loop.roles` is optional.\n"
_ANSWERS = """\
## What roles answer

One JSON object at the end of their last message; runtimes that support it get its schema. Every field is required, and
no other is allowed. A scripted model, and a prompt of your own, must produce the same. `claude` (`claude-cli`,
`claude-sdk`) gives the answers of planner, reviewer and judge by a call of its tool `StructuredOutput` only: a script
has the turn `tools: [{name: StructuredOutput, input: {...}}]` there, and one with a `text` after it. With `codex` and
`api` it is the text.
"""
_SPEAKERS: tuple[tuple[str, RoleName], ...] = (
    ("The planner", "planner"),
    ("The test writer and the implementor, who may also just say what they did", "implementor"),
    ("The reviewer, each of the four questions once", "reviewer"),
    ("The judge, each criterion once, counted from 1; what is `met` has evidence that exists", "judge"),
)
_FILES = """\
## Files

In the state directory, `loops/ID/`, readable by its owner only. `ringfence loop rm` keeps them, unless `--all` is
given.

| file | what it is |
|---|---|
| `loop.db` | the state of the loop and its steps |
| `worker.sock` | where `ringfence loop cancel` and `loop logs --follow` reach the process that works on the loop |
| `report.md`, `report.html` | the report, written at the end; `ringfence loop show` writes it again at any time |
| `proposal.md` | the same without paths of your machine and commands: the text of a pull request |
| `loop.patch` | all of the work that passed, for `git apply` |

The page and `ringfence loop show --json` have the diff of each story and of each rejected attempt, and the time and cost
of each role. On the page, evidence of the judge that names a line of the diff is a link to it. A diff of more than 2,000
lines is cut, and all diffs of a report after 20,000; the path of the whole patch stands below.

The HTML page is self-contained, has no script, and its content security policy forbids scripts and loading. Text of
agents is inert there, in `report.md` and on the terminal: no link, no markup, no control character.

The worktrees and the patches of rejected work are in the cache directory, `ringfence/loops/`, until `ringfence loop
rm`.
"""
_STATUS = """\
`ringfence loop status` shows for each story the current attempt (at its code, or at its tests before there is one at its
code) and its latest stage, one of {stages}: `ok` is done, `no` rejected it, `...` is in progress. `--json` has all
stages. A loop whose process died is shown as `interrupted`.
"""
_EVENTS = """\
## Events

With `--json`, `ringfence loop start`, `resume`, `accept`, `reject`, `retry` and `logs` print them, one object a line,
with `schema_version`, `event`, `number`, `at_ms` and, where it is about one, `story`; the fields are those of the
[events](events.md) in the loop's record. A loop that is resumed prints only new events, after a line
`loop.resumed`: `number`, of the last event before, and `stories`, how many there are of each state. The last line
(of `logs`: with `--follow`) is `loop.summary`: `id`, `state`, `reason`, `exit_code`, `branch`, `patch`, `report`,
`runs_on_your_machine` (files of the branch to look at first, at most 50), `outside` (by story, files that it changed
and does not name, at most 20 each), `outstanding` (options whose work is not done yet) and `next`, a list of commands.
"""


def page() -> str:
    """The page."""
    for model in (LoopSettings, LoopLimits, RoleSettings, CheckSettings, ModelChoice):
        describe(model)
    names = ", ".join(code(name) for name in get_args(RoleName))
    return "\n".join(
        [
            _HEAD,
            "## loop\n",
            settings_table(LoopSettings, ("loop",)),
            "## roles\n",
            _ROLES.format(names=names),
            settings_table(RoleSettings, ("loop", "roles", "ROLE")),
            "A step of a `ladder`:\n",
            settings_table(ModelChoice, ()),
            _ANSWERS,
            *(_answer(names, role) for names, role in _SPEAKERS),
            "## checks\n",
            "A list under `loop.checks`; what is not said is found by the project's files.\n",
            settings_table(CheckSettings, ()),
            "## Commands\n",
            table(("command", ""), _commands()),
            "## States of a loop\n",
            table(("state", "exit code", "meaning"), _loop_states()),
            "## States of a story\n",
            table(("state", "meaning"), _states(StoryState)),
            _STATUS.format(stages=", ".join(code(name) for name in STAGES)),
            _EVENTS,
            table(("event", "when"), _events()),
            _FILES,
        ]
    )


def _answer(names: str, role: RoleName) -> str:
    return f"{names}:\n\n```text\n{shape(ROLES[role].schema)}\n```\n"


def _commands() -> Iterator[tuple[str, str]]:
    """Those of loops, with links to where their options are."""
    for shown, meaning in overview():
        if shown.startswith("[`ringfence loop "):
            yield shown.replace("](#", "](commands.md#"), meaning


def _states(owner: type[StrEnum]) -> Iterator[tuple[str, str]]:
    docs = attribute_docs(owner)
    for state in owner:
        yield code(state.value), docs[state.name]


def _loop_states() -> Iterator[tuple[str, str, str]]:
    for state, (shown, meaning) in zip(LoopState, _states(LoopState), strict=True):
        yield shown, str(int(EXIT_CODES[state])), meaning


def _events() -> Iterator[tuple[str, str]]:
    for kind in get_args(events.AnyEvent):
        if kind.__module__ == "ringfence.events.loop":
            tag = kind.__struct_config__.tag
            yield f"[{code(tag)}](events.md#{tag.replace('.', '')})", first_paragraph(kind.__doc__)
