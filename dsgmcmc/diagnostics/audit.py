"""Check that the files of a run are those that were written, and list those without a checksum."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import GoneError
from dsgmcmc.storage.facts import DATA_FACTS, JOB_FACTS, MADE_WITH, made_with
from dsgmcmc.storage.manifest import MANIFEST, Manifest, read_manifest
from dsgmcmc.storage.rundir import INDEX, SERIES, RunDirectory
from dsgmcmc.storage.series import is_on_its_way, step_name, steps
from dsgmcmc.storage.verify import verify_run

#: Files that every job changes, and whose content is never used as data.
LIVE = ("lock", "listening")
MOST_SHOWN = 5


class Audit(NamedTuple):
    """Result of an audit.

    Attributes
    ----------
    digest : str
        Digest of the content, see `dsgmcmc.storage.verify`.
    unchecked : list of str
        Files, and parts of ``run.toml``, that are not under a checksum.
    """

    digest: str
    unchecked: list[str]


def audit(run: RunDirectory) -> Audit:
    """Check every file of a run. Raises InputError naming the first file that is wrong."""
    config, facts = ResolvedConfig.of_run(run)
    digest = verify_run(run)
    files = [Path(folder) / name for folder, _, names in os.walk(run.path) for name in names]
    manifests = dict(_manifests(run))
    bound = {name for manifest in manifests.values() for name in manifest.about.get(MADE_WITH, {})}
    settings = [name for name in config.table() if name in CHANGEABLE]
    loose = sorted({*DATA_FACTS, *JOB_FACTS, *(set(made_with(facts)) - bound)} & set(facts))
    unchecked = [f"{run.settings_file.name} ({', '.join(sorted([*settings, *loose]))})"]
    known = {run.settings_file, *(run.path / name for name in LIVE)}
    if run.summary_file.exists():
        known.add(run.summary_file)
        read_summary(run.summary_file)
    if run.comparison_file.exists():
        known.add(run.comparison_file)
        Comparison.read(run.comparison_file)
    known.update(run.logs())
    for folder, manifest in manifests.items():
        known |= {folder / MANIFEST, *(folder / shard for shard in manifest.shards)}
    foreign = sorted(  # a running job removes files and writes others meanwhile
        str(path.relative_to(run.path))
        for path in files
        if path not in known and path.is_file() and not is_on_its_way(path)
    )
    more = [f"{len(foreign) - MOST_SHOWN} more files"] if len(foreign) > MOST_SHOWN else []
    return Audit(digest, [*unchecked, *foreign[:MOST_SHOWN], *more])


def _manifests(run: RunDirectory) -> Iterator[tuple[Path, Manifest]]:
    """All snapshots of a run."""
    folders = [run.path / INDEX] if (run.path / INDEX).is_dir() else []
    for chain in run.chains():
        for kind in SERIES:
            parent = run.series(kind, chain)
            folders += [parent / step_name(iteration) for iteration in steps(parent)]
    for folder in folders:
        with suppress(GoneError):
            yield folder, read_manifest(folder)
