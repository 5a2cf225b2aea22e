"""The check that decides a run: in a new sandbox, made after the agent's has died."""

import time

from ringfence.events import VerificationEnded, VerificationStarted
from ringfence.job.outcome import Outcome
from ringfence.job.recorder import Recorder
from ringfence.job.state import JobState
from ringfence.sandbox import ExecResult, Sandbox

TIMEOUT_S = 1800.0
_OUTPUT_BYTES = 64 * 1024


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
    how = f"exit code {result.exit_code}" if result.ended_by == "exit" else f"ended by {result.ended_by}"
    return Outcome(JobState.CHECK_RED, f"the check failed ({how}): {command}")
