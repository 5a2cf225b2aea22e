"""Injects secrets into requests: processes inside have a placeholder, which the gate replaces for one host only."""

import base64
import binascii
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import anyio.to_thread

from ringfence.config.egress import Egress, Swap
from ringfence.egress.injection.authority import Authority, outward_context, system_authorities
from ringfence.egress.proxy.decision import TLS_PORT, Rules, Target
from ringfence.errors import AuthenticationFailed, PolicyRefused
from ringfence.frozen import frozen
from ringfence.secret.redact import MINIMUM_LENGTH, Redactor
from ringfence.secret.value import SecretValue

AUTHORITIES_INSIDE = "/tmp/.ringfence/authorities.pem"  # noqa: S108 -- inside, where /tmp is the sandbox's own
"""The authorities that programs inside trust: this machine's, and the sandbox's own."""

TRUST_VARIABLES = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
)  # fmt: skip
"""Variables by which programs find that file."""

_MAXIMUM_LENGTH = 8192
Headers = list[tuple[bytes, bytes]]


class LeasedSecret(Protocol):
    """The part of a lease that the injector uses."""

    @property
    def values(self) -> tuple[str, ...]:
        """The texts that must not reach the sandbox."""

    async def current(self) -> SecretValue:
        """The current secret."""


@frozen
class _Injection:
    swap: Swap
    placeholder: str
    lease: LeasedSecret

    async def value(self) -> str:
        """The current secret.

        Raises:
            AuthenticationFailed, InfrastructureFault: It is not available, or does not fit in a header.
        """
        value = (await self.lease.current()).text
        if not (MINIMUM_LENGTH <= len(value) <= _MAXIMUM_LENGTH and value.isascii() and value.isprintable()):
            raise AuthenticationFailed(
                f"secret {self.swap.secret!r} cannot be injected: it must be {MINIMUM_LENGTH} to {_MAXIMUM_LENGTH} "
                "printable ASCII characters, as fit in a header"
            )
        return value

    def is_for(self, host: str, header: bytes) -> bool:
        """Whether the secret is for this host and header (in lower case)."""
        return self.swap.host == host and self.swap.header.encode() == header


class Injector:
    """The injections of one sandbox. `prepare_injector` creates it.

    Attributes:
        redactor: Removes every injected secret from responses.
        outward: The TLS context for the real hosts.
        authority: Certifies the same hosts inside.
        bundle: The content of `AUTHORITIES_INSIDE`.
    """

    def __init__(self, swaps: Sequence[Swap], leases: Mapping[str, LeasedSecret]) -> None:
        missing = [swap.secret for swap in swaps if swap.secret not in leases]
        if missing:
            raise AuthenticationFailed(
                f"egress.swap names secret {missing[0]!r}, which this run has not leased"
            )
        self._injections = [
            _Injection(swap, f"ringfence-placeholder-{secrets.token_hex(16)}", leases[swap.secret])
            for swap in swaps
        ]
        self._hosts = sorted({swap.host for swap in swaps})
        known = system_authorities()
        self.redactor = Redactor()
        self.authority = Authority(self._hosts)
        self.outward = outward_context(known)
        self.bundle = known.rstrip().encode() + b"\n" + self.authority.certificate_pem

    @property
    def environment(self) -> dict[str, str]:
        """Variables for processes inside: the placeholders, and the path of the file of authorities."""
        trust = dict.fromkeys(TRUST_VARIABLES, AUTHORITIES_INSIDE)
        return {**trust, **{one.swap.env: one.placeholder for one in self._injections}}

    def intercepts(self, target: Target) -> bool:
        """Whether a tunnel is decrypted: only tunnels to exactly one of the hosts on the TLS port are."""
        return target.is_tunnel and target.port == TLS_PORT and target.host in self._hosts

    async def inject(self, host: str, headers: Headers) -> tuple[Headers, list[str]]:
        """Replace the placeholders for `host`; return the headers and the names of the injected secrets.

        Raises:
            AuthenticationFailed, InfrastructureFault: A secret has expired, or is not available.
        """
        found = list(headers)
        names: dict[str, None] = {}
        for one in self._injections:
            for index, (name, value) in enumerate(found):
                if one.is_for(host, name) and _contains(value, one.placeholder):
                    found[index] = (name, _replace(value, one.placeholder, await one.value()))
                    names[one.swap.secret] = None
        self._learn()
        return found, list(names)

    async def check(self) -> None:
        """Check that every secret is available and fits in a header.

        Raises:
            AuthenticationFailed, InfrastructureFault: A secret is not available, or does not fit.
        """
        for one in self._injections:
            await one.value()
        self._learn()

    def find_strays(self, path: str, headers: Headers) -> Iterator[tuple[str, str]]:
        """Yield the secret and the location of every placeholder that remains in a request."""
        for one in self._injections:
            if one.placeholder in path:
                yield one.swap.secret, "path"
            for name, value in headers:
                if _contains(value, one.placeholder):
                    yield one.swap.secret, name.decode("ascii", "replace")

    def _learn(self) -> None:
        """Let the redactor also find renewed secrets."""
        self.redactor.learn(value for one in self._injections for value in one.lease.values)


async def prepare_injector(
    egress: Egress, leases: Mapping[str, LeasedSecret], env: Mapping[str, str] | None = None
) -> Injector | None:
    """Create and check the injector of a sandbox; None if `egress` has no injections.

    Args:
        egress: The egress rules.
        leases: The run's secrets, by name.
        env: The user's own variables for inside.

    Raises:
        PolicyRefused: A host is not allowed, or a variable is set twice.
        AuthenticationFailed, InfrastructureFault: A secret is not leased, has expired, or does not fit in a header.
        ConfigurationError: This machine has no trusted authorities.
    """
    if not egress.swap:
        return None
    await anyio.to_thread.run_sync(_check_policy, egress, env or {})
    injector = await anyio.to_thread.run_sync(Injector, egress.swap, leases)
    await injector.check()
    return injector


def _check_policy(egress: Egress, env: Mapping[str, str]) -> None:
    """Check that each injection has an effect, and that no variable is set twice."""
    rules = Rules(egress)
    for swap in egress.swap:
        decision = rules.decide(Target(swap.host, TLS_PORT))
        if not decision.is_allowed:
            raise PolicyRefused(
                f"egress.swap gives {swap.secret!r} to {swap.host}, which is refused: {decision.reason}; "
                f"{decision.remedy}, or take the swap out",
                rule="egress-swap",
            )
        if swap.env in env:
            raise PolicyRefused(
                f"both sandbox.env and egress.swap set {swap.env!r} inside; leave one out", rule="egress-swap"
            )


def _contains(value: bytes, placeholder: str) -> bool:
    return placeholder.encode() in value or placeholder.encode() in _basic(value)


def _replace(value: bytes, placeholder: str, secret: str) -> bytes:
    plain = _basic(value)
    if placeholder.encode() in plain:
        return b"Basic " + base64.b64encode(plain.replace(placeholder.encode(), secret.encode(), 1))
    return value.replace(placeholder.encode(), secret.encode(), 1)


def _basic(value: bytes) -> bytes:
    """Return user and password of Basic authentication (RFC 7617); empty for other headers."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
