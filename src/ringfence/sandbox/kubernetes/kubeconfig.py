"""Finds the cluster to use and its credentials: a kubeconfig's context, or the service account of the own pod."""

import base64
import json
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lightkube.core.exceptions
import msgspec
import yaml  # type: ignore[import-untyped]  # its stubs are another package
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import NameValue, User

from ringfence.errors import ConfigurationError, UsageError
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


def find_cluster(context: str | None) -> SingleConfig:
    """Return the cluster of a kubeconfig's context.

    Args:
        context: Its name. None: the current context of the first kubeconfig that has one; without a kubeconfig, the
            service account of the pod that this process runs in.

    Raises:
        UsageError: No kubeconfig has the context, or there is nothing to choose from.
        ConfigurationError: A kubeconfig cannot be read.
    """
    files = [file for file in _kubeconfigs() if file.is_file()]
    documents = {file: _read(file) for file in files}
    configs = {file: _parse(file, document) for file, document in documents.items()}
    for file, config in configs.items():
        name = context or config.current_context
        if name is not None and name in config.contexts:
            return _chosen(file, documents[file], config, name)
    known = sorted({name for config in configs.values() for name in config.contexts})
    if context is not None:
        raise UsageError(
            f"no kubeconfig has the context {context!r}; "
            + (f"known: {_listed(known)}" if known else f"none was found in {_places()}")
        )
    if not files and Path(SERVICE_ACCOUNT, "token").is_file():
        return _in_cluster()
    raise UsageError(
        f"no cluster is chosen: {_places()} "
        + (
            f"has no current context; name one with --engine: {_listed(known)}"
            if known
            else "does not exist; set KUBECONFIG"
        )
    )


def _kubeconfigs() -> list[Path]:
    named = os.environ.get("KUBECONFIG")
    if named:
        return [Path(part).expanduser() for part in named.split(":") if part]
    return [Path.home() / ".kube/config"]


def _places() -> str:
    return " or ".join(repr(str(file)) for file in _kubeconfigs())


def _listed(names: list[str]) -> str:
    return shown(", ".join(names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")


def _read(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"it is no kubeconfig: {shown(str(exc))}", file=file) from exc
    except yaml.YAMLError as exc:
        # Its text repeats the line, in which there may be a token.
        mark, said = getattr(exc, "problem_mark", None), getattr(exc, "problem", None) or "it is not YAML"
        line = None if mark is None else mark.line + 1
        raise ConfigurationError(f"it is no kubeconfig: {shown(said)}", file=file, line=line) from None
    if not isinstance(document, dict):
        raise ConfigurationError("it is no kubeconfig: it is empty, or no mapping", file=file)
    return document


def _parse(file: Path, document: Mapping[str, Any]) -> KubeConfig:
    try:
        return KubeConfig.from_dict(dict(document), fname=file)
    except KeyError as exc:
        raise ConfigurationError(f"it is no kubeconfig: it has no {exc.args[0]!r}", file=file) from exc
    except (msgspec.ValidationError, TypeError) as exc:
        raise ConfigurationError(f"it is no kubeconfig: {shown(str(exc))}", file=file) from exc


def _check_fields(file: Path, kind: str, name: str | None, entries: Iterable[Mapping[str, Any]]) -> None:
    """Refuse what would have no effect: a connection made otherwise, or by another user, than the file says."""
    fields: Mapping[str, Any] = next((one[kind] for one in entries if one["name"] == name), {})
    for field, advice in _UNKNOWN[kind].items():
        if field in fields:
            raise ConfigurationError(
                f"{kind} {name!r} has {field!r}, which ringfence does not support; {advice}", file=file
            )


def _chosen(file: Path, document: Mapping[str, Any], config: KubeConfig, name: str) -> SingleConfig:
    try:
        chosen = config.get(name)
    except KeyError as exc:
        raise ConfigurationError(
            f"context {name!r} names {exc.args[0]!r}, which it lacks", file=file
        ) from exc
    assert chosen is not None  # only without a name
    _check_fields(file, "cluster", chosen.context.cluster, document["clusters"])
    _check_fields(file, "user", chosen.context.user, document.get("users") or ())
    user = chosen.user or User()  # the library takes none for a fault
    if chosen.cluster.certificate_auth_data is not None:
        _check_authority(file, name, chosen.cluster.certificate_auth_data)
    if (user.client_cert or user.client_cert_data) and not (user.client_key or user.client_key_data):
        raise ConfigurationError(
            f"the user of context {name!r} has a client certificate without a key", file=file
        )
    if user.token_file is not None:
        user = msgspec.structs.replace(user, token_file=str(chosen.abs_file(user.token_file)))
    if user.exec is not None:
        # The library does not say which version it takes, and knows only those before, whose answer has the same form.
        version = user.exec.apiVersion
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        plugin = msgspec.structs.replace(
            user.exec,
            apiVersion=f"{_EXEC_VERSION}beta1" if version == _EXEC_VERSION else version,
            env=[*(user.exec.env or ()), NameValue(name="KUBERNETES_EXEC_INFO", value=json.dumps(asked))],
        )
        user = msgspec.structs.replace(user, exec=plugin)
    return chosen._replace(user=user)


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
