"""Sends the guest into a sandbox: a short loader on its command line reads the modules from the stream.

Each module is sent in two forms: as compiled code, for an interpreter of the host's own version, and as source, for all
others. Compiling the source takes longer than all other steps of opening a sandbox; the compiled code is the one that
Python caches for each module that it imports.
"""

import marshal
import zlib
from functools import cache
from importlib import resources
from importlib.abc import InspectLoader
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType

_LOADER = (
    "import posix as os,marshal\n"
    "def r(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c:os._exit(3)\n"
    "  b+=c\n"
    " return b\n"
    "P=marshal.loads(r(int(r(8))))\n"
    "exec(P[0])"
)
# The code that the loader runs: creates the package and its modules, in the order of their dependencies.
_BOOT = """
import marshal, sys
_, magic, codes, sources = P
if sys.modules["_frozen_importlib_external"].MAGIC_NUMBER == magic:
    modules = marshal.loads(codes)
else:
    import zlib
    modules = [
        (name, compile(source, "<ringfence guest " + name + ">", "exec"))
        for name, source in marshal.loads(zlib.decompress(sources))
    ]
kind = type(sys)
package = kind("ringfence_guest")
package.__path__ = []
sys.modules["ringfence_guest"] = package
future = sys.modules["__future__"] = kind("__future__")  # each module imports it: the real one would be read from a file
future.annotations = None
for name, code in modules:
    module = kind("ringfence_guest." + name)
    module.__package__ = "ringfence_guest"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(code, module.__dict__)
del P, codes, sources, modules, future, sys.modules["__future__"]
sys.modules["ringfence_guest.main"].main()
"""
_PACKAGE = "ringfence.sandbox.guest"
_ORDER = (
    "frames",
    "kernel",
    "processes",
    "files",
    "usage",
    "watchdog",
    "shim",
    "stream",
    "command",
    "executor",
    "connection",
    "main",
)
_ANY_VERSION = 2
"""The version of marshal's format in which every Python 3 reads text and bytes in the same way."""


def guest_arguments() -> tuple[str, ...]:
    """Arguments of the interpreter inside: isolated mode, no `site`, and the loader."""
    return ("-I", "-S", "-c", _LOADER)


@cache
def guest_payload() -> bytes:
    """The first bytes on the stream: the length in eight digits, then the modules in both forms."""
    folder = resources.files(_PACKAGE)
    sources = [(name, (folder / f"{name}.py").read_text("utf-8")) for name in _ORDER]
    codes = [(name, _compiled(f"{_PACKAGE}.{name}")) for name in _ORDER]
    packed = marshal.dumps(
        (_BOOT, MAGIC_NUMBER, marshal.dumps(codes), zlib.compress(marshal.dumps(sources, _ANY_VERSION), 1)),
        _ANY_VERSION,
    )
    return b"%08d" % len(packed) + packed


def _compiled(module: str) -> CodeType:
    """The compiled code of a module, from Python's cache if possible: compiling all modules takes 30 ms."""
    spec = find_spec(module)
    assert spec is not None
    assert isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(module)
    assert code is not None
    return code
