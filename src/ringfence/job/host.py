"""What the bare host cannot give: asked for together with it, it is refused."""

from collections.abc import Sequence

from ringfence.errors import PolicyRefused
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.base import Traits
from ringfence.sandbox.enforcement import unenforceable


def check_host(spec: SandboxSpec, traits: Traits, protect: Sequence[str]) -> None:
    """Refuse what somebody asked for and no one would enforce.

    Raises:
        PolicyRefused: The host backend with a limit, a mount, a protected path or a mode.
    """
    asked = [f"sandbox.{name}" for name in sorted(unenforceable(spec, traits.unenforced))]
    asked += ["sandbox.mounts"] if spec.mounts else []
    asked += ["sandbox.protect"] if protect else []
    if asked:
        raise PolicyRefused(
            f"the host backend has no fence and cannot enforce {', '.join(asked)}; leave it out, "
            "accept a watchdog for limits with --soft-limits, or use --sandbox bubblewrap",
            rule="host-unenforced",
        )
