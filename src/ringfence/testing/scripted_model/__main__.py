"""`python -m ringfence.testing.scripted_model [FILE] [--named NAME=FILE] [--port N]`: serves until interrupted."""

import argparse
import signal
import sys
from pathlib import Path

import anyio

from ringfence.errors import RingfenceError
from ringfence.testing.scripted_model import Script, ScriptedModelServer, load_script


def main() -> int:
    """Print the base URL, then serve; the exit code is that of the `ringfence` command."""
    parser = argparse.ArgumentParser(
        prog="python -m ringfence.testing.scripted_model", description=main.__doc__
    )
    parser.add_argument(
        "file", type=Path, nargs="?", help="the script, YAML or JSONL; none: each prompt carries its own"
    )
    parser.add_argument(
        "--named",
        type=_name_and_file,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a script that prompts may name; may be given several times",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of 127.0.0.1; 0 (default): any that is free"
    )
    options = parser.parse_args()
    try:
        own = load_script(options.file) if options.file is not None else None
        named = {name: load_script(file) for name, file in options.named}
        anyio.run(_serve, own, named, options.port)
    except RingfenceError as exc:
        sys.stderr.write(f"{exc}\n")
        return exc.exit_code
    return 0


def _name_and_file(given: str) -> tuple[str, Path]:
    name, equals, file = given.partition("=")
    if not (name and equals and file):
        raise argparse.ArgumentTypeError(f"{given!r} is not NAME=FILE")
    return name, Path(file)


async def _serve(script: Script | None, named: dict[str, Script], port: int) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with ScriptedModelServer.serve(script, port=port, named=named) as server:
            sys.stdout.write(f"{server.base_url}\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    sys.exit(main())
