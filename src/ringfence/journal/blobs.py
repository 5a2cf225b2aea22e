"""Blobs: large texts and data of events, stored in files beside the journal and named by their SHA-256.

A line of the journal refers to a blob by `{"$blob":"<sha256>","bytes":n,"kind":"text"}`. An agent chooses the keys
of its tools' arguments, so a genuine key `$blob` is written as `$$blob` (`$$blob` as `$$$blob`, and so on). Nothing that
an agent sends can therefore be read back as a reference.
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
from ringfence.journal.layout import open_regular
from ringfence.journal.record import encode_data, encode_json

MAX_INLINE_BYTES = 64 * 1024
"""Longer strings are stored as blobs."""

MAX_DATA_BYTES = 1024**2
"""If the data of an event is longer although each string in it is short, all of it becomes one blob."""

MAX_BLOB_BYTES = 256 * 1024**2
"""Larger blobs are not read."""

_CHUNK_BYTES = 1024**2
_MARK = b'$blob"'
_KEY = re.compile(r"\$+blob")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SURROGATE = re.compile("[\ud800-\udfff]")

StoreBlob = Callable[[bytes], str]
"""A function that stores a blob and returns its SHA-256."""


class BlobRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a blob. `kind` is `json` if the blob holds all data of a line."""

    digest: str = msgspec.field(name="$blob")
    bytes: int
    kind: Literal["text", "json"]


class BlobStore:
    """The directory `blobs` of one run.

    Args:
        directory: The directory; it is created with the first blob.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unsynced: list[Path] = []
        """Blobs that may not be on the disk yet; the journal's writer syncs them and clears the list."""

    def store(self, blob: bytes) -> str:
        """Store `blob`; return its digest.

        Raises:
            OSError: The blob could not be stored; no partial file remains.
        """
        digest = sha256(blob).hexdigest()
        path = self.directory / digest
        if path.exists() and path.stat().st_size == len(blob):
            return digest
        make_private_dir(self.directory)
        replace_file(path, blob)
        self.unsynced.append(path)
        return digest

    def discard_after(self, count: int) -> None:
        """Remove the blobs after the first `count` of `unsynced`, if the line that refers to them was not written."""
        for path in self.unsynced[count:]:
            with suppress(OSError):
                path.unlink()
        del self.unsynced[count:]

    def prune(self, digests: Collection[str]) -> None:
        """Remove every file except the blobs with these digests, also partial files of a process that died.

        Raises:
            InfrastructureFault: A file cannot be removed.
        """
        try:
            for path in self.directory.iterdir() if self.directory.is_dir() else ():
                if path.name not in digests:
                    path.unlink()
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove the unreferenced blob {exc.filename!r}: {exc.strerror}"
            ) from exc

    def load(self, ref: BlobRef) -> bytes:
        """Return the blob of a reference.

        Raises:
            RecordError: The blob is absent or too large, or it does not match its digest.
        """
        if ref.bytes > MAX_BLOB_BYTES:
            raise RecordError(
                f"blob {ref.digest!r} is too large to read: {ref.bytes} of {MAX_BLOB_BYTES} bytes"
            )
        return b"".join(self._chunks(ref))

    def verify(self, ref: BlobRef) -> None:
        """Compare a blob with its digest, in bounded memory.

        Raises:
            RecordError: The blob is absent, or it does not match its digest.
        """
        for _ in self._chunks(ref):
            pass

    def _chunks(self, ref: BlobRef) -> Iterator[bytes]:
        """Yield a blob in pieces, and compare it with its digest at the end."""
        if not _DIGEST.fullmatch(ref.digest):
            raise RecordError(f"{ref.digest!r} is not a blob's digest")
        digest = sha256()
        try:
            with open_regular(self.directory / ref.digest) as file:
                size = os.fstat(file.fileno()).st_size
                if size != ref.bytes:
                    raise RecordError(f"blob {ref.digest!r} has {size} bytes, not {ref.bytes}")
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except OSError as exc:
            raise RecordError(f"blob {ref.digest!r} cannot be read: {exc.strerror}") from exc
        if digest.hexdigest() != ref.digest:
            raise RecordError(f"blob {ref.digest!r} does not match its digest; run `ringfence runs verify`")


def pack(event: Event, store_blob: StoreBlob) -> bytes:
    """Encode the data of an event for its line; pass large values to `store_blob`.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot express a value of the event.
        OSError: `store_blob` raised it.
    """
    try:
        data = encode_data(event)
    except UnicodeEncodeError:  # a lone surrogate, which a model may send as \\ud800
        data = b""
    if data and len(data) <= MAX_INLINE_BYTES and _MARK not in data:
        return data
    fields = {key: value for key, value in msgspec.to_builtins(event).items() if key != "event"}
    blobs: list[bytes] = []
    packed = encode_json(_map_json(fields, lambda text: _text_or_reference(text, blobs), _escape))
    if len(packed) <= MAX_DATA_BYTES:
        for blob in blobs:
            store_blob(blob)
        return packed
    blob = encode_json(_map_json(fields, _replace_surrogates, _replace_surrogates))
    return encode_json(BlobRef(store_blob(blob), len(blob), "json"))


def unpack(data: bytes | msgspec.Raw, store: BlobStore) -> Any:
    """Return the fields of a line with its blobs loaded.

    Raises:
        RecordError: A blob is absent or damaged, or the data does not parse.
    """
    raw = bytes(data)
    fields = decode(raw)
    if _MARK not in raw:
        return fields
    ref = _as_ref(fields)
    if ref is not None and ref.kind == "json":
        return decode(store.load(ref))
    try:
        return _map_json(fields, _unchanged, _unescape, lambda ref: store.load(ref).decode(errors="replace"))
    except RecursionError as exc:
        raise RecordError("an event's data is nested too deeply to be read") from exc


def references(data: bytes | msgspec.Raw) -> list[BlobRef]:
    """Return the references to blobs in a line's data.

    Raises:
        RecordError: The data does not parse.
    """
    raw = bytes(data)
    found: list[BlobRef] = []
    if _MARK not in raw:
        return found
    try:
        _map_json(decode(raw), _unchanged, _unchanged, found.append)
    except RecursionError as exc:
        raise RecordError("an event's data is nested too deeply to be read") from exc
    return found


def decode(data: bytes | msgspec.Raw) -> Any:
    """Return the fields of a line as they are in it.

    Raises:
        RecordError: The data does not parse.
    """
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as exc:
        raise RecordError(f"an event's data does not parse: {exc}; run `ringfence runs verify`") from exc


def _as_ref(value: Any) -> BlobRef | None:
    if not isinstance(value, dict) or "$blob" not in value:
        return None
    try:
        return msgspec.convert(value, BlobRef)
    except msgspec.ValidationError as exc:
        raise RecordError(f"a reference to a blob is malformed: {exc}; run `ringfence runs verify`") from exc


def _map_json(
    value: Any,
    change_text: Callable[[str], Any],
    change_key: Callable[[str], str],
    change_ref: Callable[[BlobRef], Any] | None = None,
) -> Any:
    """Return a copy of a JSON value with its texts and keys changed, and its references if `change_ref` is given."""
    if isinstance(value, str):
        return change_text(value)
    if isinstance(value, dict):
        if change_ref is not None and (ref := _as_ref(value)) is not None:
            return change_ref(ref)
        return {
            change_key(key): _map_json(item, change_text, change_key, change_ref)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_map_json(item, change_text, change_key, change_ref) for item in value]
    return value


def _text_or_reference(text: str, blobs: list[bytes]) -> Any:
    """Return the text, or a reference if the text is long; the blob is then appended to `blobs`."""
    text = _replace_surrogates(text)
    if len(text) * 4 <= MAX_INLINE_BYTES or len(blob := text.encode()) <= MAX_INLINE_BYTES:
        return text
    blobs.append(blob)
    return {"$blob": sha256(blob).hexdigest(), "bytes": len(blob), "kind": "text"}


def _unchanged(text: str) -> str:
    return text


def _replace_surrogates(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _escape(key: str) -> str:
    text = _replace_surrogates(key)
    return "$" + text if _KEY.fullmatch(text) else text


def _unescape(key: str) -> str:
    return key[1:] if _KEY.fullmatch(key) else key
