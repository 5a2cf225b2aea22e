"""Work that was turned down, kept as a patch, which nothing builds on."""

import re
from pathlib import Path
from urllib.parse import quote

from ringfence.errors import UsageError
from ringfence.loop.repository.place import Place
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached

PATCH_LIMIT_BYTES = 256 * 1024**2
_MOST_PART = 100


def ref_part(text: str) -> str:
    """Any text as a part of a ref's name and of a file's, two texts never as one.

    Raises:
        UsageError: It is empty.
    """
    if not text:
        raise UsageError("a story or loop without an id cannot be named in git")
    part = quote(text.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if re.search(r"^[.-]|\.$|\.\.|\.lock$", part):
        part = part.replace(".", "%2E")
        part = "%2D" + part[1:] if part.startswith("-") else part
    if len(part) > _MOST_PART:
        from hashlib import sha256

        digest = sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        part = f"{part[: _MOST_PART - 33].rstrip('%.')}+{digest}"
    return part


def rejected_patch(place: Place, story: str, attempt: int) -> Path:
    """The file of an attempt's patch."""
    return place.patches / "rejected" / ref_part(story) / f"{attempt:d}.patch"


async def patch_of(git: Git, base: str, commit: str) -> bytes | None:
    """What a commit changed since another, as `git apply` takes it; None where that is more than 256 MiB."""
    options = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color")
    command = ("diff-tree", *options, "--no-ext-diff", "--no-textconv", base, commit)
    try:
        return (await git.run(*command, output_limit_bytes=PATCH_LIMIT_BYTES)).stdout
    except GitBoundReached:
        return None
