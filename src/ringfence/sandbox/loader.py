"""How the guest gets into a sandbox: a short loader on its command line reads the modules from the stream."""

import marshal
import zlib
from functools import cache
from importlib import resources

_LOADER = (
    "import os,marshal,zlib\n"
    "def r(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c:os._exit(3)\n"
    "  b+=c\n"
    " return b\n"
    "exec(marshal.loads(zlib.decompress(r(int(r(8))))))"
)
# The first code that runs: makes the package and its modules, in the order of their dependencies.
_BOOT = """
import sys
kind = type(sys)
package = kind("ringfence_guest")
package.__path__ = []
sys.modules["ringfence_guest"] = package
for name, source in SOURCES:
    module = kind("ringfence_guest." + name)
    module.__package__ = "ringfence_guest"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(source, "<ringfence guest " + name + ">", "exec"), module.__dict__)
sys.modules["ringfence_guest.main"].main()
"""
_ORDER = ("frames", "kernel", "tree", "files", "watchdog", "supervisor", "stream", "command", "main")


def guest_arguments() -> tuple[str, ...]:
    """Arguments of the interpreter: isolated, without site, the loader."""
    return ("-I", "-S", "-c", _LOADER)


@cache
def guest_payload() -> bytes:
    """What is written to the stream first: eight digits of length, then the compressed modules.

    `marshal` here carries text only, which every Python 3 reads alike.
    """
    folder = resources.files("ringfence.sandbox.guest")
    sources = [(name, (folder / f"{name}.py").read_text("utf-8")) for name in _ORDER]
    packed = zlib.compress(marshal.dumps(f"SOURCES = {sources!r}\n{_BOOT}", 2), 6)
    return b"%08d" % len(packed) + packed
