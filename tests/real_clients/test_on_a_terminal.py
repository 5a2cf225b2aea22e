"""A person starts a real client and finds its prompt: no welcome, no question, and no hook of the workspace has run."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pyte
import pytest

from ringfence.runtime.options import Options
from ringfence.sandbox import SandboxProcess
from ringfence.testing.scripted_model import Script, in_prompt

from .started import CLIENTS, fenced
from .test_hostile_repository import plant, ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_ROWS, _COLUMNS = 40, 120
_DEADLINE_S = 45
READY = {"claude": "bypass permissions on", "codex": "Ask Codex to do anything"}
SAID = {"claude": "● All is well.", "codex": "• All is well."}
STARTED = {"claude": set[str](), "codex": {"server-ran"}}
"""Of a hostile repository; codex asks no person only where it trusts the folder, and has its servers then."""
SCRIPT = Script.model_validate({"turns": [{"tools": [{"run": "echo > made"}]}, {"text": "All is well."}]})


class Screen:
    """What a person sees."""

    def __init__(self, process: SandboxProcess) -> None:
        self._process = process
        self._chunks = aiter(process.stdout)
        self._screen = pyte.Screen(_COLUMNS, _ROWS)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self._screen.display)

    async def until(self, holds: Callable[[str], bool]) -> None:
        """Look until it is as it should be."""
        with anyio.move_on_after(_DEADLINE_S):
            while not holds(self.text):
                self._stream.feed(await anext(self._chunks))
            return
        pytest.fail(f"it does not come to that:\n{self.text}")

    async def type(self, text: str) -> None:
        """Type, see that it is there, and send it."""
        await self._process.stdin.send(text.encode())
        await self.until(lambda seen: text[-20:] in seen)
        await self._process.stdin.send(b"\r")


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_person_is_asked_nothing_and_can_work(programs: dict[str, Path], workspace: Path, name: str):
    """In a hostile repository; the command that the model asks for runs without a question, too."""
    plant(workspace, name)
    async with fenced(CLIENTS[name], workspace, options=Options(cli_path=programs[name])) as fence:
        launch = CLIENTS[name].interactive(fence.paths, [], Options())
        for path, data in launch.files.items():
            await fence.sandbox.write_file(path, data)
        environment = {**launch.env, "TERM": "xterm-256color"}
        async with fence.sandbox.spawn(launch.argv, tty=(_ROWS, _COLUMNS), env=environment) as process:
            screen = Screen(process)
            await screen.until(lambda seen: READY[name] in seen)
            await screen.type(in_prompt(SCRIPT))
            await screen.until(lambda seen: SAID[name] in seen)
        asked = [str(request.body) for request in fence.server.requests]
    assert (workspace / "made").exists()
    assert ran(workspace) <= STARTED[name]
    assert any("The house rule is: cucumbers." in body for body in asked)
