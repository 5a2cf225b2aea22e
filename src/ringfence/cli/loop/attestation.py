"""`ringfence loop attest`: attaches an attestation to a loop's branch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import AnchorOption, CertificateOption, JsonOption, SignWithOption
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from ringfence.integrations.attestation.loop_attestation import AttestedLoop


def attest(
    loop: Annotated[
        str | None, typer.Argument(metavar="LOOP", help="Id of a loop or its end; default: the newest here.")
    ] = None,
    *,
    sign_with: SignWithOption = None,
    anchor: AnchorOption = None,
    tsa_certificate: CertificateOption = None,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="REMOTE", help="Push the note to this remote, as `git push` does."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Attach an attestation to the last commit of a loop's branch.

    It states that the branch's tree passed the loop's checks in a sandbox of its own. `ringfence attest verify --tree .
    --commit BRANCH` verifies it.
    """
    import anyio

    from ringfence.cli.output import notify
    from ringfence.integrations.attestation.loop_attestation import attest_loop, push_notes
    from ringfence.loop.pull_request import users_environment
    from ringfence.loop.repository.source import find_source
    from ringfence.loop.selection import select_loop
    from ringfence.loop.store import read_store

    async def run() -> "AttestedLoop":
        directory = await select_loop(loop, Path.cwd())
        store = read_store(directory)
        made = await attest_loop(
            directory,
            store,
            signers=tuple(sign_with or ("journal",)),
            anchors=tuple(anchor or ()),
            certificates=tsa_certificate,
        )
        if push is not None:
            source = find_source(Path(store.loop.source))
            await push_notes(source, push, users_environment(source.root))
        return made

    made = anyio.run(run)
    if json:
        document = {"branch": made.branch, "commit": made.commit, "run": made.run, "digest": made.digest}
        typer.echo(safe_json(document, indent=2))
        return
    typer.echo(f"attested: {made.branch} at {made.commit[:12]}, run {made.run}, {made.digest}")
    if push is None:
        notify("push it with the branch: `git push REMOTE 'refs/notes/ringfence*'`")
