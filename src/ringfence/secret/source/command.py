"""A secret that a program prints: a password manager's, a broker's."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed, InfrastructureFault
from ringfence.process import run_process
from ringfence.secret.credentials import environment_secrets
from ringfence.secret.redact import Redactor
from ringfence.secret.value import LIMIT_BYTES, SecretValue, read_value

_SAID_CHARS = 200


async def read_command(
    reference: SecretReference, environ: Mapping[str, str], where: str, *, lease: str
) -> SecretValue:
    """Read what a program prints. It runs in `/`, without a shell: no workspace steers it. Raises as `read_source`."""
    argv = command_line(reference.cmd or (), lease)
    return read_value(await printed(argv, where, environ=environ, timeout_s=reference.timeout), where)


def command_line(words: Sequence[str], lease: str) -> tuple[str, ...]:
    """The command with `~/` of the program and `{lease}` put in."""
    program, *rest = (word.replace("{lease}", lease) for word in words)
    return (os.path.expanduser(program) if program.startswith("~/") else program, *rest)  # noqa: PTH111


async def printed(argv: Sequence[str], where: str, *, environ: Mapping[str, str], timeout_s: float) -> bytes:
    """What a program prints, if it ends well.

    Raises:
        AuthenticationFailed: It fails, takes too long, or prints too much.
        InfrastructureFault: It cannot be started.
    """
    try:
        result = await run_process(
            argv,
            cwd=Path("/"),
            env=environ,
            timeout_s=timeout_s,
            output_limit_bytes=LIMIT_BYTES,
            stop_at_limit=True,
        )
    except InfrastructureFault as exc:
        advice = "" if "/" in argv[0] else ", or write its whole path"
        raise InfrastructureFault(f"{where} cannot be asked: {exc}{advice}") from exc
    if result.truncated:
        raise AuthenticationFailed(
            f"{where} prints more than {LIMIT_BYTES} bytes; let it print the secret alone"
        )
    if result.timed_out:
        raise AuthenticationFailed(
            f"{where} did not end in {timeout_s:g} s; it must not wait for anybody, or give it a longer `timeout`"
        )
    if result.exit_code != 0:
        said = _last_words(result.stderr, result.stdout, environ)
        raise AuthenticationFailed(f"{where} exited with {result.exit_code}{said}; try it by hand")
    return result.stdout


def _last_words(stderr: bytes, stdout: bytes, environ: Mapping[str, str]) -> str:
    """The end of what it complained of, without what it printed: that may be the secret."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return ""
    secrets = [line for line in stdout.decode("utf-8", "replace").split() if line]
    line = Redactor([*secrets, *environment_secrets(environ)]).redact(lines[-1].strip())
    return f" ({line[:_SAID_CHARS]!r})"
