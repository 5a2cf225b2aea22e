"""The check that decides a run: in a new sandbox, made after the agent's has died."""

import time

from ringfence.events import VerificationEnded, VerificationStarted
from ringfence.job.outcome import Outcome
from ringfence.job.recorder import Recorder
from ringfence.job.state import JobState
from ringfence.sandbox import ExecResult, Sandbox

TIMEOUT_S = 1800.0
_OUTPUT_BYTES = 64 * 1024
_NOT_RUN = {126: "command not executable", 127: "command not found"}
"""What a shell says by its exit code when there was nothing to run."""


async def verify(command: str, sandbox: Sandbox, recorder: Recorder) -> Outcome:
    """Run the check and say what it decides."""
    await recorder.emit(VerificationStarted(command=command))
    began = time.monotonic()
    result = await sandbox.run(
        ["/bin/sh", "-c", command], timeout_s=TIMEOUT_S, output_limit_bytes=_OUTPUT_BYTES
    )
    await recorder.emit(
        VerificationEnded(
            command=command,
            passed=result.ok,
            exit_code=result.exit_code,
            ended_by=result.ended_by,
            output=result.stdout + result.stderr,
            duration_ms=round((time.monotonic() - began) * 1000, 3),
        )
    )
    return _decide(command, result)


def _decide(command: str, result: ExecResult) -> Outcome:
    if result.ok:
        return Outcome(JobState.SUCCEEDED, f"the check passed: {command}")
    if result.ended_by == "exit" and result.exit_code in _NOT_RUN:
        return Outcome(
            JobState.CHECK_RED,
            f"the check could not be run inside: {_NOT_RUN[result.exit_code]}; the sandbox has what the system and "
            "your toolchains hold (ringfence policy), a container what its image holds",
        )
    how = f"exit code {result.exit_code}" if result.ended_by == "exit" else f"ended by {result.ended_by}"
    return Outcome(JobState.CHECK_RED, f"the check failed ({how}): {command}")
