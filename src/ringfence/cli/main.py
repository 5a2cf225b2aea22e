"""The `ringfence` command: its parts, and how errors become one line and an exit code."""

import re
import sys
from typing import Annotated, Any

import typer
import typer.main

from ringfence import __version__
from ringfence.cli.audit import audit_app
from ringfence.cli.checkpoint import checkpoint_app
from ringfence.cli.client import ClientCommand, client_command
from ringfence.cli.config import config_app, init, trust
from ringfence.cli.crew import agent_app, schedule_app
from ringfence.cli.doctor import doctor
from ringfence.cli.ending import end_by
from ringfence.cli.execute import execute
from ringfence.cli.fleet import fleet_app
from ringfence.cli.gc import gc
from ringfence.cli.image import image_app
from ringfence.cli.job import job_app
from ringfence.cli.loop import loop_app
from ringfence.cli.policy import policy_app
from ringfence.cli.pool import pool_app
from ringfence.cli.run import run
from ringfence.cli.sandbox import sandbox_app
from ringfence.cli.secret import secret_app
from ringfence.cli.session import session_app
from ringfence.cli.shell import shell
from ringfence.cli.work import apply, diff, undo
from ringfence.cli.worker import worker
from ringfence.errors import ExitCode
from ringfence.escape import visible

app = typer.Typer(
    name="ringfence",
    help="Run AI coding agents where they can do no harm, and keep a record that proves what they did.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=True,
    pretty_exceptions_enable=False,
)
# Typer does not export the root of its command line errors, and has moved it between releases.
_COMMAND_LINE_ERROR = typer.BadParameter.__mro__[2]
_OUR_WORDS = {
    "Input should be a valid integer": "write a whole number",
    "Input should be a valid number": "write a number",
}
_FREE = {"ignore_unknown_options": True, "allow_interspersed_args": False}

app.command("run")(run)
app.command("exec", context_settings=_FREE)(execute)
app.command("shell")(shell)
app.command("claude", cls=ClientCommand)(client_command("claude", "Claude Code"))
app.command("codex", cls=ClientCommand)(client_command("codex", "Codex"))
app.add_typer(loop_app)
app.add_typer(fleet_app)
app.add_typer(job_app)
app.add_typer(agent_app)
app.add_typer(schedule_app)
app.command("worker")(worker)
app.add_typer(sandbox_app)
app.add_typer(pool_app)
app.command("diff")(diff)
app.command("apply")(apply)
app.command("undo")(undo)
app.add_typer(checkpoint_app)
app.add_typer(audit_app)
app.add_typer(session_app)
app.add_typer(image_app)
app.add_typer(secret_app)
app.command("doctor")(doctor)
app.add_typer(policy_app)
app.add_typer(config_app)
app.command("trust")(trust)
app.command("init")(init)
app.command("gc")(gc)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run AI coding agents where they can do no harm, and keep a record that proves what they did."""


def run_app() -> None:
    """Run the command; every error is one line on stderr and a documented exit code."""
    end_by(_run)


def _run() -> int:
    try:
        result = typer.main.get_command(app)(standalone_mode=False, prog_name="ringfence")
    except typer.Abort:
        return ExitCode.CANCELLED
    except Exception as exc:
        if isinstance(exc, _COMMAND_LINE_ERROR):
            return _tell_misuse(exc)
        raise
    return result if isinstance(result, int) else ExitCode.OK


def _tell_misuse(error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{message}\n")
    else:
        shown = visible(_in_our_words(message, _given(error)), one_line=True)
        if "unexpected extra argument" in message and context.command_path == "ringfence run":
            shown += "; put the task in quotes"
        sys.stderr.write(f"ringfence: {shown}; see `{context.command_path} --help`\n")
    return int(error.exit_code)


def _given(error: Any) -> str:
    """The value of the option that is to blame, which Typer leaves out."""
    names = getattr(getattr(error, "param", None), "opts", ())
    words = iter(sys.argv[1:])
    for word in words:
        name, equals, value = word.partition("=")
        if name in names:
            return repr(value if equals else next(words, ""))
    return ""


def _in_our_words(message: str, given: str) -> str:
    """A complaint of Typer's: the option, the value, and what would fit."""
    found = re.fullmatch(r"Invalid value for '([^']+)': (?:Value error, )?(.*)", message, re.DOTALL)
    if found is None:
        return f"{message}: {given}" if given else message
    name, why = found.groups()
    why = _OUR_WORDS.get(why.partition(",")[0], why)
    return f"{name}: {why}" if not given or why.startswith(given) else f"{name}: {given}: {why}"
