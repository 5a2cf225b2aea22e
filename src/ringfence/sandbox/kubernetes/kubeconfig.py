"""Finds the cluster to use and its credentials: a kubeconfig's context, or the service account of the own pod."""

import os
from pathlib import Path

import lightkube.core.exceptions
import msgspec
import yaml  # type: ignore[import-untyped]  # its stubs are another package
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig

from ringfence.errors import ConfigurationError, UsageError

_EXEC_VERSION = "client.authentication.k8s.io/v1"


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
    configs = {file: _read(file) for file in files}
    for file, config in configs.items():
        name = context or config.current_context
        if name is not None and name in config.contexts:
            return _chosen(file, config, name)
    known = sorted(name for config in configs.values() for name in config.contexts)
    if context is not None:
        raise UsageError(
            f"no kubeconfig has the context {context!r}; "
            + (f"known: {', '.join(known)}" if known else f"none was found in {_places()}")
        )
    if not files and Path(SERVICE_ACCOUNT, "token").is_file():
        return _in_cluster()
    raise UsageError(
        f"no cluster is chosen: {_places()} "
        + (
            f"has no current context; name one with --engine: {', '.join(known)}"
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


def _read(file: Path) -> KubeConfig:
    try:
        return KubeConfig.from_file(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError, TypeError) as exc:
        raise ConfigurationError(f"it is no kubeconfig: {' '.join(str(exc).split())}", file=file) from exc
    except KeyError as exc:
        raise ConfigurationError(f"it is no kubeconfig: it has no {exc.args[0]!r}", file=file) from exc


def _chosen(file: Path, config: KubeConfig, name: str) -> SingleConfig:
    try:
        chosen = config.get(name)
    except KeyError as exc:
        raise ConfigurationError(
            f"context {name!r} names {exc.args[0]!r}, which it lacks", file=file
        ) from exc
    assert chosen is not None  # only without a name
    user = chosen.user
    if user is not None and user.exec is not None and user.exec.apiVersion == _EXEC_VERSION:
        # The library knows the versions before, whose answer has the same form.
        plugin = msgspec.structs.replace(user.exec, apiVersion=f"{_EXEC_VERSION}beta1")
        chosen = chosen._replace(user=msgspec.structs.replace(user, exec=plugin))
    return chosen


def _in_cluster() -> SingleConfig:
    try:
        chosen = KubeConfig.from_service_account().get()
    except (lightkube.core.exceptions.ConfigError, KeyError, OSError) as exc:
        raise ConfigurationError(f"the service account of this pod cannot be used: {exc}") from exc
    assert chosen is not None
    return chosen
