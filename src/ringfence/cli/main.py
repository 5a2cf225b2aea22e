"""The `ringfence` command: its parts, and how errors become one line and an exit code."""

import sys
from typing import Annotated

import typer

from ringfence import __version__
from ringfence.cli.audit import audit_app
from ringfence.cli.config import config_app, init, trust
from ringfence.cli.doctor import doctor
from ringfence.cli.execute import execute
from ringfence.cli.gc import gc
from ringfence.cli.policy import policy
from ringfence.cli.replay import replay
from ringfence.cli.run import run
from ringfence.cli.shell import shell
from ringfence.cli.work import apply, diff, undo
from ringfence.errors import ExitCode, RingfenceError

app = typer.Typer(
    name="ringfence",
    help="Run AI coding agents where they can do no harm, and keep a record that proves what they did.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=True,
    pretty_exceptions_enable=False,
)
_FREE = {"ignore_unknown_options": True, "allow_interspersed_args": False}

app.command("run")(run)
app.command("exec", context_settings=_FREE)(execute)
app.command("shell")(shell)
app.command("diff")(diff)
app.command("apply")(apply)
app.command("undo")(undo)
app.command("replay")(replay)
app.add_typer(audit_app)
app.command("doctor")(doctor)
app.command("policy")(policy)
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
    """Run the command; errors of ours are one line on stderr and a documented exit code."""
    try:
        app()
    except RingfenceError as exc:
        from ringfence.cli.escape import visible

        sys.stderr.write(f"ringfence: {visible(str(exc))}\n")
        sys.exit(exc.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.CANCELLED)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left; nothing to tell
        sys.exit(ExitCode.OK)
