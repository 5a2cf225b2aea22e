"""The sandbox provider `ringfence` of inspect_ai: `inspect eval task.py --sandbox ringfence`.

inspect_ai imports this module by its entry point. It needs the extra `inspect`.
"""

import errno
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
from anyio import to_thread
from pydantic import BaseModel, Field

try:
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
except ImportError as exc:
    from ringfence.errors import UsageError

    raise UsageError(
        f"inspect_ai cannot be imported ({exc}); install it: pip install 'ringfence[inspect]'"
    ) from exc

from ringfence.errors import RingfenceError, SandboxDied, SandboxFileError, UsageError
from ringfence.integrations.evaluation_sandbox import (
    EvaluationSandbox,
    HeldSandbox,
    evaluation_spec,
    expect_asyncio,
    os_error,
    remove_leftovers,
)
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.registry import choose_backend

__all__ = ["RingfenceConfig", "RingfenceSandboxEnvironment"]

DEFAULT = "default"
_MOST_SANDBOXES = 20
_LIMITS = ("memory", "pids", "disk")
"""What ends a command while nothing that it printed says so."""


class RingfenceConfig(EvaluationSandbox):
    """The sandboxes of a sample: this one is `default`, others have a name.

    ::

        Task(..., sandbox=SandboxEnvironmentSpec("ringfence", RingfenceConfig(memory="1g", egress=["pypi.org"])))
    """

    sandboxes: dict[str, EvaluationSandbox] = Field(default_factory=dict, max_length=_MOST_SANDBOXES)
    """Further sandboxes, by the name that `sandbox(name)` takes."""

    def specs(self, *, is_logged: bool) -> dict[str, SandboxSpec]:
        """The spec of each sandbox, `default` first."""
        if DEFAULT in self.sandboxes:
            raise UsageError(
                f"sandboxes={DEFAULT!r}: the configuration itself describes it; give another name"
            )
        every = {DEFAULT: self, **self.sandboxes}
        return {name: evaluation_spec(each, is_logged=is_logged) for name, each in every.items()}


@sandboxenv(name="ringfence")
class RingfenceSandboxEnvironment(SandboxEnvironment):
    """An open sandbox as inspect_ai uses it. Each sample has sandboxes of its own, which end with the sample."""

    def __init__(self, sandbox: Sandbox, held: HeldSandbox | None = None) -> None:
        """Wrap an open sandbox.

        Args:
            sandbox: The sandbox.
            held: What `sample_cleanup` closes; None: the caller closes the sandbox.
        """
        super().__init__()
        self._sandbox = sandbox
        self._held = held

    # --- commands and files

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 -- the name in inspect_ai's contract
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,  # noqa: ARG002 -- a timeout here is the command's own: nothing else can hang
        concurrency: bool = True,  # noqa: ARG002 -- it limits processes of this machine, and a command starts none
    ) -> ExecResult[str]:
        """Run a command to its end; its whole process tree is killed at the timeout.

        Raises:
            SandboxUserUnsupportedError: Another user than the sandbox's own is requested.
            SandboxUnavailableError: The sandbox is gone.
            TimeoutError: The timeout expired.
            PermissionError: The program may not be executed.
            OutputLimitExceededError: A stream exceeds the limit; the command is killed.
        """
        if user is not None:
            raise SandboxUserUnsupportedError(
                f"user {user!r}: a ringfence sandbox has one user, and nothing inside becomes another"
            )
        data = input.encode() if isinstance(input, str) else input or b""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            result = await self._sandbox.run(
                cmd,
                stdin=data,
                cwd=cwd,
                env=env,
                timeout_s=timeout,
                output_limit_bytes=limit,
                flood_limit_bytes=limit,
            )
        except UsageError as exc:  # no such directory, or a NUL: arguments that a model may have chosen
            return ExecResult(False, 126, "", str(exc))
        except SandboxDied as exc:
            raise SandboxUnavailableError(str(exc)) from exc
        if result.ended_by == "timeout":
            raise TimeoutError(f"the command has not ended after {timeout} s")
        if max(result.stdout_total, result.stderr_total) > limit:
            shown = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit_str=shown, truncated_output=result.stdout)
        if not result.is_started and result.exit_code == 126:
            raise PermissionError(errno.EACCES, result.stderr.strip(), cmd[0])
        limited = (
            f"ringfence: {result.ended_by} limit of the sandbox reached\n"
            if result.ended_by in _LIMITS
            else ""
        )
        return ExecResult(result.ok, result.exit_code, result.stdout, result.stderr + limited)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file inside atomically; parent directories are created.

        Raises:
            OSError: Its subclass says why, such as `IsADirectoryError` or `PermissionError`.
            SandboxUnavailableError: The sandbox is gone.
        """
        try:
            await self._sandbox.write_file(file, contents.encode() if isinstance(contents, str) else contents)
        except (SandboxFileError, SandboxDied) as exc:
            _raise_translated(exc, file)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Read a file inside.

        Raises:
            OSError: Its subclass says why, such as `FileNotFoundError`.
            UnicodeDecodeError: It is not UTF-8.
            OutputLimitExceededError: It is larger than the limit.
            SandboxUnavailableError: The sandbox is gone.
        """
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self._sandbox.read_file(file, limit_bytes=limit)
        except (SandboxFileError, SandboxDied) as exc:
            _raise_translated(exc, file)
        return data.decode() if text else data

    def default_polling_interval(self) -> float:
        """Seconds between the polls of `exec_remote`: a command takes a millisecond."""
        return 0.2

    # --- the life of an evaluation

    @classmethod
    def config_files(cls) -> list[str]:
        """A project's configuration beside the task's file."""
        return ["ringfence.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Make the configuration of a log file's data."""
        return RingfenceConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:  # noqa: ARG003
        """Check the configuration before any sample starts, and that this machine has the backend.

        Raises:
            RingfenceError: It cannot be used.
        """
        expect_asyncio()
        for spec in (await _specs(config, is_logged=True)).values():
            await choose_backend(spec)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],  # noqa: ARG003 -- a sample's data does not describe its sandbox
    ) -> "dict[str, RingfenceSandboxEnvironment]":
        """Open the sandboxes of a sample. If this fails or is cancelled, none of them is left.

        Raises:
            RingfenceError: One cannot be opened.
        """
        found: dict[str, RingfenceSandboxEnvironment] = {}
        try:
            for name, spec in (await _specs(config)).items():
                held = await HeldSandbox.open(spec)
                found[name] = cls(held.sandbox, held)
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(RingfenceError):  # the earlier exception is raised
                await cls.sample_cleanup(task_name, config, found, True)
            raise
        return found

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,  # noqa: ARG003 -- its signature
        config: SandboxEnvironmentConfigType | None,  # noqa: ARG003
        environments: dict[str, "RingfenceSandboxEnvironment"],
        interrupted: bool,  # noqa: ARG003 -- it takes milliseconds, so an interruption does not defer it
    ) -> None:
        """End the sandboxes of a sample, with everything in them."""
        errors: list[RingfenceError] = []
        for environment in environments.values():
            try:
                if environment._held is not None:
                    await environment._held.close()
            except RingfenceError as exc:
                errors.append(exc)
        if errors:
            raise errors[0]

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what sandboxes of killed evaluations left, and print it (`inspect sandbox cleanup ringfence`)."""
        removed = await remove_leftovers(id)
        print(*(f"removed {name}" for name in removed), sep="\n") if removed else print("nothing is left")  # noqa: T201


async def _specs(
    config: SandboxEnvironmentConfigType | None, *, is_logged: bool = False
) -> dict[str, SandboxSpec]:
    """The specs of a configuration, by the names of its sandboxes.

    Raises:
        RingfenceError: It is not valid.
    """
    if config is None or isinstance(config, str):
        file = Path(config) if config else None
        return {DEFAULT: await to_thread.run_sync(partial(evaluation_spec, file=file, is_logged=is_logged))}
    if isinstance(config, RingfenceConfig):
        return await to_thread.run_sync(partial(config.specs, is_logged=is_logged))
    raise UsageError(
        f"the sandbox ringfence is configured by a RingfenceConfig or a ringfence.yaml, not by {type(config).__name__}"
    )


def _raise_translated(error: SandboxFileError | SandboxDied, file: str) -> NoReturn:
    """Raise an error of a file operation as inspect_ai's contract names it."""
    if isinstance(error, SandboxDied):
        raise SandboxUnavailableError(str(error)) from error
    if error.errno_name == "EFBIG":
        shown = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
        raise OutputLimitExceededError(limit_str=shown, truncated_output=None) from error
    raise os_error(error, file) from error
