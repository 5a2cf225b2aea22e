"""The environment of mini-swe-agent: `environment_class: ringfence.integrations.mini_swe_agent.RingfenceEnvironment`.

It needs the extra `mini-swe-agent`.
"""

import asyncio
import platform
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

from pydantic import PositiveFloat

try:
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
except ImportError as exc:
    from ringfence.errors import UsageError

    raise UsageError(
        f"mini-swe-agent cannot be imported ({exc}); install it: pip install 'ringfence[mini-swe-agent]'"
    ) from exc

from ringfence.errors import UsageError
from ringfence.integrations.evaluation_sandbox import (
    MERGED_STREAMS,
    EvaluationSandbox,
    HeldSandbox,
    evaluation_spec,
)
from ringfence.sandbox import ExecResult, SandboxSpec

__all__ = ["RingfenceEnvironment", "RingfenceEnvironmentConfig"]

_SUBMISSION = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_FLOOD_BYTES = 100 * 1024**2


class RingfenceEnvironmentConfig(EvaluationSandbox):
    """The keys of `environment` in a configuration of mini-swe-agent, besides those of the sandbox."""

    cwd: str = ""
    """Directory inside in which commands start. Empty: the workspace."""
    timeout: PositiveFloat = 30
    """Seconds after which a command is killed, with everything that it started."""
    interpreter: tuple[str, ...] = ("bash", "-lc")
    """What takes the text of a command as its last argument."""


class RingfenceEnvironment:
    """A sandbox in which an agent's commands run, each in a new shell. It ends with `cleanup`, or with the program.

    Args:
        config_class: The class of the configuration.
        arguments: The configuration: fields of `RingfenceEnvironmentConfig`.

    Raises:
        RingfenceError: The sandbox cannot be opened.
    """

    def __init__(
        self, *, config_class: type[RingfenceEnvironmentConfig] = RingfenceEnvironmentConfig, **arguments: Any
    ) -> None:
        self.config = config_class(**arguments)
        self._thread = _SandboxThread(evaluation_spec(self.config))
        self._finalizer = weakref.finalize(self, self._thread.close)

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the command of an action to its end; a failing command is an output, as is a timeout.

        Raises:
            SandboxDied: The sandbox is gone. The agent ends, with this name as its exit status.
            Submitted: The command submits the agent's work.
        """
        limit_s = timeout or self.config.timeout
        command = [*MERGED_STREAMS, *self.config.interpreter, str(action.get("command", ""))]
        try:
            result = self._thread.run(command, cwd or self.config.cwd or None, limit_s)
        except UsageError as exc:  # no such directory, or a NUL
            return _failed_output("", str(exc), type(exc).__name__)
        if result.ended_by not in ("exit", "signal"):
            return _failed_output(result.stdout, _describe_end(result, limit_s), result.ended_by)
        output = {"output": result.stdout, "returncode": result.exit_code, "exception_info": ""}
        _check_submission(result)
        return output

    def get_template_vars(self, **others: Any) -> dict[str, Any]:
        """What templates of prompts can name: the configuration, and the system without this machine's name."""
        system = platform.uname()._replace(node="sandbox")._asdict()
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), system, others)
        return merged

    def serialize(self) -> dict[str, Any]:
        """What a trajectory records of the environment."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        """End the sandbox with everything in it. A second call does nothing."""
        self._finalizer()


class _SandboxThread:
    """A sandbox on an event loop in a daemon thread: `open_sandbox` has one that Python waits for at its exit."""

    def __init__(self, spec: SandboxSpec) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ringfence: loop", daemon=True)
        self._thread.start()
        try:
            self._held: HeldSandbox = self._call(HeldSandbox.open(spec))
        except BaseException:
            self._stop()
            raise

    def run(self, command: list[str], cwd: str | None, timeout_s: float) -> ExecResult:
        """Run a command; raises as `Sandbox.run`."""
        running = self._held.sandbox.run(
            command, cwd=cwd, timeout_s=timeout_s, flood_limit_bytes=_FLOOD_BYTES
        )
        result: ExecResult = self._call(running)
        return result

    def close(self) -> None:
        """End the sandbox and its thread."""
        if threading.current_thread() is self._thread:  # the environment was garbage, and is collected here
            closing = self._loop.create_task(self._held.close())
            closing.add_done_callback(lambda _: self._loop.stop())
            return
        try:
            self._call(self._held.close())
        finally:
            self._stop()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:  # such as Ctrl-C
            waiting.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _describe_end(result: ExecResult, limit_s: float) -> str:
    if result.ended_by == "timeout":
        return f"the command timed out after {limit_s:g} s; it was killed with everything that it started"
    return f"the command was killed: {result.ended_by} limit of the sandbox reached"


def _failed_output(output: str, message: str, kind: str) -> dict[str, Any]:
    """The output of a command that did not end by itself, in the form of mini-swe-agent's own environments."""
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {message}",
        "extra": {"exception_type": kind, "exception": message},
    }


def _check_submission(result: ExecResult) -> None:
    first, _, rest = result.stdout.lstrip().partition("\n")
    if first.strip() == _SUBMISSION and result.exit_code == 0:
        extra = {"exit_status": "Submitted", "submission": rest}
        raise Submitted({"role": "exit", "content": rest, "extra": extra})
