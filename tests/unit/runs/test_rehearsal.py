"""What a run compiles, it has compiled before its clock starts."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from mpi4py import MPI

from dsgmcmc.config.layers import Layers
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.rehearsal import rehearse
from dsgmcmc.runs.resolve import resolve
from dsgmcmc.runs.sources.ratings import RatingsSource
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.storage.rundir import RunDirectory

SHORT: dict[str, Any] = {"grid": 3, "iterations": 27, "burn_in": 12, "evaluate_every": 5, "thin": 3}
RATINGS: list[dict[str, Any]] = [
    *({"sampler": {"name": name}, "rank": 3} for name in SAMPLERS),
    {"sampler": {"name": "hamcmc", "metric": "diagonal", "memory": 2}, "rank": 3},
    {"sampler": {"name": "sgld", "gradient": "full"}, "rank": 3, "prior": "normal-wishart"},
    {"sampler": {"name": "baoab"}, "rank": 3, "noise": "both", "implicit_features": "both"},
    {"sampler": {"name": "baoab", "metric": "kronecker"}, "rank": 3},
    {"sampler": {"name": "psgld"}, "rank": 3, "prior": "fixed", "biases": False},
    {"sampler": {"name": "baoab"}, "rank": 3, "features": "yes"},
]
#: Of ratings from 1 to 5.
STARS: list[dict[str, Any]] = [
    {"sampler": {"name": "baoab"}, "rank": 3, "likelihood": "ordinal-logit", "noise": "both"},
    {"sampler": {"name": "psgld"}, "rank": 3, "likelihood": "ordinal-probit"},
]


def kernels() -> set[str]:
    """All but the normal distribution function, which the summary takes when the clock has stopped."""
    made = {name for name in sys.modules if name.startswith("dsgmcmc_")}
    return {name for name in made if name.rpartition("_")[0] != "dsgmcmc_normal"}


def compare(source: RatingsSource, out: Path, settings: dict[str, Any]) -> None:
    """Rehearse a run, then run it: nothing is loaded any more."""
    layers = Layers(settings)
    config = resolve(MPI.COMM_SELF, source, RunDirectory(out), layers, resume=False, override=False).config
    rehearse(config, partial(source.miniature, config, Ring(MPI.COMM_SELF, 1)))
    rehearsed = kernels()
    rehearse(config, partial(source.miniature, config, Ring(MPI.COMM_SELF, 1)), rank=1)
    assert kernels() == rehearsed, "in another order it is something else"
    assert Job(MPI.COMM_SELF, source, out, layers).run() == 0
    assert kernels() == rehearsed, (settings, kernels() - rehearsed)


def test_runs_compile_nothing_after_their_rehearsal(tmp_path: Path) -> None:
    """Of every sampler: what is compiled inside a run spoils its times.

    In a process of its own, where no other test has loaded kernels.
    """
    from support import write_planted

    data = write_planted(tmp_path / "r.h5", features=(4, 3))
    stars = write_planted(tmp_path / "stars.h5", stars=True)
    done = subprocess.run(
        [sys.executable, __file__, data, stars, tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    file, stars, folder = map(Path, sys.argv[1:])
    given = [*((file, changed) for changed in RATINGS), *((stars, changed) for changed in STARS)]
    for number, (data, changed) in enumerate(given):
        thin = 5 if changed["sampler"]["name"] == "hamcmc" else 3
        compare(RatingsSource(data), folder / str(number), {**SHORT, "thin": thin, "features": "no", **changed})
