"""docs/reference/exit-codes.md."""

from reference.markdown import attribute_docs, first_paragraph, table
from ringfence import errors
from ringfence.errors import ExitCode, RingfenceError
from ringfence.job.state import EXIT_CODES, JobState

_HEAD = """\
# Exit codes

`ringfence run` ends in exactly one state, and its exit code tells which. Any other command exits with 0, or with the
code of the error that stopped it; `exec` and `shell` exit with the code of the command inside, `claude` and `codex` with
that of the program.
"""
_OTHERWISE = """\
`--require-verified` refuses a run without a check before the agent starts (2, or 78 where a file asks for it), and a run
that ends `unverified` all the same gives 3. With `--no-verify` (`run.verify: none`) `unverified` gives 0. `ended` gives
the code of the program on the terminal.
"""

_RULES = (
    (
        "an option or argument is invalid, or names a file, run, loop, sandbox, job or daemon that does not exist",
        2,
    ),
    ("it names something in a state that does not permit the command, such as a run that has not ended", 2),
    ("a question needs an answer and standard input has ended; `--yes` answers it", 2),
    ("`ringfence.yaml` or a `RINGFENCE_*` variable is invalid, or names a file that does not exist", 78),
    ("the content of a file is invalid, also of one that the command line names", 78),
    ("a file of Ringfence's own cannot be read or written, or an output file cannot be written", 75),
    ("a command that lists or shows something finds nothing (`runs ls`, `diff`)", 0),
    ("the workspace is already in the state that `apply` or `undo` would bring about", 0),
    (
        "`apply` or `undo` of a run that changed no files, or `undo` of a private copy that was never applied",
        1,
    ),
    ("a command's question is declined", 1),
    ("`runs verify` of a record without a seal: the run is still going on, or was killed", 3),
    (
        "`attest verify`: the tree is not the attested one, or the run's check is red or not the demanded one",
        3,
    ),
    ("`attest verify`: the run had no check, or no trusted key is named", 9),
    ("`attest verify`: no trusted key signed it, or the key is not valid at that time", 77),
    ("`attest verify` of a file that was changed after it was signed", 1),
)


_CLOSED = """\
A command whose output is read by nobody any more ends with 141, as SIGPIPE would end it. The record of the run says how
the run ended: that of `run` as `cancelled`, with the work so far kept, and that of `exec` as `failed`.
"""


def page() -> str:
    """The page."""
    meaning = attribute_docs(JobState)
    states = [(f"`{state}`", _code_of(state), meaning[state.name]) for state in JobState if state.is_terminal]
    running = [(f"`{state}`", meaning[state.name]) for state in JobState if not state.is_terminal]
    return "\n".join(
        [
            _HEAD,
            "## How a run ends\n",
            table(("state", "exit code", "meaning"), states),
            _OTHERWISE,
            "Before that it passes through:\n",
            table(("state", "meaning"), running),
            "## By code\n",
            table(("exit code", "states of a run", "errors of any command"), _by_code()),
            "## Which code bad input has\n",
            table(("what happens", "exit code"), _RULES),
            _CLOSED,
            "The text of an error is one line: what failed, the value, the next step.\n",
            table(("error", "exit code", "means"), _errors()),
        ]
    )


def _code_of(state: JobState) -> str:
    return "the program's" if state is JobState.ENDED else str(EXIT_CODES[state].value)


def _by_code() -> list[tuple[int, str, str]]:
    rows = []
    for code in ExitCode:
        states = ", ".join(f"`{state}`" for state in EXIT_CODES if _code_of(state) == str(code.value))
        own = ", ".join(f"`{kind.__name__}`" for kind in _kinds() if kind.exit_code is code)
        rows.append((code.value, states, own))
    return rows


def _errors() -> list[tuple[str, int, str]]:
    return [(f"`{kind.__name__}`", kind.exit_code.value, first_paragraph(kind.__doc__)) for kind in _kinds()]


def _kinds() -> list[type[RingfenceError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, RingfenceError) and value is not RingfenceError
    ]
