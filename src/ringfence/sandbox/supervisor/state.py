"""What a holder says of itself, in a file beside its socket: enough to attach, to list and to clear up."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ringfence.config.paths import replace_state_file
from ringfence.errors import InfrastructureFault, RecordError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Facts, Overlay, Placement
from ringfence.sandbox.supervisor.place import HolderPlace

if TYPE_CHECKING:
    from ringfence.sandbox.spec import SandboxSpec

FORMAT = 2
_LIMIT_BYTES = 8 * 1024**2
Kind = Literal["standing", "pool"]


@frozen
class HolderState:
    """A held sandbox."""

    sandbox_id: str
    kind: Kind
    pid: int
    spec: "SandboxSpec"
    placement: Placement
    facts: Facts
    chosen_because: str
    created_at: str
    """UTC, ISO 8601."""
    born_s: float
    """The machine's monotonic clock when it was opened: ages do not jump with the wall clock."""
    workspace: str | None = None
    """As the user knows it."""
    run_id: str | None = None
    """The run whose record it is, of a standing one."""
    idle_s: float | None = None
    policy: Mapping[str, Any] | None = None
    end: tuple[str, str] | None = None
    """(reason, detail), once the sandbox is gone."""

    def ended(self, reason: str, detail: str) -> "HolderState":
        """The same, gone."""
        return replace(self, end=(reason, detail))


def write_state(place: HolderPlace, state: HolderState) -> None:
    """Replace the file at once.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    replace_state_file(place.state_file, _encode(state))


def read_state(place: HolderPlace) -> HolderState | None:
    """What a holder wrote; None if it has not come so far.

    Raises:
        RecordError: It is damaged, or of another version.
    """
    try:
        with place.state_file.open("rb") as file:
            data = file.read(_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise InfrastructureFault(f"could not read {str(place.state_file)!r}: {exc.strerror}") from exc
    try:
        fields = json.loads(data)
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']!r}")
        return _decode(fields)
    except (ValueError, KeyError, TypeError) as exc:
        raise RecordError(
            f"{str(place.state_file)!r} is damaged or of another version of ringfence: {exc}"
        ) from exc


def encode_placement(placement: Placement) -> dict[str, Any]:
    """A placement as plain data."""
    return asdict(placement)


def decode_placement(fields: Mapping[str, Any]) -> Placement:
    """The placement in plain data.

    Raises:
        KeyError, TypeError: It is none.
    """
    overlays = tuple(
        Overlay(Path(one["source"]), Path(one["target"]), bool(one["read_only"]))
        for one in fields["overlays"]
    )
    workspace, source = fields["workspace"], fields["workspace_source"]
    return Placement(
        uid=int(fields["uid"]),
        gid=int(fields["gid"]),
        workspace=None if workspace is None else Path(workspace),
        workspace_source=None if source is None else Path(source),
        workspace_read_only=bool(fields["workspace_read_only"]),
        overlays=overlays,
        carry=fields.get("carry", "none"),
        is_idmapped=bool(fields.get("is_idmapped", False)),
    )


def encode_spec(spec: "SandboxSpec") -> dict[str, Any]:
    """A spec as plain data: only what was asked for, since that decides what may be soft."""
    return spec.model_dump(exclude_unset=True)


def dump(document: Mapping[str, Any]) -> bytes:
    """As JSON; names of files that are no UTF-8 as escaped surrogates."""
    return json.dumps(document, ensure_ascii=True, default=os.fspath).encode()


def _encode(state: HolderState) -> bytes:
    fields = {name: getattr(state, name) for name in _PLAIN}
    return dump(
        {
            "format": FORMAT,
            **fields,
            "spec": encode_spec(state.spec),
            "placement": encode_placement(state.placement),
            "facts": asdict(state.facts),
        }
    )


def _decode(fields: Mapping[str, Any]) -> HolderState:
    from ringfence.sandbox.spec import SandboxSpec

    plain = {name: fields[name] for name in _PLAIN}
    plain["end"] = tuple(fields["end"]) if fields["end"] else None
    facts = dict(fields["facts"])
    for name in ("watched_paths", "tmpfs_paths", "notes"):
        facts[name] = tuple(facts[name])
    return HolderState(
        **plain,
        spec=SandboxSpec.model_validate(fields["spec"]),
        placement=decode_placement(fields["placement"]),
        facts=Facts(**facts),
    )


_PLAIN = (
    "sandbox_id",
    "kind",
    "pid",
    "chosen_because",
    "created_at",
    "born_s",
    "workspace",
    "run_id",
    "idle_s",
    "policy",
    "end",
)
