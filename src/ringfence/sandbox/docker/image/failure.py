"""Classifies why an image could not be built, from the output of the engine, apt, pip, npm and mmdebstrap.

Texts were captured from Docker 20.10.24, Podman 4.3.1, apt 3.0.3, pip 25.1, npm 9.2.0 and mmdebstrap 1.3.5, except for
two that are only documented: dpkg's message about a full disk, and "Error processing tar file".
"""

import re

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.cause import Cause, find_cause

CAUSES = (
    Cause(
        "disk-full",
        r"no space left on device|not enough free space|don't have enough free space|ENOSPC",
        "the disk is full: `docker system df` and `df` show what takes it; nothing was kept of this build",
    ),
    Cause(
        "certificate",
        r"certificate verify failed|self[- ]signed certificate|SELF_SIGNED_CERT_IN_CHAIN|certificate is NOT trusted|"
        r"x509: certificate signed by unknown authority",
        "something on the way opens TLS: put its authority (.crt) into /usr/local/share/ca-certificates, run "
        "`update-ca-certificates`, and build without --without-host-ca",
    ),
    Cause(
        "no-registry",
        r"Get \"https?://[^\"]+/v2/|pinging container registry|"
        r"pull access denied|manifest (for \S+ )?(unknown|not found)|"
        r"initializing source docker://|error pulling image|dial tcp: lookup|Client\.Timeout exceeded",
        "the image below could not be fetched; where no registry can be reached, build with --bootstrap",
    ),
    Cause(
        "no-network",
        r"Temporary failure (resolving|in name resolution)|Could not resolve|Name or service not known|EAI_AGAIN|"
        r"ENOTFOUND|Network is unreachable|No route to host|Could not connect to|Connection (refused|timed out)|"
        r"Failed to establish a new connection|Unable to connect to",
        "the build reaches no package server: check the network of this machine and of the engine's containers, "
        "and HTTP_PROXY/HTTPS_PROXY if there is a proxy",
    ),
    Cause(
        "damaged",
        r"Hash Sum mismatch|THESE PACKAGES DO NOT MATCH THE HASHES|EINTEGRITY|File has unexpected size",
        "what arrived is not what was pinned: try again, and if it stays so, somebody changes it on the way",
    ),
    Cause(
        "untrusted",
        r"signatures (couldn't|could not) be verified|NO_PUBKEY|is not signed|EXPKEYSIG",
        "the packages are not signed by a key that is known here: install debian-archive-keyring, check the clock "
        "and --mirror",
    ),
    Cause(
        "no-package",
        r"Unable to locate package|has no installation candidate|No matching distribution found|ETARGET|"
        r"does not have a Release file|unmet dependencies",
        "the package server lacks what the image needs: is --mirror a complete mirror of Debian?",
    ),
    Cause(
        "no-privileges",
        r"/etc/sub[ug]id|newuidmap|newgidmap",
        "packages cannot be unpacked as this user: install uidmap and give the user a range in /etc/subuid and "
        "/etc/subgid, or run as root",
    ),
)
"""Searched in this order."""


def classify(said: str) -> Cause | None:
    """The row that matches the output; None if none does."""
    return find_cause(said, CAUSES)


_TEXT_CHARS = 600
_EXITED = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)


class ImageBuildFailed(InfrastructureFault):
    """An image could not be built; nothing of the attempt is left.

    Args:
        target: The image.
        step: The step that failed: an instruction of the Dockerfile, or a program.
        said: How the step ended.
        detail: The end of its output.
    """

    def __init__(self, target: str, step: str, said: str, *, detail: str = "") -> None:
        self.target = target
        self.step = step
        self.cause = classify(f"{detail}\n{said}")
        # The engine repeats the whole instruction, which the text names already; so does its last line.
        how = _EXITED.sub(r"exit code \1", said)
        words = [" ".join(how.split())[:_TEXT_CHARS], *_telling(detail, step)]
        text = (
            f"image {str(target)!r} could not be built: {step!r}: {': '.join(word for word in words if word)}"
        )
        super().__init__(f"{text}; {self.cause.advice}" if self.cause else text)


def _telling(detail: str, step: str) -> list[str]:
    """The line that most likely gives the reason: the first that a row matches, else the last."""
    lines = [line.strip() for line in detail.splitlines()]
    lines = [line for line in lines if line and not (step and line.endswith(step))]
    known = [line for line in lines if classify(line)]
    return [(known or lines[-1:])[0][:_TEXT_CHARS]] if lines else []
