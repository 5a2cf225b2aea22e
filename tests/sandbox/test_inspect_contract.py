"""The contract checks that inspect_ai ships for any sandbox (PyPI 0.3.285), run on ours through an adapter.

They are not part of the usual set-up (48 more packages): `uv sync --group contracts` brings them.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="not installed: uv sync --group contracts")

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 -- this is how its checks are collected

from ringfence.errors import SandboxFileError
from ringfence.sandbox import Sandbox
from ringfence.testing.conformance import OpenSandbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_FULL = pytest.mark.full("a peer's checks, tried in bubblewrap; our own are tried in each engine")
BACKENDS = (
    "bubblewrap",
    *(pytest.param(name, marks=[pytest.mark.docker, _FULL]) for name in ("docker", "podman", "gvisor")),
)
GAPS: dict[str, str] = {
    "test_exec_as_user": "one user per sandbox: nothing inside is, or becomes, another user",
}
ERRORS = {
    "ENOENT": FileNotFoundError,
    "EISDIR": IsADirectoryError,
    "ENOTDIR": NotADirectoryError,
    "EACCES": PermissionError,
    "EROFS": PermissionError,
}


class RingfenceEnvironment(SandboxEnvironment):
    """An open sandbox as inspect_ai wants one."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self._sandbox = sandbox

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 -- its name there
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command to its end."""
        if user is not None:
            raise SandboxUserUnsupportedError(f"a sandbox has one user; {user!r} was asked for")
        data = input.encode() if isinstance(input, str) else input or b""
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        result = await self._sandbox.run(
            cmd, stdin=data, cwd=cwd, env=env, timeout_s=timeout, output_limit_bytes=limit
        )
        if result.ended_by == "timeout":
            raise TimeoutError
        if result.exit_code == 126 and "Permission denied" in result.stderr:
            raise PermissionError(result.stderr)
        if max(result.stdout_total, result.stderr_total) > limit:
            raise OutputLimitExceededError(limit_str=f"{limit} bytes", truncated_output=result.stdout)
        return ExecResult(result.ok, result.exit_code, result.stdout, result.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Put a file inside."""
        try:
            await self._sandbox.write_file(file, contents.encode() if isinstance(contents, str) else contents)
        except SandboxFileError as exc:
            raise ERRORS[exc.errno_name](str(exc)) from exc

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Get a file from inside."""
        limit, shown = (
            SandboxEnvironmentLimits.MAX_READ_FILE_SIZE,
            SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR,
        )
        try:
            data = await self._sandbox.read_file(file, limit_bytes=limit)
        except SandboxFileError as exc:
            if exc.errno_name == "EFBIG":
                raise OutputLimitExceededError(limit_str=shown, truncated_output=None) from exc
            raise ERRORS[exc.errno_name](str(exc)) from exc
        return data.decode() if text else data

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Nothing: the fixture closes the sandbox."""


@pytest.fixture(params=BACKENDS)
async def sandbox_env(
    request: pytest.FixtureRequest, opener: Callable[[str], OpenSandbox]
) -> AsyncIterator[RingfenceEnvironment]:
    """An open sandbox; checks that are known to fail, each with its reason."""
    reason = GAPS.get(request.node.originalname)
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    async with opener(request.param)() as sandbox:
        yield RingfenceEnvironment(sandbox)
