"""A project whose change by a run passed a check, and can be attested."""

import shutil
from pathlib import Path

from tests.promises.product import Product, says

CLONE = ("--mode", "clone")


def change(product: Product) -> Product:
    """Put a project under git, and let a run change it in a private copy."""
    product.write("app.py", "one\n")
    product.git("init", "-q", "-b", "main")
    product.git("config", "user.name", "Ada Example")
    product.git("config", "user.email", "ada@example.com")
    product.git("add", "-A")
    product.git("commit", "-q", "-m", "start")
    model = product.script(says("", "echo two > app.py; echo new > new.txt"), says("done"))
    ended = product.run(model, *CLONE, "--verify", "grep -q two app.py")
    assert ended.code == 0, ended
    return product


def journal_key(product: Product) -> Path:
    """The public key of the state directory, where a verifier has it."""
    return Path(shutil.copy(product.state / "keys" / "journal-ed25519.pub", product.place / "journal.pub"))
