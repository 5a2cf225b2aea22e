"""Declares the arguments of each tool. Undeclared or too large ones are refused before a call acts."""

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ringfence.errors import UsageError

MAX_DATA_BYTES = 4 * 1024**2
"""Bytes that one call may send to a file or a process."""
MAX_READ_BYTES = 1024**2
MAX_WAIT_S = 60.0
_MAX_COMMAND_CHARS = 64 * 1024
_MAX_ARGUMENTS = 1000
_MAX_SHOWN = 100


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it has a NUL character")
    return text


Word = Annotated[str, Field(max_length=_MAX_COMMAND_CHARS), AfterValidator(_without_nul)]
Path = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_without_nul)]
Handle = Annotated[str, Field(min_length=1, max_length=100)]
Seconds = Annotated[float, Field(gt=0, le=24 * 3600, allow_inf_nan=False)]
Cursor = Annotated[int, Field(ge=0, lt=2**53)]
"""A position that an earlier result named; a JavaScript client holds no larger integer exactly."""


class ToolArguments(BaseModel):
    """The base of the arguments of all tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class OpenArguments(ToolArguments):
    """Arguments of `sandbox_open`; each can only tighten what the server was started with."""

    workspace: Path | None = Field(
        None, description="Directory on this machine to work on; default: the server's own."
    )
    read_only: bool = Field(
        False,
        description="Show the workspace read-only, where the server works on the workspace itself (mode bind).",
    )
    timeout_s: Seconds | None = Field(
        None, description="Close the sandbox after this time; at most the server's own limit."
    )
    idle_s: Seconds | None = Field(
        None, description="Close it after this time without a call; at most the server's own limit."
    )


class ListArguments(ToolArguments):
    """Arguments of `sandbox_list`."""


class SandboxArguments(ToolArguments):
    """Arguments of tools that act on a sandbox."""

    sandbox: Handle = Field(description="Handle from sandbox_open.")


class CommandArguments(SandboxArguments):
    """Arguments of tools that start a program."""

    command: Word | None = Field(None, description="Shell command, run by `sh -c`.")
    argv: Annotated[list[Word], Field(min_length=1, max_length=_MAX_ARGUMENTS)] | None = Field(
        None, description="Program and arguments, instead of a shell command."
    )
    cwd: Path | None = Field(None, description="Directory inside, relative to the workspace.")

    @model_validator(mode="after")
    def _check_one(self) -> "CommandArguments":
        if (self.command is None) == (self.argv is None):
            raise ValueError("give either command or argv")
        return self

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return self.argv if self.argv is not None else ["/bin/sh", "-c", self.command or ""]


class RunArguments(CommandArguments):
    """Arguments of `command_run`."""

    stdin: Annotated[str, Field(max_length=MAX_DATA_BYTES)] = Field(
        "", description="Its whole input, as text."
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = Field(
        120, description="Kill the command with everything it started after this time."
    )
    limit_bytes: Annotated[int, Field(ge=0, le=MAX_READ_BYTES)] = Field(
        32 * 1024,
        description="How much of stdout and of stderr each is returned: the first and last half of this.",
    )


class StartArguments(CommandArguments):
    """Arguments of `process_start`."""


class ProcessArguments(SandboxArguments):
    """Arguments of tools that act on a process."""

    process: Handle = Field(description="Handle from process_start.")


class PollArguments(ProcessArguments):
    """Arguments of `process_poll`."""

    cursor: Cursor = Field(0, description="next_cursor of the last poll; 0 for the beginning.")
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = Field(
        0, description="Wait up to this long for output or the end."
    )
    limit_bytes: Annotated[int, Field(ge=4, le=MAX_READ_BYTES)] = Field(
        32 * 1024, description="Return at most this much output."
    )


class StopArguments(ProcessArguments):
    """Arguments of `process_stop`."""

    signal: Literal["TERM", "INT", "HUP", "KILL"] = Field("TERM", description="Signal to send first.")
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = Field(
        5, description="Then kill the process with everything it started after this time."
    )


class _Data(ToolArguments):
    text: Annotated[str, Field(max_length=MAX_DATA_BYTES)] | None = Field(
        None, description="Text, sent as UTF-8."
    )
    base64: Annotated[str, Field(max_length=MAX_DATA_BYTES * 4 // 3 + 4)] | None = Field(
        None, description="Bytes in base64, instead of text."
    )

    @model_validator(mode="after")
    def _check_data(self) -> "_Data":
        if self.text is not None and self.base64 is not None:
            raise ValueError("give either text or base64")
        if len(self.data) > MAX_DATA_BYTES:
            raise ValueError(f"it has more than {MAX_DATA_BYTES} bytes; send it in parts")
        return self

    @property
    def data(self) -> bytes:
        """The bytes."""
        if self.base64 is None:
            return (self.text or "").encode()
        try:
            return base64.b64decode(self.base64, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise ValueError("base64 is not valid") from exc


class WriteProcessArguments(ProcessArguments, _Data):
    """Arguments of `process_write`."""

    end: bool = Field(False, description="End the input afterwards.")


class ReadArguments(SandboxArguments):
    """Arguments of `file_read`."""

    path: Path = Field(description="File inside, relative to the workspace or absolute.")
    cursor: Cursor = Field(0, description="Byte to begin with: next_cursor of the last result.")
    limit_bytes: Annotated[int, Field(ge=4, le=MAX_READ_BYTES)] = Field(
        64 * 1024, description="Return at most this much."
    )


class WriteArguments(SandboxArguments, _Data):
    """Arguments of `file_write`."""

    path: Path = Field(description="File inside; its directories are created.")
    executable: bool = Field(False, description="Make the file executable.")

    @model_validator(mode="after")
    def _check_content(self) -> "WriteArguments":
        if self.text is None and self.base64 is None:
            raise ValueError("give text or base64")
        return self


class ListFilesArguments(SandboxArguments):
    """Arguments of `file_list`."""

    path: Path = Field(".", description="Directory inside.")
    cursor: Cursor = Field(0, description="next_cursor of the last result.")
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(200, description="Return at most this many entries.")


class DiffArguments(SandboxArguments):
    """Arguments of `changes_diff`."""

    cursor: Cursor = Field(0, description="next_cursor of the last result; 0 compares anew.")
    limit_bytes: Annotated[int, Field(ge=4, le=MAX_READ_BYTES)] = Field(
        64 * 1024, description="Return at most this much of the patch."
    )


class SnapshotArguments(SandboxArguments):
    """Arguments of `snapshot_restore`."""

    snapshot: Handle = Field(description="Name from snapshot_create; `start`: as the sandbox was opened.")


def parse(model: type[ToolArguments], given: dict[str, Any] | None) -> ToolArguments:
    """Check the arguments of a call.

    Raises:
        UsageError: One is missing, unknown, of another type or too large.
    """
    try:
        return model.model_validate(given or {})
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:_MAX_SHOWN] for part in first["loc"][:3]) or "arguments"
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            raise UsageError(f"{where}: the tool has no such argument; it has: {known}") from None
        raise UsageError(
            f"{where}: {first['msg'].removeprefix('Value error, ')}; see the tool's schema"
        ) from None
