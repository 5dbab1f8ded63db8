"""Check the files of a run against their checksums."""

from __future__ import annotations

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.verify import verify_run


def audit(run: RunDirectory) -> str:
    """Check every file of a run, and return the digest of its content (`dsgmcmc.storage.verify`).

    Raises InputError naming the first file that is wrong.
    """
    ResolvedConfig.of_run(run)
    digest = verify_run(run)
    if run.summary_file.exists():
        read_summary(run.summary_file)
    if run.comparison_file.exists():
        Comparison.read(run.comparison_file)
    return digest
