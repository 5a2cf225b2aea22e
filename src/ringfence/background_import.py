"""Large modules that a thread imports while the process does something else."""

import threading
from importlib import import_module

_NAME = "background import"


def import_in_background(*modules: str) -> threading.Thread:
    """Begin to import modules in a daemon thread, in this order; what needs one of them later waits for it."""
    thread = threading.Thread(target=_import, args=modules, name=_NAME, daemon=True)
    thread.start()
    return thread


def is_importing() -> bool:
    """Whether such a thread is still at work: an interpreter that ends meanwhile may crash with SIGSEGV."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def _import(*modules: str) -> None:
    for module in modules:
        import_module(module)
