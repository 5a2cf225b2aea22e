"""A session with a Kubernetes cluster: requests, the states of a pod, and streams to its containers.

Objects are JSON as the Kubernetes API defines it (https://kubernetes.io/docs/reference/kubernetes-api/). Credentials are
those of the kubeconfig; no object that is sent holds them.
"""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

import aiohttp
import anyio
import httpx2
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from ringfence.errors import AuthenticationFailed, ConfigurationError
from ringfence.sandbox.kubernetes.cluster_error import ClusterError, refusal, shown
from ringfence.sandbox.kubernetes.kubeconfig import find_cluster
from ringfence.sandbox.kubernetes.pod_stream import PROTOCOLS, PodStream

_CALL_S = 30.0
_CONNECT_S = 10.0
_LIMITS = httpx2.Limits(keepalive_expiry=60.0)
"""A pod that waits for a run is looked up by a connection that is open."""
_WATCH_S = 300
"""Time after which the server ends a watch, which is then restarted."""
_BODY_BYTES = 8 * 1024**2
_RECEIVED_MESSAGE_BYTES = 4 * 1024**2
_REFUSAL_BYTES = 64 * 1024
_CLOSE_S = 1.0
_PLUGIN_FAULTS = (ConfigError, OSError, ValueError, KeyError, TypeError)
"""What lightkube raises for a plugin that is not there, fails, or prints something else than a credential."""
_UNREACHABLE = (
    "check that the cluster runs, the way there (network, proxy, VPN), and the certificate-authority"
)
_RECONNECTS, _RECONNECT_S = 20, 0.5


class Cluster:
    """A session with one cluster, in one namespace. Close it with `aclose`, or use it as a context.

    Attributes:
        context: Name of the kubeconfig's context.
        server: Address of the API server.
        namespace: Where everything is made.
    """

    def __init__(self, config: SingleConfig, namespace: str | None) -> None:
        self.context = config.context_name
        self.server = config.cluster.server
        self.namespace = namespace or config.namespace
        try:
            parameters = ConnectionParams(timeout=httpx2.Timeout(None, connect=_CONNECT_S)).httpx_params(
                config
            )
        except (OSError, ValueError, ConfigError) as exc:
            raise ConfigurationError(
                f"the credentials of context {self.context!r} cannot be used: {shown(str(exc))}",
                file=config.fname,
            ) from exc
        self._tls = parameters["verify"]
        if isinstance(self._tls, ssl.SSLContext):
            # Python 3.13 demands extensions that authorities of many clusters lack, and that kubectl does not demand.
            self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # What is compressed may be a thousand times larger than what was read: nothing is decompressed.
        self._http = httpx2.AsyncClient(**parameters, headers={"Accept-Encoding": "identity"}, limits=_LIMITS)
        self._streams: aiohttp.ClientSession | None = None
        self._is_accepted = False
        self._authorization: str | None = None
        """The header of the last request that was accepted; None where that was by certificate."""

    @property
    def name(self) -> str:
        """The cluster, for messages."""
        return f"the cluster of context {self.context!r} ({self.server})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session."""
        with anyio.CancelScope(shield=True):
            await self._http.aclose()
            if self._streams is not None:
                await self._streams.close()

    def path(self, resource: str, name: str = "", *, group: str = "api/v1") -> str:
        """The path of objects in the namespace: `path("pods", "web/attach")`."""
        path = f"/{group}/namespaces/{self.namespace}/{resource}"
        return f"{path}/{name}" if name else path

    # --- requests

    async def call(
        self,
        doing: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        accept: str = "application/json",
        timeout_s: float = _CALL_S,
    ) -> Any:
        """Send a request and return the parsed response.

        Args:
            doing: The purpose of the request, for errors: "create the pod".
            method: The HTTP method.
            path: As `path` gives it.
            params: Of the query.
            body: Sent as JSON.
            accept: The media type of the response, which is JSON.
            timeout_s: Time limit for the whole response.

        Raises:
            ClusterError: The cluster refuses, or cannot be reached in time.
            AuthenticationFailed: It does not accept the credentials, or they do not allow this.
        """
        content = None if body is None else json.dumps(body).encode()
        try:
            with anyio.fail_after(timeout_s):
                headers = {"Accept": accept, "Content-Type": "application/json"}
                async with self._opened(doing, method, path, params, content, headers) as response:
                    found = json.loads(await _read(doing, response))
        except TimeoutError as exc:
            raise ClusterError(doing, f"no answer within {timeout_s:g} s", status=None) from exc
        except (ValueError, RecursionError) as exc:
            raise ClusterError(doing, "it did not answer with JSON", status=None) from exc
        if not isinstance(found, dict):
            raise ClusterError(doing, "it did not answer with an object", status=None)
        return found

    @asynccontextmanager
    async def _opened(
        self,
        doing: str,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(None, connect=_CONNECT_S, read=silence_s)
        request = self._http.build_request(
            method, path, params=params, content=content, headers=headers, timeout=timeout
        )
        try:
            response = await self._http.send(request, stream=True)
        except httpx2.HTTPError as exc:
            why = f"{self.name} cannot be reached: {_cause(exc)}"
            raise ClusterError(doing, why, status=None, advice=_UNREACHABLE) from exc
        except _PLUGIN_FAULTS as exc:
            why = "it printed no token" if isinstance(exc, KeyError | TypeError) else shown(str(exc))
            raise AuthenticationFailed(
                f"could not {doing}: the plugin of the kubeconfig's context {self.context!r} gives no credentials: "
                f"{why}; log in anew, and test them with `kubectl get pods`"
            ) from exc
        try:
            if response.status_code >= 300:
                said = await _read(doing, response)
                raise refusal(doing, response.status_code, said, name=self.name, namespace=self.namespace)
            self._is_accepted = True
            self._authorization = response.request.headers.get("Authorization")
            yield response
        except httpx2.HTTPError as exc:
            raise ClusterError(doing, f"{self.name}: {_cause(exc)}", status=None) from exc
        finally:
            await response.aclose()

    # --- pods

    async def follow_pod(self, name: str) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield a pod as it is, and whenever it has changed; end when it is deleted.

        It holds a connection: a caller that does not follow it to its end closes it (`contextlib.aclosing`).

        Where a watch cannot be read, the pod is looked up twice a second.

        Raises:
            ClusterError: The cluster cannot be reached for ten seconds.
        """
        doing, failures = f"follow pod {name!r}", 0
        while True:
            try:
                pod = await self.call(doing, "GET", self.path("pods", name))
                failures = 0
                yield pod
                async with aclosing(self._changes(doing, pod)) as changes:
                    async for kind, pod in changes:
                        if kind == "DELETED":
                            return
                        yield pod
            except ClusterError as exc:
                failures += 1
                if exc.is_absent:
                    return
                if exc.is_refusal or failures > _RECONNECTS:
                    raise
                await anyio.sleep(_RECONNECT_S)

    async def _changes(
        self, doing: str, pod: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[str, Mapping[str, Any]]]:
        """Yield events on a pod; end when the server ends the watch, or no longer knows the pod's version."""
        metadata = pod["metadata"]
        params = {
            "watch": "1",
            "fieldSelector": f"metadata.name={metadata['name']}",
            "resourceVersion": metadata["resourceVersion"],
            "timeoutSeconds": _WATCH_S,
        }
        silence_s = _WATCH_S + _CALL_S  # the server ends it before, unless the connection is dead
        async with self._opened(doing, "GET", self.path("pods"), params, silence_s=silence_s) as response:
            async for line in _lines(doing, response):
                try:
                    event = json.loads(line)
                    kind, changed = event["type"], event["object"]
                    is_same = kind != "ERROR" and changed["metadata"]["uid"] == metadata["uid"]
                except (ValueError, KeyError, TypeError, RecursionError) as exc:
                    raise ClusterError(doing, "it sent what is no event", status=None) from exc
                if kind == "ERROR":
                    return
                if is_same:
                    yield kind, changed

    async def open_stream(
        self, doing: str, pod: str, container: str, *, argv: Sequence[str] | None = None
    ) -> PodStream:
        """Attach to a container's first process, or run a command in the container.

        Args:
            doing: The purpose, for errors.
            pod: Name of the pod.
            container: Name of the container, which runs.
            argv: The command; None: attach.

        Raises:
            ClusterError: The cluster refuses, or cannot be reached in time.
        """
        path = self.path("pods", f"{pod}/{'attach' if argv is None else 'exec'}")
        params = [("container", container), ("stdin", "1"), ("stdout", "1"), ("stderr", "1")]
        params += [("command", word) for word in argv or ()]
        if self._streams is None:
            self._streams = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or False),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                trust_env=True,
                raise_for_status=_raise_for_status,
                trace_configs=[_no_redirect()],
                auto_decompress=False,
            )
        if not self._is_accepted:
            await self._renew_credentials(doing, pod)
        try:
            with anyio.fail_after(_CALL_S):
                try:
                    socket = await self._connect(path, params)
                except _Refused as exc:
                    if exc.status != 401:
                        raise
                    await self._renew_credentials(doing, pod)
                    socket = await self._connect(path, params)
        except _Refused as exc:
            raise refusal(doing, exc.status, exc.body, name=self.name, namespace=self.namespace) from None
        except (aiohttp.ClientError, OSError) as exc:
            said = str(exc) or f"no answer within {_CALL_S:g} s"
            raise ClusterError(doing, f"{self.name}: {said}", status=None) from exc
        if socket.protocol not in PROTOCOLS:
            await socket.close()
            raise ClusterError(
                doing, "the server speaks neither v4 nor v5 of the stream protocol", status=None
            )
        return PodStream(socket)

    async def _connect(self, path: str, params: list[tuple[str, str]]) -> aiohttp.ClientWebSocketResponse:
        assert self._streams is not None
        return await self._streams.ws_connect(
            self.server.rstrip("/") + path,
            params=params,
            headers={"Authorization": self._authorization} if self._authorization else {},
            protocols=PROTOCOLS,
            max_msg_size=_RECEIVED_MESSAGE_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
        )

    async def _renew_credentials(self, doing: str, pod: str) -> None:
        """Send a request, which asks the plugin or reads the token's file if the last token is not accepted."""
        await self.call(doing, "GET", self.path("pods", pod))


async def open_cluster(context: str | None = None, namespace: str | None = None) -> Cluster:
    """Open a session; it connects with the first request.

    Args:
        context: The kubeconfig's context; None: as `find_cluster`.
        namespace: None: that of the context.

    Raises:
        UsageError, ConfigurationError: As `find_cluster`.
    """
    return Cluster(find_cluster(context), namespace)


class _Refused(Exception):
    """A WebSocket was refused: aiohttp's own error lacks the body, in which the cluster says why."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body


def _no_redirect() -> aiohttp.TraceConfig:
    """Refuse redirects, which aiohttp would follow: the stream, and a client certificate, would go to another server."""

    async def refuse(
        _session: object, _context: object, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        redirect.response.close()
        raise _Refused(redirect.response.status, b"it redirects to another address, which is not followed")

    found = aiohttp.TraceConfig()
    found.on_request_redirect.append(refuse)
    return found


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    body = b""
    with suppress(aiohttp.ClientError, OSError):
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > _REFUSAL_BYTES:
                break
    raise _Refused(response.status, body[:_REFUSAL_BYTES])


async def _lines(doing: str, response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the lines of a response, each of bounded size."""
    rest = bytearray()
    async for chunk in response.aiter_raw():
        rest += chunk
        *lines, rest = rest.split(b"\n") if b"\n" in chunk else [rest]
        for line in lines:
            if line.strip():
                yield bytes(line)
        if len(rest) > _BODY_BYTES:
            raise ClusterError(doing, f"an object is larger than {_BODY_BYTES} bytes", status=None)


async def _read(doing: str, response: httpx2.Response) -> bytes:
    parts, size = [], 0
    async for chunk in response.aiter_raw():
        parts.append(chunk)
        size += len(chunk)
        if size > _BODY_BYTES:
            raise ClusterError(doing, f"the response is larger than {_BODY_BYTES} bytes", status=None)
    return b"".join(parts)


def _cause(error: BaseException) -> str:
    """What a connection failed for; the library's own text may be empty."""
    while not str(error) and error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
