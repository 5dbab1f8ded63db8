"""``dsgmcmc verify``: whether a file or run is whole, and the digest of its content."""

from __future__ import annotations

import json

from dsgmcmc.cli.options import JsonOption, PathArgument, kind_of


def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check every checksum and the structure, and print the digest of the content.

    The digest of a run is of its newest checkpoint, its saved draws and its posterior. It does not depend on the
    number of processes that wrote them, nor on how often the run was resumed.

    \b
    Examples:
      dsgmcmc verify run
      dsgmcmc verify run --json | jq -r .digest
    """
    from dsgmcmc.storage.verify import verify_run, verify_snapshot

    kind = kind_of(path)
    if kind == "ratings file":
        from dsgmcmc.data.ratings import open_ratings

        with open_ratings(path) as ratings:
            ratings.verify()
            digest = ratings.digest
    elif kind == "run":
        from dsgmcmc.storage.rundir import RunDirectory

        digest = verify_run(RunDirectory(path))
    else:
        digest = verify_snapshot(path)
    if as_json:
        print(json.dumps({"path": str(path), "kind": kind, "valid": True, "digest": digest}))
    else:
        print(f"{path}: a valid {kind}, digest {digest}")
