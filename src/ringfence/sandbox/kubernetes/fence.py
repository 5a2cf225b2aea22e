"""A running pod with the guest in it: finds why it ended, and ends it."""

from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

import anyio

from ringfence.errors import RingfenceError
from ringfence.sandbox.base import EndReason, Facts, Fence
from ringfence.sandbox.container.hardened_container import SILENCE_LIMIT_S
from ringfence.sandbox.kubernetes.cluster_error import ClusterError
from ringfence.sandbox.kubernetes.failure import end_of
from ringfence.sandbox.kubernetes.pod import SandboxPod
from ringfence.sandbox.kubernetes.pod_stream import PodStream

_END_S = 20.0
_REPORT_S = 8.0
"""How long the cluster is given to report that the guest has ended; callers wait for ten seconds."""


@dataclass(eq=False)
class PodFence(Fence):
    """A running pod with the guest in it. The stream is not opened again: if it breaks, the sandbox ends."""

    facts: Facts
    stream: PodStream
    pod: SandboxPod
    is_owner: bool
    """Whether the pod ends with the fence; otherwise it belongs to the volume."""
    _is_killed: bool = False
    _is_deleted: bool = False
    _killing: anyio.Lock = field(default_factory=anyio.Lock)
    _left: str | None = None

    async def wait(self) -> EndReason:
        """Wait until the guest has ended, or nothing is known of it any more."""
        if self._is_killed:
            return EndReason("killed", "it was closed", self.stream.last_words)
        end = None
        try:
            with anyio.move_on_after(_REPORT_S):
                end = await self._reported_end()
        except RingfenceError as exc:
            end = EndReason("engine", f"the cluster is gone: {exc}")
        broken = self._broken()
        if end is None and self._is_deleted:
            end = EndReason("killed", "its pod was deleted from outside")
        elif end is None and broken is not None:
            end = EndReason("engine", f"{broken}; a stream is not opened again")
        elif end is None:
            end = EndReason("protocol", "the guest closed the stream and did not go")
        return replace(end, stderr=self.stream.last_words)

    async def _reported_end(self, *, ignores_lost_node: bool = False) -> EndReason | None:
        """Wait until the cluster reports that the guest has ended; None if the pod is deleted before.

        Args:
            ignores_lost_node: Whether a report that its node is lost does not count, as the guest may run there.
        """
        async with aclosing(self.pod.cluster.follow_pod(self.pod.name)) as states:
            async for pod in states:
                self._is_deleted = bool(pod["metadata"].get("deletionTimestamp"))
                end = end_of(pod)
                if end is not None and not (ignores_lost_node and end.reason == "node_lost"):
                    return end
        self._is_deleted = True
        return None

    def _broken(self) -> str | None:
        """Why the stream broke, if it did not end by itself; the guest may live, and cannot be reached any more."""
        end = self.stream.end
        return end.detail if end is not None and end.is_broken else None

    async def kill(self) -> str | None:
        """Close the stream, which ends the guest and with it all in its container; see that it has ended."""
        is_first, self._is_killed = not self._is_killed, True
        async with self._killing:  # a second caller waits until it is done
            if is_first:
                with anyio.CancelScope(shield=True):
                    await self._kill()
        return self._left

    async def _kill(self) -> None:
        try:
            await self.stream.aclose()
            if self.is_owner:
                with suppress(ClusterError):
                    await self.pod.delete()
            self._left = await self._await_end()
        finally:
            if self.is_owner:
                await self.pod.aclose()

    async def _await_end(self) -> str | None:
        """Wait until the node reports that the guest has ended, or the pod is gone, which it confirms, too."""
        why = f"no report within {_END_S:g} s"
        with anyio.move_on_after(_END_S):
            try:
                await self._reported_end(ignores_lost_node=True)
                return None
            except RingfenceError as exc:
                why = str(exc)
        return (
            f"pod {self.pod.name} in namespace {self.pod.cluster.namespace!r} may still run ({why}); its guest ends it "
            f"when it hears nothing for {SILENCE_LIMIT_S:g} s; look at its node, and once the cluster answers "
            "`ringfence gc` removes it"
        )
