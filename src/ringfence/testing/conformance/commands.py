"""Promises about running a command to its end."""

import hashlib
import signal

import anyio

from ringfence.errors import UsageError
from ringfence.testing.conformance.check import OpenSandbox, error_of, python, shell

_AT_ONCE = 8
_OF_THE_C_LIBRARY = 0b11 << 31  # signals 32 and 33


async def text_output(open_sandbox: OpenSandbox) -> None:
    """A command's output is returned as text, and exit code 0 is success."""
    async with open_sandbox() as sandbox:
        result = await shell(sandbox, "echo grüß dich")
    assert result.stdout == "grüß dich\n"
    assert (result.exit_code, result.signal, result.ended_by, result.ok) == (0, None, "exit", True)


async def binary_output(open_sandbox: OpenSandbox) -> None:
    """Output bytes of any value are returned unchanged; as text, invalid ones are replaced."""
    async with open_sandbox() as sandbox:
        result = await python(sandbox, "import os; os.write(1, bytes(range(256)))")
    assert result.stdout_bytes == bytes(range(256))
    assert "�" in result.stdout


async def split_characters(open_sandbox: OpenSandbox) -> None:
    """A character whose bytes are written separately is decoded as one character."""
    code = "import os, time\nfor b in 'aé€😀'.encode(): os.write(1, bytes([b])); time.sleep(0.005)"
    async with open_sandbox() as sandbox:
        result = await python(sandbox, code)
    assert result.stdout == "aé€😀"


async def errors_apart(open_sandbox: OpenSandbox) -> None:
    """Standard error is separate from standard output."""
    async with open_sandbox() as sandbox:
        result = await shell(sandbox, "echo out; echo err >&2")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


async def input_is_given(open_sandbox: OpenSandbox) -> None:
    """A command reads the given stdin, and then its end."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["cat"], stdin=b"\x00\xfftext")
    assert result.stdout_bytes == b"\x00\xfftext"


async def input_is_closed(open_sandbox: OpenSandbox) -> None:
    """Without input a command's stdin is at its end; the command never waits for a person."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["cat"], timeout_s=20)
    assert (result.exit_code, result.stdout_bytes) == (0, b"")


async def input_that_is_not_read(open_sandbox: OpenSandbox) -> None:
    """A command that does not read its stdin ends like any other."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["true"], stdin=b"x" * 3_000_000, timeout_s=20)
    assert result.ok


async def large_input(open_sandbox: OpenSandbox) -> None:
    """50 MiB of stdin arrive completely."""
    data = bytes(range(256)) * (50 * 4096)
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["sha256sum"], stdin=data)
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()


async def large_arguments(open_sandbox: OpenSandbox) -> None:
    """A mebibyte of arguments arrives completely."""
    words = [chr(97 + number) * 65_536 for number in range(16)]
    code = "import sys, hashlib; print(hashlib.sha256('\\0'.join(sys.argv[1:]).encode()).hexdigest())"
    async with open_sandbox() as sandbox:
        result = await python(sandbox, code, *words)
    assert result.stdout.strip() == hashlib.sha256("\0".join(words).encode()).hexdigest(), result.stderr


async def too_large_argument(open_sandbox: OpenSandbox) -> None:
    """An argument larger than the kernel accepts is a result with code 126 that says so."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["true", "x" * 1_048_576])
        after = await sandbox.run(["true"])
    assert result.exit_code == 126
    assert "too long" in result.stderr
    assert after.ok


async def odd_arguments(open_sandbox: OpenSandbox) -> None:
    """Arguments are not interpreted by a shell: blanks, quotes, newlines, empty ones and any bytes are kept."""
    words = ["", " ", "a b", "'", '"', "$HOME", "`id`", "*", "\n", ";", "-rf", "é", "\udcff"]
    code = "import sys, os; [os.write(1, os.fsencode(w) + b'\\0') for w in sys.argv[1:]]"
    async with open_sandbox() as sandbox:
        result = await python(sandbox, code, *words)
    assert result.stdout_bytes.split(b"\0")[:-1] == [
        word.encode("utf-8", "surrogateescape") for word in words
    ]


async def exit_codes(open_sandbox: OpenSandbox) -> None:
    """Every exit code from 0 to 255 is returned unchanged, as an exit."""
    async with open_sandbox() as sandbox:
        seen: dict[int, tuple[int, str]] = {}
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def leave(code: int) -> None:
            async with limiter:
                result = await shell(sandbox, f"exit {code}")
            seen[code] = (result.exit_code, result.ended_by)

        async with anyio.create_task_group() as tasks:
            for code in range(256):
                tasks.start_soon(leave, code)
    assert seen == {code: (code, "exit") for code in range(256)}


async def codes_like_a_timeout(open_sandbox: OpenSandbox) -> None:
    """A command that exits with 124, 137 or 143 by itself does not count as timed out or killed."""
    async with open_sandbox() as sandbox:
        ends = [await shell(sandbox, f"exit {code}") for code in (124, 137, 143)]
    assert [(end.exit_code, end.ended_by) for end in ends] == [(124, "exit"), (137, "exit"), (143, "exit")]


async def signals(open_sandbox: OpenSandbox) -> None:
    """The result of a command that a signal ended names the signal, and its code is 128 plus the signal's number."""
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]
    async with open_sandbox() as sandbox:
        ends = [await shell(sandbox, f"kill -{int(number)} $$") for number in numbers]
    assert [(end.signal, end.exit_code, end.ended_by) for end in ends] == [
        (int(number), 128 + int(number), "signal") for number in numbers
    ]


async def default_signals(open_sandbox: OpenSandbox) -> None:
    """A command starts with no signal ignored or blocked, except the two that the C library reserves."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"])
    masks = [int(line.split()[1], 16) & ~_OF_THE_C_LIBRARY for line in result.stdout.splitlines()]
    assert masks == [0, 0]


async def not_found(open_sandbox: OpenSandbox) -> None:
    """A command that does not exist is a result with code 127 and a message on stderr."""
    async with open_sandbox() as sandbox:
        ends = [await sandbox.run([name]) for name in ("no-such-command", "/no/such/command")]
    assert [end.exit_code for end in ends] == [127, 127]
    assert "no-such-command" in ends[0].stderr


async def not_executable(open_sandbox: OpenSandbox) -> None:
    """A file without execute permission, or a directory, is a result with code 126."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("plain", b"echo no", mode=0o644)
        ends = [await sandbox.run([name]) for name in ("./plain", "/usr")]
    assert [end.exit_code for end in ends] == [126, 126]


async def script_without_interpreter(open_sandbox: OpenSandbox) -> None:
    """A script without an interpreter line is run by the shell, with its arguments."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("script", b'echo "got $1"\n', mode=0o755)
        result = await sandbox.run(["./script", "a b"])
    assert (result.exit_code, result.stdout) == (0, "got a b\n")


async def working_directory(open_sandbox: OpenSandbox) -> None:
    """Commands start in the workspace; `cwd` is relative to it or absolute."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("a/b/file", b"")
        seen = [(await sandbox.run(["pwd"], cwd=cwd)).stdout.strip() for cwd in (None, "a/b", "/usr")]
        assert seen == [sandbox.workspace, f"{sandbox.workspace}/a/b", "/usr"]


async def missing_directory(open_sandbox: OpenSandbox) -> None:
    """A working directory that is missing or a file is an error of the caller that names it."""
    async with open_sandbox() as sandbox:
        await sandbox.write_file("file", b"")
        for cwd in ("not/there", "file"):
            error = await error_of(UsageError, sandbox.run(["pwd"], cwd=cwd))
            assert cwd in str(error)
        assert (await sandbox.run(["true"])).ok


async def environment(open_sandbox: OpenSandbox) -> None:
    """Commands have the spec's variables and override them with their own, which other commands do not see."""
    async with open_sandbox(env={"ONE": "spec", "TWO": "spec"}) as sandbox:
        line = 'echo "$ONE:$TWO:$THREE"'
        own = await sandbox.run(["sh", "-c", line], env={"TWO": "own", "THREE": "a=b\nc"})
        after = await shell(sandbox, line)
    assert (own.stdout, after.stdout) == ("spec:own:a=b\nc\n", "spec:spec:\n")


async def home_and_path(open_sandbox: OpenSandbox) -> None:
    """HOME is a writable directory, and PATH finds the system's commands."""
    async with open_sandbox() as sandbox:
        result = await shell(sandbox, 'f=$(mktemp "$HOME/.check.XXXXXX") && rm "$f" && command -v ls')
    assert result.ok, result.stderr
    assert result.stdout.strip().endswith("/ls")


async def nonsense(open_sandbox: OpenSandbox) -> None:
    """Invalid arguments are an error of the caller, and the sandbox stays usable."""
    async with open_sandbox() as sandbox:
        for argv in ([], "echo hello", [""], ["a\0b"], ["\ud800"], [1]):
            await error_of(UsageError, sandbox.run(argv))  # type: ignore[arg-type]  # on purpose
        for timeout_s in (0, -1, float("nan"), float("inf")):
            await error_of(UsageError, sandbox.run(["true"], timeout_s=timeout_s))
        for env in ({"": "x"}, {"A=B": "x"}, {"A": "\0"}):
            await error_of(UsageError, sandbox.run(["true"], env=env))
        await error_of(UsageError, sandbox.run(["true"], output_limit_bytes=-1))
        assert (await sandbox.run(["true"])).ok


CHECKS = (
    text_output,
    binary_output,
    split_characters,
    errors_apart,
    input_is_given,
    input_is_closed,
    input_that_is_not_read,
    large_input,
    large_arguments,
    too_large_argument,
    odd_arguments,
    exit_codes,
    codes_like_a_timeout,
    signals,
    default_signals,
    not_found,
    not_executable,
    script_without_interpreter,
    working_directory,
    missing_directory,
    environment,
    home_and_path,
    nonsense,
)
