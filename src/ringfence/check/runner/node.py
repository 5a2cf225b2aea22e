"""Runs `node --test` with Ringfence's reporter in the runner's process, and a canary at the end of each test file.

The runner starts one process per file. Code that replaces `assert` affects only its own process, so a canary in a
separate file would not notice it.
"""

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import TYPE_CHECKING

import anyio

from ringfence.check.discovery import NODE_TESTS
from ringfence.check.report import Check, Report
from ringfence.check.report_stream import ReportBuilder, private_directory, run_with_socket
from ringfence.check.runner.base import build_report
from ringfence.errors import SandboxError, SandboxFileError

if TYPE_CHECKING:
    from ringfence.sandbox import Sandbox


_EXTENSIONS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")
_MAX_FILES = 500
_MAX_FILE_BYTES = 2_000_000
_LISTING_BYTES = 1_000_000
_FIND_S = 60.0
_RESTORE_S = 60.0
_REPLACED_FUNCTIONS = re.compile(r"the canary fails, as it must \(replaced: ([\w. ]{1,2000})\)")


async def run_node(check: Check, sandbox: "Sandbox", *, canary: bool, test_files: Collection[str]) -> Report:
    """Run `node --test`. Arguments and errors as `run_check`."""
    inside = files("ringfence.check") / "inside"
    own = {**sandbox.facts.environment, **sandbox.spec.env}
    sent = {name: (inside / name).read_bytes() for name in ("node_reporter.mjs", "node_integrity.cjs")}
    async with private_directory(sandbox, sent, {}) as directory:
        reporter = f"{directory.path}/{directory.package}/node_reporter.mjs"
        options = (
            f"--require={directory.path}/{directory.package}/node_integrity.cjs "
            f"--test-reporter=spec --test-reporter-destination=stdout "
            f"--test-reporter={reporter} --test-reporter-destination=stderr"
        )
        env = {"NODE_OPTIONS": f"{own.get('NODE_OPTIONS', '')} {options}".strip()}
        given = [path for path in test_files if path.endswith(_EXTENSIONS)]
        paths = (given or await _find_test_files(sandbox)) if canary else ()
        text = (inside / "node_canary.js").read_bytes().replace(b"RINGFENCE", directory.canary.encode())
        async with _added_canaries(sandbox, paths, text) as guarded:
            builder, ended = await run_with_socket(
                sandbox,
                directory,
                check.command,
                env=env,
                timeout_s=check.timeout_s,
                on_output=check.on_output,
            )
        mark = directory.canary if canary else ""
        builder.altered |= _replaced_functions(builder, mark)
        return build_report(check, builder, ended, canary=mark, guarded=guarded)


def _replaced_functions(builder: ReportBuilder, canary: str) -> set[str]:
    """Return the functions of `assert` and of the runner that canaries found replaced in their files' processes."""
    details = (each.detail for name, each in builder.results.items() if canary and canary in name)
    lists = (match[1].split() for detail in details for match in _REPLACED_FUNCTIONS.finditer(detail))
    return {name for names in lists for name in names}


def is_test_by_name(path: str) -> bool:
    """Whether node treats a file as a test because of its name alone."""
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in NODE_TESTS)


async def _find_test_files(sandbox: "Sandbox") -> list[str]:
    """Return the files that `node --test` treats as tests because of their names."""
    names = [word for pattern in NODE_TESTS for word in ("-o", "-name", pattern)][1:]
    kind = ["-type", "f", "(", *names, "-o", "-path", "*/test/*.js", "-o", "-path", "*/test/*.[cm]js", ")"]
    command = ["find", ".", "-name", "node_modules", "-prune", "-o", *kind, "-print0"]
    found = await sandbox.run(command, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    paths = found.stdout_bytes.decode("utf-8", "surrogateescape").split("\0")
    return sorted(path.removeprefix("./") for path in paths if path)[:_MAX_FILES]


@asynccontextmanager
async def _added_canaries(
    sandbox: "Sandbox", paths: Collection[str], text: bytes
) -> AsyncIterator[list[str]]:
    """Append a canary to each test file, and restore the files when the context ends. Yields the changed files."""
    originals = dict[str, bytes]()
    try:
        for path in paths:
            with suppress(SandboxFileError):
                data = await sandbox.read_file(path, limit_bytes=_MAX_FILE_BYTES)
                if not is_test_by_name(path) and b"node:test" not in data:
                    continue  # test data, or a test of another runner
                originals[path] = data
                await sandbox.write_file(path, data + text)
        yield list(originals)
    finally:
        with anyio.move_on_after(_RESTORE_S, shield=True):
            for path, data in originals.items():
                with suppress(SandboxError):
                    await sandbox.write_file(path, data)
