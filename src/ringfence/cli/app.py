"""The `ringfence` command: its root, and how errors become one line and an exit code."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from ringfence import __version__
from ringfence.cli.exit import end_by
from ringfence.cli.tree import CommandGroup
from ringfence.errors import ExitCode, UsageError
from ringfence.escape import visible

app = typer.Typer(
    name="ringfence",
    cls=CommandGroup,
    help="Run AI coding agents in a sandbox, and keep a signed record of what they did.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Typer does not export the root of its command line errors, and has moved it between releases.
_COMMAND_LINE_ERROR = typer.BadParameter.__mro__[2]
_REASONS = (
    (r"Input should be a valid integer.*", "write a whole number"),
    (r"Input should be a valid number.*", "write a number"),
    (r"Input should be greater than or equal to (\S+?)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+?)", r"it must be at most \1"),
    (r"Input should be (.+)", r"choose \1"),
)
"""Typer's (that is, pydantic's) reasons, and the texts that are printed instead of them."""
_COMPLETE = "_RINGFENCE_COMPLETE"
"""The variable by which a shell requests completions."""
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell is not None:
        _check_shell("--show-completion", shell)
        typer.echo(
            _completion().get_completion_script(prog_name="ringfence", complete_var=_COMPLETE, shell=shell)
        )
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell is not None:
        _check_shell("--install-completion", shell)
        _, file = _completion().install(shell=shell, prog_name="ringfence", complete_var=_COMPLETE)
        typer.echo(f"installed the completion for {shell} in {file}; it works in new shells", err=True)
        raise typer.Exit


def _completion() -> Any:
    from importlib import import_module

    return import_module("typer.completion")  # typer.completion has no declared exports


def _check_shell(option: str, shell: str) -> None:
    if shell not in _SHELLS:
        raise UsageError(f"{option}: there is no completion for {shell!r}; choose {', '.join(_SHELLS)}")


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    show: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="SHELL",
            callback=_show_completion,
            is_eager=True,
            help="Print the completion script; default: for $SHELL.",
        ),
    ] = None,
    install: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="SHELL",
            callback=_install_completion,
            is_eager=True,
            help="Install the completion; default: for $SHELL.",
        ),
    ] = None,
) -> None:
    """Run AI coding agents in a sandbox, and keep a signed record of what they did."""


def run_app() -> None:
    """Run the command; every error is one line on stderr and a documented exit code."""
    end_by(_run)


def _run() -> int:
    if _COMPLETE in os.environ:
        _completion().completion_init()
    words = sys.argv[1:]
    if words[-1:] in (["--show-completion"], ["--install-completion"]):
        words.append(Path(os.environ.get("SHELL", "bash")).name)
    try:
        result = typer.main.get_command(app)(words, standalone_mode=False, prog_name="ringfence")
    except typer.Abort:
        return ExitCode.CANCELLED
    except Exception as exc:
        if isinstance(exc, _COMMAND_LINE_ERROR):
            return _report_misuse(exc)
        raise
    return result if isinstance(result, int) else ExitCode.OK


def _report_misuse(error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{message}\n")
    else:
        shown = visible(_explain(message, _given_value(error)), one_line=True)
        if "unexpected extra argument" in message and context.command_path == "ringfence run":
            shown += "; put the task in quotes"
        sys.stderr.write(f"ringfence: {shown}; see `{context.command_path} --help`\n")
    return int(error.exit_code)


def _given_value(error: Any) -> str:
    """Find the rejected value of an option or argument, which Typer leaves out of its message."""
    names = getattr(getattr(error, "param", None), "opts", ())
    words = iter(sys.argv[1:])
    for word in words:
        name, equals, value = word.partition("=")
        if name in names:
            return repr(value if equals else next(words, ""))
        if word[:2] in names:
            return repr(word[2:])  # -n5
    cause = error.__cause__  # an error of pydantic, which is not imported for this
    return repr(str(cause.errors()[0]["input"])) if hasattr(cause, "errors") else ""


def _explain(message: str, given: str) -> str:
    """Reformat an error of Typer as the option, the value and the accepted values."""
    found = re.fullmatch(
        r"Invalid value for '([^']+)'(?: / '[^']+')*: (?:Value error, )?(.*)", message, re.DOTALL
    )
    if found is None:
        return f"{message}: {given}" if given else message
    name, reason = found.groups()
    for pattern, text in _REASONS:
        if match := re.fullmatch(pattern, reason, re.DOTALL):
            reason = match.expand(text)
            break
    return f"{name}: {reason}" if not given or reason.startswith(given) else f"{name}: {given}: {reason}"
