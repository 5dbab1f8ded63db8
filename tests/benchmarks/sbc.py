"""Simulation-based calibration [Talts 2018]: whether posteriors are right when data come from the prior.

    python tests/benchmarks/sbc.py --replicates 150 --out sbc.png

Each replicate draws hyperparameters, factors, noise and effects of groups from the model's own prior, ratings from
them, and samples the posterior at the default step of so few data. The rank of the truth among thinned draws must then
be uniform: of the predictor of pairs that were not rated, of the mean squared predictor, of tau or a threshold, of
effects and their precisions. Prints, for each, the mean of rank / L with its standard error (.5 if right; above: the
posterior is too low), the chi-square of ten bins and its p, and how many chains diverged; draws the differences of the
ranks' distribution function from the uniform one, with 95 % bands.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from mpi4py import MPI
from scipy.stats import binom, chi2

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.likelihoods.thresholds import GAP_SD, MIDDLE_SD, values_of
from dsgmcmc.model.model import FactorModel
from dsgmcmc.model.parts import RowPriors
from dsgmcmc.model.parts.base import Place
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor

ROWS, COLUMNS, RANK, PAIRS = 40, 30, 3, 5
DRAWS, THIN, BURN_IN = 99, 15, 300
BINS = 10
MODELS: dict[str, dict[str, Any]] = {
    "noise shared": {},
    "noise both": {"noise": "both"},
    "levels": {"likelihood": "ordinal-logit"},
}


class Parameters(NamedTuple):
    """Parameters, whether from the prior or of a draw.

    Attributes
    ----------
    eta : (ROWS, COLUMNS)
        Predictors of all pairs.
    level : float
        tau, or the first threshold.
    """

    eta: np.ndarray
    level: float


class Truth:
    """Parameters from the prior, and ratings of n pairs.

    Attributes
    ----------
    parameters : Parameters
    rated : (n, 2) int
        Pairs in order.
    asked : (PAIRS, 2) int
        Pairs that are not rated.
    ratings : (n,)
    """

    def __init__(self, rng: np.random.Generator, config: ResolvedConfig, n: int) -> None:
        eta, levels = predictors(rng, config.law.width), not config.law.has_noise
        cells = rng.permutation(ROWS * COLUMNS)
        self.rated, self.asked = (
            np.transpose(np.divmod(each, COLUMNS)) for each in (np.sort(cells[:n]), cells[n : n + PAIRS])
        )
        if levels:
            cuts = values_of(rng.normal(size=2) * [GAP_SD, MIDDLE_SD])
            noise, level = rng.logistic(size=eta.shape), cuts[0]
        else:
            level = rng.gamma(1.0)
            noise = rng.normal(size=eta.shape) / np.sqrt(level * own_noise(rng, config.noise))
        self.parameters = Parameters(eta, level)
        self.ratings = (eta + noise)[tuple(self.rated.T)]
        if levels:
            self.ratings = (self.ratings[:, None] > cuts).sum(axis=1).astype(float)

    def ranked(self, of: Parameters) -> dict[str, np.ndarray]:
        """What is ranked: quantities by name."""
        eta = of.eta
        found = {"predictor": eta[tuple(self.asked.T)], "mean square": [(eta**2).mean()], "level": [of.level]}
        return {name: np.asarray(values) for name, values in found.items()}

    def write(self, path: Path) -> None:
        """Write the ratings file."""
        i, j = self.rated.T
        indptr = np.searchsorted(i, np.arange(ROWS + 1)).astype(np.int64)
        part = (indptr, j.astype(np.int32), self.ratings.astype(np.float32))
        none = (np.zeros(ROWS + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
        write_ratings(path, part, none, np.arange(ROWS), np.arange(COLUMNS), seed=0, source="prior")


def predictors(rng: np.random.Generator, width: float) -> np.ndarray:
    """Predictors of all pairs from the rows' priors, (ROWS, COLUMNS)."""
    model = RowPriors(RANK, standardised=True, width=width)
    factors = []
    for n in (ROWS, COLUMNS):
        precision = rng.gamma(model.precision_prior.shape, 1 / model.precision_prior.rate, RANK)
        bias = rng.gamma(model.bias_prior.shape, 1 / model.bias_prior.rate)
        mean = rng.normal(size=RANK) / np.sqrt(precision)
        theta = mean + rng.normal(size=(n, RANK)) / np.sqrt(precision)
        factors.append((theta, rng.normal(size=n) / np.sqrt(bias)))
    (w, a), (h, b) = factors
    return a[:, None] + b + w @ h.T


def own_noise(rng: np.random.Generator, noise: str) -> np.ndarray:
    """What tau is multiplied by, (ROWS, COLUMNS)."""
    found = np.ones((ROWS, COLUMNS))
    for shape in ((ROWS, 1), (1, COLUMNS)) if noise == "both" else ():
        nu = 2 ** (rng.integers(65) / 8 + 2)
        found *= rng.gamma(nu / 2, 2 / nu, shape)
    return found


def parameters_of(target: FactorTarget) -> Parameters:
    """The parameters of a chain's state."""
    sides = []
    for factor in Factor:
        theta = [block["theta"] for block in target.blocks() if block.factor == factor]
        sides.append(np.concatenate(theta).astype(np.float64))
    w, h = sides
    eta = w[:, :RANK] @ h[:, :RANK].T + w[:, RANK:] + h[:, RANK]
    law = target.likelihood
    level = float(target.model.noise.parameters.tau[0] if law.has_noise else law.thresholds.values[0])
    return Parameters(eta, level)


def make(path: Path, config: ResolvedConfig, sampler: Sampler[Any, Any]) -> FactorTarget:
    """A chain's target, with ratings as they are: the prior is that of ratings in their own unit."""
    ring, law = Ring(MPI.COMM_SELF, 1), config.law
    with open_ratings(path) as ratings:
        levels = law.levels_of(ratings)
        blocks = RatingBlocks(ratings, ring, 0.0, codes=lambda values: law.codes(values, levels))
        by_parts = sampler.gradient.by_parts
        sizes = config.quantities_for(ratings).sizes
        place = Place(config, ratings.transposed, blocks, ring, sizes, by_parts=by_parts)
        model = FactorModel.of(place, FactorModel.read(config, ratings, blocks, ring))
        schedule = Schedule(config.schedule, blocks.part_sizes.tolist(), config.seed, 0) if by_parts else None
        keeps = sampler.kept, sampler.working, sampler.positions
        return FactorTarget(ring, blocks, schedule, model, *keeps, RandomStream(config.seed, 0))


def ranks(seed: int, settings: dict[str, Any], sampler: str, n: int, scale: float) -> dict[str, np.ndarray] | None:
    """Ranks of the truth among the draws, by name; None if the chain diverged.

    Ratings of levels are drawn again, with their truth, until every level has a twentieth of them.
    """
    rng, kind = np.random.default_rng(seed), build({"sampler": sampler}).sampler.kind
    config = kind.suited(kind.Config(), n, n / ((ROWS + COLUMNS) * (RANK + 1)))
    if "step_size" in kind.Config.model_fields:
        config = config.model_copy(update={"step_size": config.step_size * scale})
    section = {"name": sampler} | config.model_dump()
    given = {"rank": RANK, "grid": 1, "seed": seed, "sampler": section, "burn_in": BURN_IN} | settings
    resolved = build({**given, "iterations": BURN_IN + DRAWS * THIN}).resolved()
    truth = Truth(rng, resolved, n)
    while not resolved.law.has_noise and np.bincount(truth.ratings.astype(int), minlength=3).min() < n / 20:
        truth = Truth(rng, resolved, n)
    maker = resolved.make_sampler()
    with tempfile.TemporaryDirectory() as folder:
        truth.write(Path(folder) / "r.h5")
        target = make(Path(folder) / "r.h5", resolved, maker)
    target.reset()
    maker.start(target, resolved.initial_sd)
    true, below = truth.ranked(truth.parameters), None
    for iteration in range(BURN_IN + DRAWS * THIN):
        target.begin(iteration)
        maker.step(target, iteration)
        if iteration >= BURN_IN and (iteration - BURN_IN) % THIN == THIN - 1:
            drawn = truth.ranked(parameters_of(target))
            if not all(np.isfinite(values).all() for values in drawn.values()):
                return None
            below = {name: (below[name] if below else 0) + (drawn[name] < true[name]) for name in true}
    return below


def tell(name: str, found: np.ndarray) -> str:
    """One line on ranks (replicates, quantities): mean of rank / L, and the chi-square of bins."""
    share = (found + 0.5) / (DRAWS + 1)
    error = share.mean(axis=1).std(ddof=1) / np.sqrt(len(found))
    counts, _ = np.histogram(share[:, 0], BINS, (0, 1))
    square = ((counts - len(found) / BINS) ** 2).sum() / (len(found) / BINS)
    p = chi2.sf(square, BINS - 1)
    return f"{name:22} mean rank {share.mean():.3f} +- {error:.3f}   chi-square {square:5.1f} of {BINS - 1}, p {p:.3f}"


def draw(panels: dict[str, np.ndarray], out: Path) -> None:
    """Difference of the ranks' distribution function from the uniform one, with pointwise 95 % bands."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3), sharey=True)
    level = np.linspace(0, 1, DRAWS + 1)
    for axis, (name, found) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        n = len(found)
        low, high = (binom.ppf(q, n, level) / n - level for q in (0.025, 0.975))
        axis.fill_between(level, low, high, color="0.88")
        for column in found.T:
            share = np.sort((column + 0.5) / (DRAWS + 1))
            axis.plot(level, np.searchsorted(share, level) / n - level, lw=0.9)
        axis.set(title=name, xlabel="rank / L")
    np.atleast_1d(axes)[0].set_ylabel("distribution - uniform")
    figure.tight_layout()
    figure.savefig(out, dpi=90)


def main() -> None:
    """Run the replicates, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--ratings", type=int, default=500)
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--step", type=float, default=1.0, help="times the default step")
    parser.add_argument("--model", dest="models", action="append", choices=MODELS, help="by default all")
    parser.add_argument("--out", type=Path, help="picture to write")
    arguments = parser.parse_args()
    panels = {}
    for model in arguments.models or MODELS:
        each = [
            ranks(seed, MODELS[model], arguments.sampler, arguments.ratings, arguments.step)
            for seed in range(arguments.replicates)
        ]
        found = [ranked for ranked in each if ranked is not None]
        print(f"{model}: {len(each) - len(found)} of {len(each)} diverged")
        for name in found[0]:
            columns = np.array([ranked[name] for ranked in found])
            print(tell(f"  {name}", columns), flush=True)
            panels[f"{name}, {model}"] = columns
    if arguments.out:
        draw(panels, arguments.out)


if __name__ == "__main__":
    main()
