"""Reads secrets from their sources: a variable, a file, a command, the desktop's keyring, an age-encrypted file.

No error message shows a secret or a part of one.

A file that other users may write is refused, because they could replace the secret and observe its use. A file that
other users may read is used with a warning, because container engines and systemd often mount secrets that way.
Symbolic links are followed, because such mounts consist of them; the permissions checked are those of the opened file.
"""

import errno
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio import to_thread

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed, InfrastructureFault
from ringfence.process import run_process
from ringfence.secret.credential import CODEX_LOGIN, KnownSecret
from ringfence.secret.redact import Redactor, environment_secrets
from ringfence.secret.value import LIMIT_BYTES, SecretValue, jwt_expiry, parse_value

_STDERR_CHARS = 200

# A locked keyring waits for the user, and its back ends load the user's plugins. Only the end of the process stops
# either, so the keyring is read in a process of its own.
_READ_KEYRING = """\
import sys
import keyring, keyring.errors
try:
    found = keyring.get_password(sys.argv[1], sys.argv[2])
except keyring.errors.KeyringError as error:
    sys.exit(f"{type(error).__name__}: {error}".split(chr(10))[0])
sys.exit("there is no such entry") if found is None else sys.stdout.write(found)
"""


async def read_source(secret: KnownSecret, environ: Mapping[str, str], *, lease: str = "") -> SecretValue:
    """Read the current value of a secret.

    Args:
        secret: The secret to read.
        environ: The environment that variables are read from and that commands inherit.
        lease: The id that `{lease}` in a command stands for.

    Raises:
        AuthenticationFailed: The secret is not available; the text names it, its source and the next step.
        InfrastructureFault: The source cannot be reached or started; another attempt may succeed.
    """
    reference, where = secret.reference, secret.where
    if secret.name == CODEX_LOGIN:
        return await to_thread.run_sync(_read_codex_login, secret)
    match reference.kind:
        case "env":
            return _read_environment(reference, environ, where)
        case "file":
            return await to_thread.run_sync(_read_file, reference, where)
        case "cmd":
            argv = command_line(reference.cmd or (), lease)
            return parse_value(await _run(argv, where, environ, reference.timeout), where)
        case "keyring":
            return await _read_keyring(reference, environ, where)
        case "age":
            return await to_thread.run_sync(_read_age, reference, where)


def command_line(words: Sequence[str], lease: str) -> tuple[str, ...]:
    """Return the command with `~/` at the start of its program expanded and `{lease}` replaced."""
    program, *rest = (word.replace("{lease}", lease) for word in words)
    return (os.path.expanduser(program) if program.startswith("~/") else program, *rest)  # noqa: PTH111


async def read_login_copy(secret: KnownSecret) -> bytes | None:
    """Return a copy of a Codex login's file without its refresh token.

    Renewing a login invalidates the old refresh token, so a holder of the token could end the user's login.

    Returns:
        The content of the copy; None if the secret is not a Codex login.

    Raises:
        AuthenticationFailed: The file does not hold a login.
    """
    if secret.name != CODEX_LOGIN:
        return None
    document, _ = await to_thread.run_sync(_read_codex_file, secret)
    if _tokens(document):
        document["tokens"] = {**_tokens(document), "refresh_token": ""}
    return json.dumps(document, indent=2).encode()


def _read_environment(reference: SecretReference, environ: Mapping[str, str], where: str) -> SecretValue:
    value = environ.get(reference.env or "", "")
    if not value.strip():
        raise AuthenticationFailed(f"{where} is not set; export {reference.env}, or name another source")
    return parse_value(value.encode("utf-8", "surrogateescape"), where)


def _read_file(reference: SecretReference, where: str) -> SecretValue:
    assert reference.path is not None
    raw, warnings = _read_secret_file(reference.path, where)
    return replace(parse_value(raw, where), warnings=warnings)


def _read_secret_file(path: Path, where: str) -> tuple[bytes, tuple[str, ...]]:
    """Return at most one byte more than allowed of a secret's file, and warnings about the file."""
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            warnings = _check_file(os.fstat(descriptor), path, where)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read(LIMIT_BYTES + 1), warnings
        finally:
            os.close(descriptor)
    except OSError as exc:
        is_missing = exc.errno == errno.ENOENT
        advice = "write it there, or name another" if is_missing else "make it readable for you"
        raise AuthenticationFailed(
            f"{where}: {str(path)!r} cannot be read: {exc.strerror}; {advice}"
        ) from exc


def _check_file(status: os.stat_result, path: Path, where: str) -> tuple[str, ...]:
    if not stat.S_ISREG(status.st_mode):
        raise AuthenticationFailed(
            f"{where}: {str(path)!r} is not a regular file; name one, or a command that prints the secret"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise AuthenticationFailed(
            f"{where}: other users can write {str(path)!r}; restrict it to yourself (chown, chmod 600)"
        )
    if status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return (f"other users can read {str(path)!r}, which holds a secret; run chmod 600 on it if you can",)
    return ()


def _read_codex_login(secret: KnownSecret) -> SecretValue:
    """Return the access token or the API key in Codex's `auth.json`, which only Codex itself renews."""
    document, warnings = _read_codex_file(secret)
    tokens = _tokens(document)
    access, key = tokens.get("access_token"), document.get("OPENAI_API_KEY")
    if isinstance(access, str) and access:
        others = [tokens.get(name) for name in ("refresh_token", "id_token")]
        companions = tuple(token for token in others if isinstance(token, str) and token)
        account = tokens.get("account_id")
        account_id = account if isinstance(account, str) else ""
        return SecretValue(access, jwt_expiry(access), companions, account_id, warnings=warnings)
    if isinstance(key, str) and key:
        return SecretValue(key, is_key=True, warnings=warnings)
    raise AuthenticationFailed(f"{secret.where} holds no login; run `codex login`")


def _read_codex_file(secret: KnownSecret) -> tuple[dict[str, Any], tuple[str, ...]]:
    path = secret.reference.path
    if path is None or secret.reference.kind != "file":
        raise AuthenticationFailed(f"{secret.where}: a Codex login is a file; write file:/PATH/auth.json")
    raw, warnings = _read_secret_file(path, secret.where)
    try:
        document = json.loads(raw) if len(raw) <= LIMIT_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise AuthenticationFailed(f"{secret.where} is not Codex's auth.json; run `codex login`")
    return document, warnings


def _tokens(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tokens = document.get("tokens")
    return tokens if isinstance(tokens, Mapping) else {}


async def _run(argv: Sequence[str], where: str, environ: Mapping[str, str], timeout_s: float) -> bytes:
    """Return the output of a program, which runs in `/` without a shell so that no workspace influences it."""
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
        advice = "" if "/" in argv[0] else ", or write its full path"
        raise InfrastructureFault(f"{where} cannot be read: {exc}{advice}") from exc
    if result.truncated:
        raise AuthenticationFailed(
            f"{where} prints more than {LIMIT_BYTES} bytes; let it print the secret alone"
        )
    if result.timed_out:
        raise AuthenticationFailed(
            f"{where} did not end in {timeout_s:g} s; it must not wait for input; or set a longer `timeout`"
        )
    if result.exit_code != 0:
        detail = _last_error_line(result.stderr, result.stdout, environ)
        raise AuthenticationFailed(f"{where} exited with {result.exit_code}{detail}; try it by hand")
    return result.stdout


def _last_error_line(stderr: bytes, stdout: bytes, environ: Mapping[str, str]) -> str:
    """Return the last line of stderr without the words that are also in stdout, since one may be the secret."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return ""
    printed = stdout.decode("utf-8", "replace").split()
    line = Redactor([*printed, *environment_secrets(environ)]).redact(lines[-1].strip())
    return f" ({line[:_STDERR_CHARS]!r})"


async def _read_keyring(reference: SecretReference, environ: Mapping[str, str], where: str) -> SecretValue:
    if importlib.util.find_spec("keyring") is None:
        raise AuthenticationFailed(
            f"{where} needs the package keyring; install it: pip install 'ringfence[keyring]'"
        )
    service, _, user = (reference.keyring or "").rpartition("/")
    # -I: neither the current directory nor PYTHON* variables decide what is imported.
    argv = (sys.executable, "-I", "-c", _READ_KEYRING, service, user)
    return parse_value(await _run(argv, where, environ, reference.timeout), where)


def _read_age(reference: SecretReference, where: str) -> SecretValue:
    """Decrypt a file with an identity; warnings in the result concern the identity's file."""
    if importlib.util.find_spec("pyrage") is None:
        raise AuthenticationFailed(
            f"{where} needs the package pyrage; install it: pip install 'ringfence[age]'"
        )
    import pyrage

    assert reference.path is not None
    assert reference.identity is not None
    identity = reference.identity.expanduser()
    encrypted, _ = _read_secret_file(reference.path, where)
    if len(encrypted) > LIMIT_BYTES:
        raise AuthenticationFailed(f"{where} is larger than {LIMIT_BYTES} bytes; put one secret in it")
    raw, warnings = _read_secret_file(identity, where)
    identities = _parse_identities(raw, identity, where)
    try:
        decrypted = pyrage.decrypt(encrypted, identities)
    except pyrage.DecryptError as exc:
        raise AuthenticationFailed(
            f"{where} cannot be opened with {str(identity)!r}: {exc}; name the identity it is for"
        ) from exc
    return replace(parse_value(decrypted, where), warnings=warnings)


def _parse_identities(raw: bytes, file: Path, where: str) -> list[Any]:
    import pyrage

    try:
        if raw.startswith(b"-----BEGIN"):
            return [pyrage.ssh.Identity.from_buffer(raw)]
        lines = [line.strip() for line in raw.decode("ascii").splitlines()]
        found = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (pyrage.IdentityError, UnicodeDecodeError):
        found = []
    if not found:
        # The cause is suppressed, because the library's own error may quote the line.
        raise AuthenticationFailed(
            f"{where}: {str(file)!r} holds no age identity and no unencrypted SSH key; make one with age-keygen"
        ) from None
    return found
