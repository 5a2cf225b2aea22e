"""Large bodies beside the journal, by their SHA-256.

In a line such a body is `{"$blob":"<sha256>","bytes":n,"kind":"text"}`. An agent chooses the keys
of its tools' arguments, so a genuine key `$blob` is written as `$$blob` (and so on): nothing an agent sends
can be read back as a reference.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, RecordError
from ringfence.events import Event
from ringfence.filesystem import replace_file
from ringfence.journal.record import encode_data, encode_json

MAX_INLINE_BYTES = 64 * 1024
"""Longer strings go beside the journal."""

MAX_DATA_BYTES = 1024**2
"""Data that is longer though each string in it is short goes beside the journal whole."""

MAX_BLOB_BYTES = 256 * 1024**2
"""No larger body is read back."""

_MARK = b'$blob"'
_KEY = re.compile(r"\$+blob")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SURROGATE = re.compile("[\ud800-\udfff]")

Keep = Callable[[bytes], str]
"""Stores a body and gives its SHA-256."""


class BlobRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a body beside the journal. `kind` is `json` where the body is a line's whole data."""

    digest: str = msgspec.field(name="$blob")
    bytes: int
    kind: Literal["text", "json"]


class BlobStore:
    """The directory `blobs` of one run.

    Args:
        directory: Made when the first body is kept.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unsynced: list[Path] = []
        """Bodies that are not yet known to be on the disk; the journal's writer syncs and clears it."""

    def keep(self, body: bytes) -> str:
        """Store `body`; return its digest.

        Raises:
            OSError: It could not be stored; nothing is left behind.
        """
        digest = sha256(body).hexdigest()
        path = self.directory / digest
        if path.exists() and path.stat().st_size == len(body):
            return digest
        make_private_dir(self.directory)
        replace_file(path, body)
        self.unsynced.append(path)
        return digest

    def drop(self, kept: int) -> None:
        """Remove the bodies that were stored after the first `kept` of `unsynced`: their line was not written."""
        for path in self.unsynced[kept:]:
            with suppress(OSError):
                path.unlink()
        del self.unsynced[kept:]

    def prune(self, bodies: Collection[str]) -> None:
        """Remove all but these bodies, and what a process that died left of others.

        Raises:
            InfrastructureFault: One cannot be removed.
        """
        try:
            for path in self.directory.iterdir() if self.directory.is_dir() else ():
                if path.name not in bodies:
                    path.unlink()
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove {exc.filename!r}, to which no line of the journal refers: {exc.strerror}"
            ) from exc

    def load(self, ref: BlobRef) -> bytes:
        """The body of a reference.

        Raises:
            RecordError: It is absent, too large, or not what its digest says.
        """
        if ref.bytes > MAX_BLOB_BYTES:
            raise RecordError(
                f"body {ref.digest!r} is too large to read: {ref.bytes} of {MAX_BLOB_BYTES} bytes"
            )
        body = b"".join(self._chunks(ref))
        if sha256(body).hexdigest() != ref.digest:
            raise RecordError(f"body {ref.digest!r} was edited; run `ringfence runs verify`")
        return body

    def check(self, ref: BlobRef) -> None:
        """Compare a body with its digest, in bounded memory.

        Raises:
            RecordError: It is absent or not what its digest says.
        """
        total = sha256()
        for chunk in self._chunks(ref):
            total.update(chunk)
        if total.hexdigest() != ref.digest:
            raise RecordError(f"body {ref.digest!r} was edited")

    def _chunks(self, ref: BlobRef) -> Iterator[bytes]:
        if not _DIGEST.fullmatch(ref.digest):
            raise RecordError(f"{ref.digest!r} is not a body's digest")
        try:
            fd = os.open(
                self.directory / ref.digest, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError as exc:
            raise RecordError(f"body {ref.digest!r} cannot be read: {exc.strerror}") from exc
        try:
            size = os.fstat(fd).st_size
            if size != ref.bytes:
                raise RecordError(f"body {ref.digest!r} has {size} bytes, not {ref.bytes}")
            while chunk := os.read(fd, 1024**2):
                yield chunk
        except OSError as exc:  # such as a directory of that name
            raise RecordError(f"body {ref.digest!r} cannot be read: {exc.strerror}") from exc
        finally:
            os.close(fd)


def pack(event: Event, keep: Keep) -> bytes:
    """The data of an event's line; large bodies are handed to `keep`.

    Raises:
        TypeError, ValueError, RecursionError: The event holds something that JSON cannot.
        OSError: From `keep`.
    """
    try:
        data = encode_data(event)
    except UnicodeEncodeError:  # lone surrogates: a model may send them as \\ud800
        data = b""
    if data and len(data) <= MAX_INLINE_BYTES and _MARK not in data:
        return data
    fields = {key: value for key, value in msgspec.to_builtins(event).items() if key != "event"}
    bodies: list[bytes] = []
    packed = encode_json(_packed(fields, bodies))
    if len(packed) <= MAX_DATA_BYTES:
        for body in bodies:
            keep(body)
        return packed
    whole = encode_json(_map_text(fields, _whole_text))
    return encode_json(BlobRef(keep(whole), len(whole), "json"))


def unpack(data: bytes | msgspec.Raw, store: BlobStore) -> Any | None:
    """The fields of a line that refers to bodies, with the bodies in place; None if it refers to none.

    Raises:
        RecordError: A body is absent or damaged, or the data does not parse.
    """
    raw = bytes(data)
    if _MARK not in raw:
        return None
    tree = _decoded(raw)
    whole = _as_ref(tree)
    if whole is not None and whole.kind == "json":
        return _decoded(store.load(whole))
    try:
        return _unpacked(tree, store)
    except RecursionError as exc:
        raise RecordError("an event's data is nested too deeply to be read") from exc


def references(data: bytes | msgspec.Raw) -> list[BlobRef]:
    """The bodies that a line's data refers to.

    Raises:
        RecordError: The data does not parse.
    """
    raw = bytes(data)
    found: list[BlobRef] = []
    if _MARK in raw:
        try:
            _collect(_decoded(raw), found)
        except RecursionError as exc:
            raise RecordError("an event's data is nested too deeply to be read") from exc
    return found


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as exc:
        raise RecordError(f"an event's data does not parse: {exc}; run `ringfence runs verify`") from exc


def _packed(value: Any, bodies: list[bytes]) -> Any:
    """The value with references in the place of long texts, which are added to `bodies`."""
    if isinstance(value, str):
        text = _whole_text(value)
        if len(text) * 4 <= MAX_INLINE_BYTES or len(body := text.encode()) <= MAX_INLINE_BYTES:
            return text
        bodies.append(body)
        return {"$blob": sha256(body).hexdigest(), "bytes": len(body), "kind": "text"}
    if isinstance(value, dict):
        return {_escaped(key): _packed(item, bodies) for key, item in value.items()}
    if isinstance(value, list):
        return [_packed(item, bodies) for item in value]
    return value


def _unpacked(value: Any, store: BlobStore) -> Any:
    ref = _as_ref(value)
    if ref is not None:
        return store.load(ref).decode(errors="replace")
    if isinstance(value, dict):
        return {_unescaped(key): _unpacked(item, store) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpacked(item, store) for item in value]
    return value


def _collect(value: Any, found: list[BlobRef]) -> None:
    ref = _as_ref(value)
    if ref is not None:
        found.append(ref)
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _collect(item, found)


def _as_ref(value: Any) -> BlobRef | None:
    if not isinstance(value, dict) or "$blob" not in value:
        return None
    try:
        return msgspec.convert(value, BlobRef)
    except msgspec.ValidationError as exc:
        raise RecordError(f"a reference to a body is malformed: {exc}; run `ringfence runs verify`") from exc


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_text(item, change) for item in value]
    return value


def _whole_text(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _escaped(key: str) -> str:
    text = _whole_text(key)
    return "$" + text if _KEY.fullmatch(text) else text


def _unescaped(key: str) -> str:
    return key[1:] if _KEY.fullmatch(key) else key
