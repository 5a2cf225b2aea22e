"""Files of a session come out of a real sandbox as they grow, and into the next one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from ringfence.errors import SandboxDied
from ringfence.runtime.session import SessionStore, SessionSync, lock_session
from ringfence.runtime.session.store import MAX_FILES
from ringfence.sandbox import Sandbox, SandboxSpec

PATTERNS = ("projects/*.jsonl",)
CLIENT_DIR = "/home/agent/.claude"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SessionStore]:
    """A session that is held."""
    with lock_session("s1", by="r1", state=tmp_path) as held:
        yield held


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """Where the client would run."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as opened:
        yield opened


async def shell(sandbox: Sandbox, script: str) -> None:
    """Run a script in the client's directory."""
    done = await sandbox.run(["sh", "-c", f"mkdir -p {CLIENT_DIR}/projects/w && cd {CLIENT_DIR} && {script}"])
    assert done.exit_code == 0, done.stderr


async def test_what_grows_is_added(home: SessionStore, sandbox: Sandbox):
    """Only what is new is read; other files stay inside."""
    keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS)
    await shell(
        sandbox, "seq 1000 >projects/w/s.jsonl; echo no >projects/w/other.txt; echo no >settings.json"
    )
    await keeper.pull()
    kept = home.files_dir / "projects/w/s.jsonl"
    inode = kept.stat().st_ino
    await shell(sandbox, "seq 1001 1100 >>projects/w/s.jsonl")
    await keeper.pull()
    assert kept.read_text() == "".join(f"{n}\n" for n in range(1, 1101))
    assert kept.stat().st_ino == inode
    assert list(home.files()) == ["projects/w/s.jsonl"]


@pytest.mark.parametrize(
    "script",
    ["echo short >projects/w/s.jsonl", "seq 5000 9000 >projects/w/s.jsonl"],
    ids=["shorter", "longer"],
)
async def test_what_was_written_anew_is_brought_whole(home: SessionStore, sandbox: Sandbox, script: str):
    """It is not mixed with what was kept before."""
    keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS)
    await shell(sandbox, "seq 1000 >projects/w/s.jsonl")
    await keeper.pull()
    await shell(sandbox, script)
    await keeper.pull()
    inside = await sandbox.read_file(f"{CLIENT_DIR}/projects/w/s.jsonl")
    assert home.place("projects/w/s.jsonl").read_bytes() == inside


async def test_a_session_is_whole_in_the_next_sandbox(home: SessionStore, sandbox: Sandbox):
    """Files of sub-agents too, for nobody else to read."""
    await shell(
        sandbox,
        "mkdir -p projects/w/s/subagents; echo a >projects/w/s.jsonl; echo b >projects/w/s/subagents/b.jsonl",
    )
    await SessionSync(home, sandbox, CLIENT_DIR, PATTERNS).pull()
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as other:
        await SessionSync(home, other, CLIENT_DIR, PATTERNS).restore()
        done = await other.run(
            [
                "sh",
                "-c",
                f"cd {CLIENT_DIR}/projects && set -- w/s.jsonl w/s/subagents/b.jsonl && stat -c '%a %n' $* && cat $*",
            ]
        )
    assert done.stdout == "600 w/s.jsonl\n600 w/s/subagents/b.jsonl\na\nb\n"


async def test_the_last_of_it_is_kept_at_the_end(home: SessionStore, sandbox: Sandbox):
    """Without waiting for the next look."""
    keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS)
    async with keeper.running():
        await shell(sandbox, "echo last >projects/w/s.jsonl")
    assert (home.place("projects/w/s.jsonl").read_bytes(), keeper.problem) == (b"last\n", "")


@pytest.mark.slow
async def test_what_there_was_is_kept_when_the_sandbox_dies(home: SessionStore):
    """It was brought out while the client worked; the end says that the rest is missing."""
    told = []

    async def live() -> None:
        async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
            keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS)
            try:
                async with keeper.running():
                    await shell(sandbox, "echo first >projects/w/s.jsonl")
                    keeper.notify()
                    with anyio.fail_after(60):
                        while not home.place("projects/w/s.jsonl").is_file():  # noqa: ASYNC110 -- nobody tells
                            await anyio.sleep(0.02)
                    sandbox.session.fence.process.kill()  # type: ignore[attr-defined]
                    await sandbox.run(["sleep", "60"])
            finally:
                told.append(keeper.problem)

    with pytest.raises(SandboxDied):
        await live()
    assert home.place("projects/w/s.jsonl").read_bytes() == b"first\n"
    assert "the sandbox ended before" in told[0]


HOSTILE = {
    "a link": "ln -s /etc/passwd projects/w/s.jsonl",
    "a pipe": "mkfifo projects/w/s.jsonl",
    "a directory": "mkdir projects/w/s.jsonl",
    "a link for a directory": "rmdir projects/w && rmdir projects && ln -s /etc projects",
    "nothing at all": "rm -r projects",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE.keys())
async def test_only_plain_files_come_out(home: SessionStore, sandbox: Sandbox, script: str):
    """Whatever the agent puts in their place."""
    await shell(sandbox, script)
    await SessionSync(home, sandbox, CLIENT_DIR, PATTERNS).pull()
    assert home.files() == {}


async def test_names_of_any_bytes_stay_below_the_directory(home: SessionStore, sandbox: Sandbox):
    """A newline, a backslash, bytes that are no UTF-8."""
    await shell(
        sandbox,
        r"""for n in 'a
b' 'a\b' "$(printf '\377')" '*'; do echo x >"projects/w/$n.jsonl"; done""",
    )
    await SessionSync(home, sandbox, CLIENT_DIR, PATTERNS).pull()
    assert len(home.files()) == 4
    assert {path.parent for path in home.files_dir.rglob("*.jsonl")} == {home.files_dir / "projects/w"}


async def test_more_than_is_kept_is_told(home: SessionStore, sandbox: Sandbox):
    """The run goes on; the end says why it cannot be resumed."""
    keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS)
    async with keeper.running():
        await shell(
            sandbox,
            f"cd projects/w && for d in 1 2; do mkdir $d; seq -f $d/%g.jsonl {MAX_FILES * 6 // 10} | xargs touch; done",
        )
    assert "files of 0 bytes" in keeper.problem


def outside_bytes(home: SessionStore) -> int:
    """All that a session takes on the host's disk."""
    return sum(path.stat().st_size for path in home.path.rglob("*") if path.is_file())


async def test_files_that_come_and_go_fill_no_disk(home: SessionStore, sandbox: Sandbox):
    """What is gone inside makes room, the oldest first, for what is there now."""
    keeper = SessionSync(home, sandbox, CLIENT_DIR, PATTERNS, max_bytes=100_000)
    for number in range(5):
        await shell(sandbox, f"rm -f projects/*/*.jsonl; head -c 40000 /dev/zero >projects/w/{number}.jsonl")
        await keeper.pull()
    assert list(home.files()) == ["projects/w/3.jsonl", "projects/w/4.jsonl"]
    assert outside_bytes(home) <= 100_000


async def test_what_grows_after_the_look_fills_no_disk(home: SessionStore, sandbox: Sandbox):
    """Files that are small when they are listed count by what comes of them, all of them together."""

    class Growing(SessionSync):
        async def _list(self) -> dict[str, int]:
            found = await super()._list()
            await shell(sandbox, "for n in 1 2 3 4; do head -c 40000 /dev/zero >>projects/w/$n.jsonl; done")
            return found

    keeper = Growing(home, sandbox, CLIENT_DIR, PATTERNS, max_bytes=100_000)
    await shell(sandbox, "for n in 1 2 3 4; do echo x >projects/w/$n.jsonl; done")
    with pytest.raises(ValueError, match="grown beyond the 100000 bytes"):
        await keeper.pull()
    assert outside_bytes(home) <= 100_000
