"""Records the golden directories: `python -m tests.golden.make PYTHON [CASE...]`, as root.

PYTHON is the interpreter of the version to record; the archives are written to the directory named after that version.

Each recipe (`recipes.py`) is the first process of its own PID, mount and UTS namespaces, runs as an ordinary user and
works in `/tmp/ringfence-golden-CASE`. Records hold absolute paths, host names and user names, so all of these are fixed
and neutral. The signing key of a case is created by its first command, and signs nothing else.

TEST_CLIENTS names the directory with the agent CLIs (`scripts/clients.sh`), TEST_CONTAINER_IMAGE an image for Docker.
Ids, keys, times and digests differ in each recording; tests read them from the facts beside the archive.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .archive import pack
from .cases import OWNER_UID, case_directory
from .environment import RecipeEnvironment
from .recipes import EXCLUDED, RECIPES

_REPOSITORY = Path(__file__).parents[2]
_FACTS = ".facts.json"
_PASSWD = f"root:x:0:0:root:/root:/bin/sh\ndev:x:{OWNER_UID}:{OWNER_UID}::/home/dev:/bin/sh\n"
_ENTER = """\
set -e
hostname golden
mount -t tmpfs tmpfs /srv
mkdir /srv/clients
printf '%s' "$PASSWD" >/srv/passwd
mount --bind /srv/passwd /etc/passwd
[ -z "$TEST_CLIENTS" ] || mount --bind "$TEST_CLIENTS" /srv/clients
docker=$(stat --format %g /var/run/docker.sock 2>/dev/null || echo $OWNER_UID)
exec setpriv --reuid $OWNER_UID --regid $OWNER_UID --groups $docker --inh-caps=-all --bounding-set=-all "$@"
"""
_PRINT_VERSION = "import importlib.metadata as m; print('.'.join(m.version('ringfence').split('.')[:2]))"


def main() -> None:
    """Record the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", metavar="PYTHON", type=os.path.abspath)
    parser.add_argument("cases", metavar="CASE", nargs="*", help=", ".join(RECIPES))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(RECIPES):
        parser.error(f"there is no case {min(unknown)!r}; cases: {', '.join(RECIPES)}")
    if arguments.inside:
        follow_recipe(arguments.cases[0], arguments.python)
        return
    if os.geteuid() != 0:
        sys.exit("the namespaces of a recipe need root")
    version = subprocess.check_output([arguments.python, "-P", "-c", _PRINT_VERSION], text=True).strip()
    output = Path(__file__).parent / version
    cases = arguments.cases or list(RECIPES)
    if there := [case for case in cases if (output / f"{case}.json").exists()]:
        sys.exit(
            f"{str(output / there[0])!r} is recorded already; delete its files first if it has to be recorded anew"
        )
    output.mkdir(exist_ok=True)
    for case in cases:
        record(case, arguments.python, output)


def record(case: str, python: str, output: Path) -> None:
    """Follow a recipe in namespaces of its own, and pack the directory that it leaves into `output`."""
    directory = case_directory(case)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    os.chown(directory, OWNER_UID, OWNER_UID)
    namespaces = ("unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
    inside = (sys.executable, "-m", "tests.golden.make", "--inside", python, case)
    variables = {"TEST_CLIENTS": "", **os.environ, "PASSWD": _PASSWD, "OWNER_UID": str(OWNER_UID)}
    subprocess.run(
        [*namespaces, "sh", "-c", _ENTER, "sh", *inside], cwd=_REPOSITORY, env=variables, check=True
    )

    facts = json.loads((directory / _FACTS).read_text())
    (output / f"{case}.json").write_text(json.dumps(facts, indent=2) + "\n")
    archive = output / f"{case}.tar.gz"
    pack(directory, archive, excluded=(*EXCLUDED, _FACTS))
    shutil.rmtree(directory)
    print(f"{archive.stat().st_size:8d} {case}", flush=True)


def follow_recipe(case: str, python: str) -> None:
    """Follow a recipe, inside its namespaces."""
    environment = RecipeEnvironment(case_directory(case), python, os.environ.get("TEST_CONTAINER_IMAGE"))
    facts = RECIPES[case](environment)
    environment.write(_FACTS, json.dumps(facts))


if __name__ == "__main__":
    main()
