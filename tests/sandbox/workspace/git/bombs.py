"""Packs and files of a few bytes for which git needs much memory."""

import hashlib
import struct
import zlib

_COMMIT, _TREE, _BLOB, _OFFSET_DELTA = 1, 2, 3, 6


def delta_bomb(size_mib: int) -> tuple[bytes, str]:
    """A pack with a commit whose one file is `size_mib` MiB of zeros, and the commit's id."""
    base = bytes(64 * 1024)
    step = _delta(len(base), len(base), 1024**2 // len(base))
    last = _delta(1024**2, 1024**2, size_mib)
    blob = _name(b"blob", bytes(size_mib * 1024**2))
    tree = b"100644 zeros\0" + blob
    commit = b"tree %s\nauthor a <a@a> 0 +0000\ncommitter a <a@a> 0 +0000\n\nx\n"
    commit %= _name(b"tree", tree).hex().encode()
    pack, at = bytearray(b"PACK" + struct.pack(">II", 2, 5)), 0
    for number, (kind, data) in enumerate(
        ((_BLOB, base), (_OFFSET_DELTA, step), (_OFFSET_DELTA, last), (_TREE, tree), (_COMMIT, commit))
    ):
        start = len(pack)
        pack += _head(kind, len(data))
        if kind == _OFFSET_DELTA:
            pack += _offset(start - at)
        pack += zlib.compress(data, 9)
        at = start if number < 3 else at
    return bytes(pack) + hashlib.sha1(pack, usedforsecurity=False).digest(), _name(b"commit", commit).hex()


def _name(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data, usedforsecurity=False).digest()


def _head(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | (0x80 if size else 0)]) + (_number(size) if size else b"")


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _offset(value: int) -> bytes:
    out = [value & 0x7F]
    while value := value >> 7:
        value -= 1
        out.append(value & 0x7F | 0x80)
    return bytes(reversed(out))


def _delta(source: int, piece: int, times: int) -> bytes:
    """A delta that copies the first `piece` bytes of its base again and again."""
    copy = bytes([0xF0]) + piece.to_bytes(3, "little") if piece != 0x10000 else bytes([0x80])
    return _number(source) + _number(piece * times) + copy * times
