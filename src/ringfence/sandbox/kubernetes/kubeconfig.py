"""Finds the cluster to use and its credentials: a kubeconfig's context, or the service account of the own pod.

Several files of `KUBECONFIG` are one, as for kubectl: a context, cluster or user is that of the first file that has one
of its name, taken whole, and its relative paths begin at that file.
"""

import base64
import json
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import lightkube.core.exceptions
import msgspec
import yaml  # type: ignore[import-untyped]  # its stubs are another package
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import Cluster, NameValue, User

from ringfence.errors import ConfigurationError, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.kubernetes.cluster_error import shown

_EXEC_VERSION = "client.authentication.k8s.io/v1"
_MOST_NAMES = 20
_UNKNOWN = {
    "cluster": {
        "proxy-url": "set HTTPS_PROXY in the environment",
        "tls-server-name": "name the server as its certificate does",
    },
    "user": dict.fromkeys(
        ("as", "as-groups", "as-uid", "as-user-extra"), "make a context whose user is that one"
    ),
}
"""What lightkube would ignore, and what to do instead."""


@frozen
class _File:
    path: Path
    document: Mapping[str, Any]
    config: KubeConfig

    def absolute(self, path: str | None) -> str | None:
        """A path in this file, which is relative to its directory."""
        return path and str(self.path.absolute().parent / path)


def find_cluster(context: str | None) -> SingleConfig:
    """Return the cluster of a kubeconfig's context.

    Args:
        context: Its name. None: the current context of the first kubeconfig that has one; without a kubeconfig, the
            service account of the pod that this process runs in.

    Raises:
        UsageError: No kubeconfig has the context, or there is nothing to choose from.
        ConfigurationError: A kubeconfig cannot be read, or its current context does not exist.
    """
    files = [_read(path) for path in _kubeconfigs() if path.is_file()]
    if context is None and not files and Path(SERVICE_ACCOUNT, "token").is_file():
        return _in_cluster()
    naming = next((file for file in files if file.config.current_context), None)
    name = context or (naming.config.current_context if naming else None)
    context_file = _first(files, "contexts", name)
    if context_file is not None and name is not None:
        return _resolve_context(files, context_file, name)
    names = sorted({name for file in files for name in file.config.contexts})
    known = f"known: {_listed(names)}" if names else f"none was found in {_places()}"
    if context is not None:
        raise UsageError(f"no kubeconfig has the context {context!r}; {known}")
    if naming is not None:
        raise ConfigurationError(
            f"no kubeconfig has its current-context {name!r}; name another with --engine; {known}",
            file=naming.path,
        )
    if not files:
        raise UsageError(f"no cluster is chosen: {_places()} does not exist; set KUBECONFIG")
    if not names:
        raise ConfigurationError(f"{_places()} has no contexts; name another file in KUBECONFIG")
    raise UsageError(
        f"no cluster is chosen: {_places()} has no current context; name one with --engine: {_listed(names)}"
    )


def _first(
    files: Sequence[_File], kind: Literal["contexts", "clusters", "users"], name: str | None
) -> _File | None:
    return next((file for file in files if name in getattr(file.config, kind)), None)


def _kubeconfigs() -> list[Path]:
    named = os.environ.get("KUBECONFIG")
    if named:
        return [Path(part).expanduser() for part in named.split(":") if part]
    return [Path.home() / ".kube/config"]


def _places() -> str:
    return " or ".join(repr(str(file)) for file in _kubeconfigs())


def _listed(names: list[str]) -> str:
    return shown(", ".join(names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")


def _read(path: Path) -> _File:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"it is no kubeconfig: {shown(str(exc))}", file=path) from exc
    except yaml.YAMLError as exc:
        # Its text repeats the line, in which there may be a token.
        mark, said = getattr(exc, "problem_mark", None), getattr(exc, "problem", None) or "it is not YAML"
        line = None if mark is None else mark.line + 1
        raise ConfigurationError(f"it is no kubeconfig: {shown(said)}", file=path, line=line) from None
    if not isinstance(document, dict | None):
        raise ConfigurationError("it is no kubeconfig: it is no mapping", file=path)
    # A file of several may be empty, or have only some of the lists.
    document = {**(document or {})}
    document |= {kind: document.get(kind) or [] for kind in ("clusters", "contexts", "users")}
    try:
        return _File(path, document, KubeConfig.from_dict(document, fname=path))
    except KeyError as exc:
        raise ConfigurationError(f"it is no kubeconfig: it has no {exc.args[0]!r}", file=path) from exc
    except (msgspec.ValidationError, TypeError) as exc:
        raise ConfigurationError(f"it is no kubeconfig: {shown(str(exc))}", file=path) from exc


def _check_fields(file: _File, kind: str, name: str) -> None:
    """Refuse what would have no effect: a connection made otherwise, or by another user, than the file says."""
    entries: Iterable[Mapping[str, Any]] = file.document[f"{kind}s"]
    fields: Mapping[str, Any] = {one["name"]: one[kind] for one in entries}[name]
    for field, advice in _UNKNOWN[kind].items():
        if field in fields:
            raise ConfigurationError(
                f"{kind} {name!r} has {field!r}, which ringfence does not support; {advice}", file=file.path
            )


def _resolve_context(files: Sequence[_File], context_file: _File, name: str) -> SingleConfig:
    context = context_file.config.contexts[name]
    cluster_file = _find_holder(files, context_file, name, "clusters", context.cluster)
    cluster = _cluster(cluster_file, name, context.cluster)
    user = User()  # the library takes none for a fault
    if context.user:
        user = _user(_find_holder(files, context_file, name, "users", context.user), name, context.user)
    return SingleConfig(name, context, cluster, user, context_file.path)


def _find_holder(
    files: Sequence[_File], context_file: _File, context: str, kind: Literal["clusters", "users"], name: str
) -> _File:
    holder = _first(files, kind, name)
    if holder is None:
        which = "it lacks" if len(files) == 1 else "no kubeconfig has"
        raise ConfigurationError(f"context {context!r} names {name!r}, which {which}", file=context_file.path)
    return holder


def _cluster(file: _File, context: str, name: str) -> Cluster:
    _check_fields(file, "cluster", name)
    cluster = file.config.clusters[name]
    if cluster.certificate_auth_data is not None:
        _check_authority(file.path, context, cluster.certificate_auth_data)
    return msgspec.structs.replace(cluster, certificate_auth=file.absolute(cluster.certificate_auth))


def _user(file: _File, context: str, name: str) -> User:
    _check_fields(file, "user", name)
    user = file.config.users[name]
    if (user.client_cert or user.client_cert_data) and not (user.client_key or user.client_key_data):
        raise ConfigurationError(
            f"the user of context {context!r} has a client certificate without a key", file=file.path
        )
    plugin = user.exec
    if plugin is not None:
        # The library does not say which version it takes, and knows only those before, whose answer has the same form.
        version = plugin.apiVersion
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        plugin = msgspec.structs.replace(
            plugin,
            apiVersion=f"{_EXEC_VERSION}beta1" if version == _EXEC_VERSION else version,
            env=[*(plugin.env or ()), NameValue(name="KUBERNETES_EXEC_INFO", value=json.dumps(asked))],
        )
        if "/" in plugin.command:  # a name alone is looked up in PATH
            plugin = msgspec.structs.replace(plugin, command=file.absolute(plugin.command))
    return msgspec.structs.replace(
        user,
        exec=plugin,
        token_file=file.absolute(user.token_file),
        client_cert=file.absolute(user.client_cert),
        client_key=file.absolute(user.client_key),
    )


def _check_authority(file: Path, name: str, data: str) -> None:
    """Refuse an authority that is none; the library would leave its temporary file open."""
    try:
        ssl.create_default_context(cadata=base64.b64decode(data, validate=True).decode())
    except (ValueError, ssl.SSLError) as exc:
        raise ConfigurationError(
            f"context {name!r} has a certificate-authority-data that is no certificate in base64: {shown(str(exc))}",
            file=file,
        ) from exc


def _in_cluster() -> SingleConfig:
    try:
        chosen = KubeConfig.from_service_account().get()
    except (lightkube.core.exceptions.ConfigError, KeyError, OSError) as exc:
        raise ConfigurationError(f"the service account of this pod cannot be used: {exc}") from exc
    assert chosen is not None
    return chosen
