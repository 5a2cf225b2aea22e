"""The secrets that a run is lent: the model's credential, and those that are put inside by name."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.secret import Credential, KnownSecret, Lease, Provider

Tell = Callable[[str], None]
"""Is told what a person should know, in a line."""


@frozen
class Lent:
    """What a run is lent."""

    models: "tuple[Lease, ...]" = ()
    """The credentials for models, one for each provider that can be asked."""
    credentials: "tuple[Credential, ...]" = ()
    """As they are now, in the same order."""
    injected: "tuple[Lease, ...]" = ()
    """Those put inside."""
    swapped: "tuple[Lease, ...]" = ()
    """Those that the gate puts into requests."""

    @property
    def leases(self) -> "tuple[Lease, ...]":
        """All of them, once."""
        return tuple(dict.fromkeys((*self.models, *self.injected, *self.swapped)))

    @property
    def renewals(self) -> "dict[Provider, Callable[[], Awaitable[Credential]]]":
        """What gives each provider's credential as it is then."""
        pairs = zip(self.credentials, self.models, strict=True)
        return {credential.provider: lease.credential for credential, lease in pairs}


@asynccontextmanager
async def lent_to_run(
    effective: "Effective",
    workspace: Path,
    *,
    tell: Tell,
    model: "Provider | None" = None,
    others: bool = False,
) -> AsyncIterator[Lent]:
    """Lend a run what it needs, until the context is left.

    Args:
        effective: Says where secrets are, and whether any are put inside.
        workspace: Where the agent works: no secret is read from there.
        tell: Is told what is amiss about where a secret is kept, or with giving it back.
        model: Whose model the run itself calls; None: nobody's.
        others: Whether those inside may ask models, of any provider for which there is a credential.

    Raises:
        AuthenticationFailed: The run's own credential, or one of `egress.swap`, is missing, has ended or cannot be
            had, or none can.
        PolicyRefused: One lies in the workspace.
        InfrastructureFault: A source cannot be reached.
    """
    from ringfence.config.paths import state_dir
    from ringfence.secret import credential_of, known_secrets, lease_secrets

    wants_inside = effective.settings.auth == "inject"
    if model is None and not others and not wants_inside and not effective.settings.egress.swap:
        yield Lent()
        return
    known = known_secrets(effective.settings.secrets)
    needed = [credential_of(model, known)] if model is not None else []
    found = one_each(known) if others or wants_inside else []
    needed += [secret for secret in found if others and secret.provider != model]
    inside = found if wants_inside else []
    swapped = _swapped(effective, known)
    for secret in (*needed, *inside, *swapped):
        refuse_in(workspace, secret)
    required = [secret.name for secret in needed if secret.provider == model]
    required += [secret.name for secret in swapped]
    async with lease_secrets(
        (*needed, *inside, *swapped), state=state_dir(), warn=tell, required=required
    ) as leases:
        models = tuple(leases[secret.name] for secret in needed if secret.name in leases)
        credentials = tuple([await lease.credential() for lease in models])
        yield Lent(
            models,
            credentials,
            tuple(leases[secret.name] for secret in inside if secret.name in leases),
            tuple(leases[secret.name] for secret in swapped),
        )


def _swapped(effective: "Effective", known: "dict[str, KnownSecret]") -> "list[KnownSecret]":
    """The secrets of `egress.swap`.

    Raises:
        AuthenticationFailed: The configuration does not say where one is.
    """
    from ringfence.errors import AuthenticationFailed

    names = [swap.secret for swap in effective.settings.egress.swap]
    for name in names:
        if name not in known:
            raise AuthenticationFailed(
                f"egress.swap names secret {name!r}, and nothing says where it is; add it under `secrets:`"
            )
    return [known[name] for name in names]


def one_each(known: "dict[str, KnownSecret]") -> "list[KnownSecret]":
    """The credential of each provider for which there is one.

    Raises:
        AuthenticationFailed: There is none at all.
    """
    from ringfence.secret import credential_of, credentials_of

    found = [
        mine[0] for mine in (credentials_of("anthropic", known), credentials_of("openai", known)) if mine
    ]
    return found or [credential_of("anthropic", known)]


def refuse_in(workspace: Path, secret: "KnownSecret") -> None:
    """See that a secret is not kept where the agent could read it.

    Raises:
        PolicyRefused: It is.
    """
    from ringfence.errors import PolicyRefused

    path = secret.reference.path
    if path is not None and path.resolve().is_relative_to(workspace.resolve()):
        raise PolicyRefused(
            f"secret {secret.name!r} ({secret.reference}) lies in the workspace, where the agent can read it; "
            "move it elsewhere",
            rule="secret-in-workspace",
        )
