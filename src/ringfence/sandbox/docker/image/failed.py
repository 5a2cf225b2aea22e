"""The error of a build."""

import re

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.docker.image.failure import classify

_TEXT_CHARS = 600
_EXITED = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)


class ImageBuildFailed(InfrastructureFault):
    """An image could not be built; nothing of the attempt is left.

    Args:
        target: Which image.
        step: At what: an instruction of the Dockerfile, or a program.
        said: How that ended.
        detail: The end of what was written meanwhile.
    """

    def __init__(self, target: str, step: str, said: str, *, detail: str = "") -> None:
        self.target = target
        self.step = step
        self.cause = classify(f"{detail}\n{said}")
        # The engine repeats the whole instruction, which stands before it already; so does its last line.
        how = _EXITED.sub(r"exit code \1", said)
        words = [" ".join(how.split())[:_TEXT_CHARS], *_telling(detail, step)]
        text = (
            f"image {str(target)!r} could not be built: {step!r}: {': '.join(word for word in words if word)}"
        )
        super().__init__(f"{text}; {self.cause.advice}" if self.cause else text)


def _telling(detail: str, step: str) -> list[str]:
    """The line that most likely says why: the first that a row knows, else the last."""
    lines = [line.strip() for line in detail.splitlines()]
    lines = [line for line in lines if line and not (step and line.endswith(step))]
    known = [line for line in lines if classify(line)]
    return [(known or lines[-1:])[0][:_TEXT_CHARS]] if lines else []
