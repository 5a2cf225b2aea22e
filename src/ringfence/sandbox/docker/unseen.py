"""Engines that cannot be shown this machine's directories: they run elsewhere, or containers under other uids."""

from dataclasses import replace

from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Launch
from ringfence.sandbox.docker.client import Engine
from ringfence.sandbox.docker.create import stands_in_closed
from ringfence.sandbox.docker.facts import EngineFacts

_IDS_IN_A_NAMESPACE = 65_536
"""As many as shadow's `/etc/subuid` gives a user, and the engine a container, unless told otherwise."""
_ID_INSIDE = 1000


def shifts_ids(facts: EngineFacts) -> bool:
    """Whether a uid inside is another uid outside. Rootless Podman keeps ours."""
    return facts.has_user_namespace or (facts.is_rootless and not facts.is_podman)


def why_unseen(engine: Engine) -> str | None:
    """Why a directory cannot be mounted so that the sandbox's user may write it; None if it can."""
    if not engine.address.shares_files:
        return f"the engine at {engine.address} does not see this machine's files"
    if shifts_ids(engine.facts):
        return (
            f"{engine.facts.product} runs containers under other uids than ours (rootless, or userns-remap)"
        )
    return None


def check_files(engine: Engine, launch: Launch, *, is_gvisor: bool) -> None:
    """Refuse what would show a host directory through an engine that cannot.

    Raises:
        PolicyRefused: The engine is one, and it was not made ready for, or cannot be done.
    """
    placement, reason = launch.placement, why_unseen(engine)
    if not engine.address.shares_files and launch.spec.mounts:
        raise PolicyRefused(
            f"{reason}, so {str(launch.spec.mounts[0].source)!r} cannot be mounted; leave out the mounts, or put what "
            "they hold into the image or the workspace",
            rule="workspace-on-engine",
        )
    if placement.is_idmapped and is_gvisor:
        raise PolicyRefused(
            "workspace mode 'bind' is refused: it belongs to root, and gVisor opens files as root, who has no part in an"
            " idmapped mount; use mode 'clone', or --sandbox docker, podman or bubblewrap",
            rule="bind-owner",
        )
    if engine.facts.is_podman and stands_in_closed(placement):
        raise PolicyRefused(
            f"the workspace {str(placement.workspace)!r} lies in /root, which images keep closed to everybody but root, "
            "and Podman cannot cover it; move the project elsewhere, or use --sandbox docker or bubblewrap",
            rule="workspace-on-engine",
        )
    if placement.carry != "none" and engine.facts.is_podman:
        raise PolicyRefused(
            f"{reason}, and Podman does not take a workspace into a volume as Docker does; use Podman's socket on this "
            "machine, a Docker engine, or --sandbox bubblewrap",
            rule="workspace-on-engine",
        )
    if reason is not None and placement.workspace is not None and placement.carry == "none":
        raise PolicyRefused(
            f"{reason}, so the workspace cannot be mounted; use mode 'clone' or 'read_only', which are carried there",
            rule="workspace-on-engine",
        )


def with_ids_inside(launch: Launch, facts: EngineFacts) -> Launch:
    """The launch with a user that there is in the engine's namespace: who it is outside is the engine's choice."""
    placement = launch.placement
    if not shifts_ids(facts) or max(placement.uid, placement.gid) < _IDS_IN_A_NAMESPACE:
        return launch
    return replace(launch, placement=replace(placement, uid=_ID_INSIDE, gid=_ID_INSIDE))
