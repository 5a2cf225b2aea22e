"""Asks the user the question with which a run ended, or prints how to resume the run."""

import shlex
import sys
from datetime import UTC, datetime
from getpass import getuser
from typing import TYPE_CHECKING

import typer

from ringfence.cli.output import notify
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.events import QuestionAnswered
    from ringfence.job.outcome import RunResult
    from ringfence.job.question import Question, Rule

_CONTINUE = "continue"


def ask(result: "RunResult", *, is_interactive: bool) -> "QuestionAnswered | None":
    """Ask the user at the terminal; without a terminal, print the command that resumes the run.

    Returns:
        The answer; None if the run should not be resumed now.
    """
    question = result.question
    assert question is not None
    rule = question.granted
    if not is_interactive or not (sys.stdin.isatty() and sys.stderr.isatty()):
        notify(how_to_resume(result, question))
        return None
    if question.text:
        notify(f"the agent's own words: {visible(question.text)}")
    reply = _reply() if rule is None else ""
    if not (reply if rule is None else _is_allowed(rule)):
        notify(how_to_resume(result, question))
        return None
    from ringfence.events import QuestionAnswered

    return QuestionAnswered(
        question=result.run_id,
        run=result.run_id,
        kind=question.kind,
        rule=dict(question.rule),
        answer="allow",
        scope="run",
        by=getuser(),
        at=datetime.now(UTC).isoformat(),
        reply=reply,
    )


def _is_allowed(rule: "Rule") -> bool:
    """Ask about a rule. Denying it has the same effect as quitting: the run has ended, and can be resumed."""
    choice = typer.prompt(
        f"The agent asks to {rule}. Allow it for this run (a), deny it (d), or quit (q)?",
        default="q",
        show_default=False,
        err=True,
    )
    return str(choice).strip().lower() in ("a", "allow")


def _reply() -> str:
    return str(typer.prompt("Your answer (empty: quit)", default="", show_default=False, err=True)).strip()


def how_to_resume(result: "RunResult", question: "Question") -> str:
    """Return the command that resumes a run and grants its request."""
    rule = question.granted
    words = ["ringfence", "run", "--resume", result.run_id[-8:], *(rule.options if rule is not None else [])]
    task = shlex.quote(_CONTINUE) if rule is not None else "'YOUR ANSWER'"
    purpose = f"to let it {rule}" if rule is not None else "to answer it"
    return f"{purpose}: {shlex.join(words)} {task}"
