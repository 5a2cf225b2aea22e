"""A secret in the desktop's keyring, by the package `keyring`.

It is asked in a process of its own: a keyring may be locked and wait for somebody at a screen, its back ends load
what the user has configured, and neither can be stopped by anything but an end of the process.
"""

import importlib.util
import sys
from collections.abc import Mapping

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.source.command import printed
from ringfence.secret.value import SecretValue, read_value

_ASK = """\
import sys
import keyring, keyring.errors
try:
    found = keyring.get_password(sys.argv[1], sys.argv[2])
except keyring.errors.KeyringError as error:
    sys.exit(f"{type(error).__name__}: {error}".split(chr(10))[0])
sys.exit("there is no such entry") if found is None else sys.stdout.write(found)
"""


async def read_keyring(reference: SecretReference, environ: Mapping[str, str], where: str) -> SecretValue:
    """Read an entry of the keyring, which is named as SERVICE/USER. Raises as `read_source`."""
    if importlib.util.find_spec("keyring") is None:
        raise AuthenticationFailed(
            f"{where} needs the package keyring; install it: pip install 'ringfence[keyring]'"
        )
    service, _, user = (reference.keyring or "").rpartition("/")
    # -I: neither the current directory nor PYTHON* variables say what is imported.
    argv = (sys.executable, "-I", "-c", _ASK, service, user)
    return read_value(await printed(argv, where, environ=environ, timeout_s=reference.timeout), where)
