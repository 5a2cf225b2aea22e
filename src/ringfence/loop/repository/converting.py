"""Whether the user's git changes files as it checks them out: then only that git does it rightly."""

import os

from ringfence.loop.repository.source import Source
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.git.layout import read_small

_LISTING_BYTES = 512 * 1024**2
_CONVERTING = (b"filter", b"eol", b"ident", b"working-tree-encoding", b"crlf")


def why_set_to_convert(source: Source) -> str | None:
    """What of the repository's settings has git change files; None if nothing does."""
    if source.config.get("core.autocrlf", "false").lower() in {"true", "yes", "on", "1"}:
        return "core.autocrlf has your git change files as it checks them out"
    attributes = read_small(source.layout.common, b"info/attributes") or b""
    return _converting(attributes, "info/attributes")


async def why_converted(git: Git, tip: str) -> str | None:
    """Whether git changes files on their way out of the repository, which only the user's own git does rightly."""
    told = await git.run("ls-tree", "-r", "-z", tip, output_limit_bytes=_LISTING_BYTES)
    rows = (line.partition(b"\t") for line in told.stdout.split(b"\0"))
    found = {
        path: head.split()[2]
        for head, _, path in rows
        if path == b".gitattributes" or path.endswith(b"/.gitattributes")
    }
    for path, name in found.items():
        data = (await git.run("cat-file", "blob", name.decode())).stdout
        why = _converting(data, os.fsdecode(path))
        if why is not None:
            return why
    return None


def _converting(attributes: bytes, where: str) -> str | None:
    lines = (line.strip() for line in attributes.splitlines())
    words = [word for line in lines if line and not line.startswith(b"#") for word in line.split()[1:]]
    for word in words:
        name, _, value = word.lstrip(b"!").partition(b"=")
        if name in _CONVERTING and value != b"lf":
            return f"{where!r} has your git change files as it checks them out ({os.fsdecode(word)!r})"
    return None
