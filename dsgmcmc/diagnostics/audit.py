"""Check the files of a run against their checksums, and list files without a checksum."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import GoneError
from dsgmcmc.storage.facts import IDENTITY_FACTS, MADE_WITH
from dsgmcmc.storage.manifest import MANIFEST, read_manifest
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import is_on_its_way
from dsgmcmc.storage.verify import verify_run
from dsgmcmc.storage.writer import SET_ASIDE

#: Files that every job changes, and whose contents are never used as data.
LIVE = ("lock", "listening")
MOST_SHOWN = 5


class Audit(NamedTuple):
    """Result of an audit.

    Attributes
    ----------
    digest : str
        Digest of the contents (`dsgmcmc.storage.verify`).
    unchecked : list of str
        Files, and parts of ``run.toml``, without a checksum.
    """

    digest: str
    unchecked: list[str]


def audit(run: RunDirectory) -> Audit:
    """Check every file of a run. Raises InputError naming the first file that is wrong."""
    config, facts = ResolvedConfig.of_run(run)
    digest = verify_run(run)
    known = {run.settings_file, run.summary_file, run.comparison_file, *(run.path / name for name in LIVE), *run.logs()}
    if run.summary_file.exists():
        read_summary(run.summary_file)
    if run.comparison_file.exists():
        Comparison.read(run.comparison_file)
    foreign, bound = [], set(IDENTITY_FACTS)
    for folder, _, names in os.walk(run.path):
        files = {Path(folder) / name for name in names}
        if MANIFEST in names and SET_ASIDE not in Path(folder).name:
            try:
                manifest = read_manifest(Path(folder))
            except GoneError:  # a running job may remove this snapshot during the audit
                continue
            known |= {Path(folder) / name for name in (MANIFEST, *manifest.shards)}
            bound |= set(manifest.about.get(MADE_WITH, {}))
        foreign += sorted(path for path in files - known if path.is_file() and not is_on_its_way(path))
    free = (set(config.table()) & set(CHANGEABLE)) | (set(facts) - bound)
    shown = [str(path.relative_to(run.path)) for path in foreign[:MOST_SHOWN]]
    if len(foreign) > MOST_SHOWN:
        shown.append(f"{len(foreign) - MOST_SHOWN} more files")
    return Audit(digest, [f"{run.settings_file.name} ({', '.join(sorted(free))})", *shown])
