"""``dsgmcmc verify``: whether a file or run is intact, and the digest of its content."""

from __future__ import annotations

from dsgmcmc.cli.options import JsonOption, PathArgument, kind_of
from dsgmcmc.errors import anew
from dsgmcmc.terminal import say, say_json


@anew
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check all checksums and the structure, and print the digest of the content.

    The digest of a run covers its newest checkpoint, its saved draws and its posterior. It does not depend on the
    number of processes that wrote them, nor on how often the run was resumed. Files without a checksum are listed.

    \b
    Examples:
      dsgmcmc verify run
      dsgmcmc verify run --json | jq -r .digest
    """
    from dsgmcmc.storage.verify import verify_snapshot

    kind, unchecked = kind_of(path), list[str]()
    if kind == "ratings file":
        from dsgmcmc.data.ratings import open_ratings

        with open_ratings(path) as ratings:
            ratings.verify()
            digest = ratings.digest
    elif kind == "run":
        from dsgmcmc.diagnostics.audit import audit
        from dsgmcmc.storage.rundir import RunDirectory

        digest, unchecked = audit(RunDirectory(path))
    else:
        digest = verify_snapshot(path)
    if as_json:
        facts = {"path": str(path), "kind": kind, "valid": True, "digest": digest}
        say_json({**facts, "unchecked": unchecked} if kind == "run" else facts, indent=None)
    else:
        say(f"{path}: a valid {kind}, digest {digest}")
    if unchecked and not as_json:
        say(f"without a checksum: {'; '.join(unchecked)}")
