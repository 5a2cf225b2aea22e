"""`ringfence run`: runs an agent on one task in a sandbox, with a record."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options
from ringfence.cli.completion import complete_runs
from ringfence.cli.options import takes_settings
from ringfence.cli.output import notify
from ringfence.cli.settings import check_file, load_settings, wait_of, warn_about
from ringfence.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.events import QuestionAnswered
    from ringfence.job.outcome import RunResult
    from ringfence.job.request import RunRequest
    from ringfence.job.resumed_run import ResumeRequest

_MAX_TASK_BYTES = 16 * 1024**2


@takes_settings(
    "sandbox", "image", "engine", "mode", "model", "runtime", "toolset", "system_prompt", "system_append",
    "allow_tool", "deny_tool", "permit_tool", "ask", "permission_mode", "output_schema", "idle_timeout", "cli_path",
    "cli_arg", "plugin", "settings_source", "force", "verify", "no_verify", "require_verified", "memory", "cpus", "pids",
    "disk", "timeout", "max_turns", "max_tool_calls", "max_tokens", "max_cost_usd", "soft_limits", "setup",
    "forward", "allow", "env", "auth", "label",
)  # fmt: skip
def run(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="Task, in quotes; `-` reads it from stdin.")
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the task from FILE.")
    ] = None,
    workspace: options.WorkspaceOption = Path(),
    wait: options.WaitOption = "0",
    continue_: Annotated[
        bool, typer.Option("--continue", help="Resume the session of the last run on this workspace.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="ID",
            autocompletion=complete_runs,
            help="Resume the session of a run, or a session, by its id.",
        ),
    ] = None,
    fork: Annotated[
        bool,
        typer.Option("--fork", help="With --continue or --resume: fork the session instead."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print events as NDJSON.")] = False,
    **settings: Any,
) -> None:
    """Run an agent on a task in a sandbox, and verify its work.

    Prints progress on stderr. If stdout is not a terminal, the agent's answer is written to it. The exit code states how
    the run ended; `ringfence help exit-codes` lists the codes.
    """
    from ringfence.job.resumed_run import resume_request

    text = _read_task(prompt, file)
    if (verify := settings["verify"]) is not None and not verify.strip():
        raise UsageError(
            f"--verify {verify!r} is empty; give the command that checks the work, or leave it out"
        )
    if verify is not None and settings["no_verify"]:
        raise UsageError(f"--verify {verify!r} and --no-verify contradict each other; leave one of them out")
    session = resume_request(continue_=continue_, resume=resume, fork=fork)
    effective = load_settings(workspace, **settings)
    warn_about(effective)
    import anyio

    raise typer.Exit(anyio.run(_run, text, workspace, effective, session, json, wait_of(wait)))


async def _run(
    prompt: str,
    workspace: Path,
    effective: "Effective",
    resume: "ResumeRequest | None",
    json: bool,
    wait_s: float,
) -> int:
    """Run an agent; if it asks a question and the user at the terminal allows it, resume the run."""
    import anyio.to_thread

    from ringfence.job.resolution import resolved_agent_request

    answers: tuple[QuestionAnswered, ...] = ()
    while True:
        async with resolved_agent_request(
            prompt, workspace, effective, resume=resume, notify=notify
        ) as request:
            code, result = await _run_and_print(replace(request, wait_s=wait_s, answers=answers), json)
        if result.question is None:
            return code
        from ringfence.cli.run.question import ask
        from ringfence.job.question import continuation, with_rules
        from ringfence.job.resumed_run import ResumeRequest

        answered = await anyio.to_thread.run_sync(partial(ask, result, is_interactive=not json))
        if answered is None:
            return code
        rule = result.question.granted
        settings = with_rules(effective.settings, [rule] if rule is not None else [])
        effective = replace(effective, settings=settings)
        prompt, resume, answers = continuation(answered), ResumeRequest(result.run_id), (answered,)


async def _run_and_print(request: "RunRequest", json: bool) -> "tuple[int, RunResult]":
    from ringfence.cli.run.execution import run_to_end

    if not json:
        return await _run_with_live_view(request)
    from ringfence.cli.output import print_event

    result = await run_to_end(request, view=print_event)
    if result.is_unwatched:
        from ringfence.cli.render.summary import report_end

        report_end(result)
        return ExitCode.BROKEN_PIPE, result
    return result.exit_code, result


async def _run_with_live_view(request: "RunRequest") -> "tuple[int, RunResult]":
    import anyio

    from ringfence.cli.render.console import open_console
    from ringfence.cli.render.live import LiveView
    from ringfence.cli.render.summary import print_summary, report_end
    from ringfence.cli.run.execution import run_to_end

    console = open_console(stderr=True)
    assert request.agent is not None
    live = LiveView(console, request.agent.limits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.tick)
        result = await run_to_end(request, view=live.show)
        tasks.cancel_scope.cancel()
    if result.is_unwatched:
        report_end(result)
        return ExitCode.BROKEN_PIPE, result
    print_summary(console, result)
    _print_answer(result)
    return result.exit_code, result


def _print_answer(result: "RunResult") -> None:
    """Print the agent's answer if stdout is not a terminal; on a terminal the live view has shown it."""
    from contextlib import suppress

    from ringfence.escape import safe_json, visible

    if sys.stdout.isatty() or not (result.final_text or result.structured_output):
        return
    text = result.final_text if result.structured_output is None else safe_json(result.structured_output)
    with suppress(OSError):  # stdout was closed by its reader
        sys.stdout.write(f"{visible(text)}\n")
        sys.stdout.flush()


def _read_task(prompt: str | None, file: Path | None) -> str:
    """Read the text of the task; bytes that are not valid UTF-8 are replaced.

    Raises:
        UsageError: The task is given twice or not at all, is empty or too long, or cannot be read.
    """
    if (prompt is None) == (file is None):
        raise UsageError("give the task once: as PROMPT, as - for stdin, or by --file FILE")
    if file is not None:
        data = _read(file)
    elif prompt == "-":
        data = sys.stdin.buffer.read(_MAX_TASK_BYTES + 1) if sys.stdin else b""
    else:
        data = os.fsencode(prompt or "")
    if len(data) > _MAX_TASK_BYTES:
        raise UsageError(
            f"the task is longer than {_MAX_TASK_BYTES} bytes; put the material in the workspace instead"
        )
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("the task is empty; describe what the agent should do")
    return text


def _read(file: Path) -> bytes:
    with check_file(file, "--file").open("rb") as stream:
        return stream.read(_MAX_TASK_BYTES + 1)
