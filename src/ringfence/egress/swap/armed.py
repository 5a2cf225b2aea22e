"""The swaps of one sandbox: placeholders for inside, and what stands for them outside. Wrong anywhere: no start."""

import base64
import binascii
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import anyio.to_thread

from ringfence.config.egress import Egress
from ringfence.config.swap import Swap
from ringfence.egress.proxy.decision import TLS_PORT, Rules, Wanted
from ringfence.egress.swap.authority import Authority, outward_context, system_authorities
from ringfence.errors import AuthenticationFailed, PolicyRefused
from ringfence.frozen import frozen
from ringfence.secret.redact import MINIMUM_LENGTH, Redactor
from ringfence.secret.value import SecretValue

AUTHORITIES_INSIDE = "/tmp/.ringfence/authorities.pem"  # noqa: S108 -- inside, where /tmp is the sandbox's own
"""Whom programs inside trust: this machine's authorities, and the sandbox's own."""

TRUST_VARIABLES = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE",
)  # fmt: skip
"""How programs are told of it."""

_LONGEST = 8192
Headers = list[tuple[bytes, bytes]]


class LentSecret(Protocol):
    """What is needed of a lease."""

    @property
    def values(self) -> tuple[str, ...]:
        """What must not come inside."""

    async def current(self) -> SecretValue:
        """The secret, as it is now."""


@frozen
class _Pair:
    swap: Swap
    placeholder: str
    lease: LentSecret


def check_swaps(egress: Egress, env: Mapping[str, str]) -> None:
    """See that each swap can have an effect, and means one thing.

    Args:
        egress: What is granted.
        env: The user's own variables for inside.

    Raises:
        PolicyRefused: A host is not allowed, or a variable is said twice.
    """
    rules = Rules(egress) if egress.swap else None
    for swap in egress.swap:
        assert rules is not None
        decision = rules.decide(Wanted(swap.host, TLS_PORT))
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


class ArmedSwaps:
    """Made by `armed`.

    Attributes:
        redactor: Takes every secret of them out of answers.
        outward: TLS to the real hosts.
        authority: Vouches for them inside.
        bundle: The file for `AUTHORITIES_INSIDE`.
    """

    def __init__(self, swaps: Sequence[Swap], leases: Mapping[str, LentSecret]) -> None:
        missing = [swap.secret for swap in swaps if swap.secret not in leases]
        if missing:
            raise AuthenticationFailed(
                f"egress.swap names secret {missing[0]!r}, which this run was not lent"
            )
        self._pairs = [
            _Pair(swap, f"ringfence-placeholder-{secrets.token_hex(16)}", leases[swap.secret])
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
        """Variables inside: the placeholders, and whom to trust."""
        trust = dict.fromkeys(TRUST_VARIABLES, AUTHORITIES_INSIDE)
        return {**trust, **{pair.swap.env: pair.placeholder for pair in self._pairs}}

    def is_about(self, wanted: Wanted) -> bool:
        """Whether a tunnel is taken apart: to exactly one of the hosts, on the port of TLS."""
        return wanted.is_tunnel and wanted.port == TLS_PORT and wanted.host in self._hosts

    async def filled(self, host: str, headers: Headers) -> tuple[Headers, list[str]]:
        """Headers with secrets in the place of the placeholders that are for `host`, and the names of these secrets.

        Raises:
            AuthenticationFailed, InfrastructureFault: A secret has ended, or cannot be had.
        """
        found = list(headers)
        names: list[str] = []
        for pair in self._pairs:
            for place, (name, value) in enumerate(found):
                if pair.swap.host != host or name != pair.swap.header.encode():
                    continue
                if not _holds(value, pair.placeholder):
                    continue
                secret = await self._secret(pair)
                found[place] = (name, _replaced(value, pair.placeholder, secret))
                names.append(pair.swap.secret)
        self.learn()
        return found, list(dict.fromkeys(names))

    async def look(self) -> None:
        """See that every secret is there and can stand in a header.

        Raises:
            AuthenticationFailed, InfrastructureFault: One is not.
        """
        for pair in self._pairs:
            await self._secret(pair)

    def learn(self) -> None:
        """Redact also what was renewed since."""
        self.redactor.learn(value for pair in self._pairs for value in pair.lease.values)

    def strays(self, path: str, headers: Headers) -> Iterator[tuple[str, str]]:
        """Secret and place of every placeholder that is left in a request."""
        for pair in self._pairs:
            if pair.placeholder in path:
                yield pair.swap.secret, "path"
            for name, value in headers:
                if _holds(value, pair.placeholder):
                    yield pair.swap.secret, name.decode("ascii", "replace")

    async def _secret(self, pair: _Pair) -> str:
        value = (await pair.lease.current()).text
        if not (MINIMUM_LENGTH <= len(value) <= _LONGEST and value.isascii() and value.isprintable()):
            raise AuthenticationFailed(
                f"secret {pair.swap.secret!r} cannot be swapped: it must be {MINIMUM_LENGTH} to {_LONGEST} printable "
                "ASCII characters, as stand in a header"
            )
        return value


async def armed(
    egress: Egress, leases: Mapping[str, LentSecret], env: Mapping[str, str] | None = None
) -> ArmedSwaps | None:
    """What a sandbox's swaps need, checked; None if it has none.

    Args:
        egress: What is granted.
        leases: The run's secrets, by name.
        env: The user's own variables for inside.

    Raises:
        PolicyRefused: As `check_swaps`.
        AuthenticationFailed, InfrastructureFault: A secret was not lent, has ended, or cannot stand in a header.
        ConfigurationError: This machine trusts nobody.
    """
    if not egress.swap:
        return None
    await anyio.to_thread.run_sync(check_swaps, egress, env or {})
    swaps = await anyio.to_thread.run_sync(ArmedSwaps, egress.swap, leases)
    await swaps.look()
    swaps.learn()
    return swaps


def _holds(value: bytes, placeholder: str) -> bool:
    return placeholder.encode() in value or placeholder.encode() in _basic(value)


def _replaced(value: bytes, placeholder: str, secret: str) -> bytes:
    plain = _basic(value)
    if placeholder.encode() in plain:
        return b"Basic " + base64.b64encode(plain.replace(placeholder.encode(), secret.encode(), 1))
    return value.replace(placeholder.encode(), secret.encode(), 1)


def _basic(value: bytes) -> bytes:
    """User and password of Basic authentication (RFC 7617); empty if it is none."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
