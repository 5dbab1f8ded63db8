"""Simulation-based calibration [Talts 2018]: whether posteriors are right when data come from the
prior.

    python tests/benchmarks/sbc.py --replicates 100

Each replicate draws hyperparameters, factors and noise from the model's own prior, ratings from
them, and samples the posterior at the default step of so few data. The rank of the truth among
thinned draws must then be uniform: of the predictor of pairs without a rating, of the mean squared
predictor, and of tau. Prints for each the mean of rank / L with its standard error (0.5 if right;
the posterior is too low if it is more), the chi-square of ten bins with nine degrees of freedom and
its p, and the number of chains that diverged.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, say, say_head
from chain_states import iterate
from mpi4py import MPI
from scipy.stats import chi2
from support import rows_of, write_cells

from dsgmcmc.config.run import ResolvedConfig, build
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts import RowPriors
from dsgmcmc.model.parts.base import ChainFacts
from dsgmcmc.model.parts.implicit_systems import PRIOR
from dsgmcmc.model.target import FactorTarget, SamplerFields, make_parts, read_parts
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_policy import DataCounts
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor

ROWS = 40
COLUMNS = 30
RATINGS = 500
RANK = 3
PAIRS = 5
DRAWS = 99
THIN = 15
BURN_IN = 300
BINS = 10
MODELS = {
    "shared": {},
    "both": {"noise": "both"},
    "implicit features": {"implicit_features": "both"},
}
Ranked = dict[str, np.ndarray]


def predictors(rng: np.random.Generator, width: float, pattern: np.ndarray | None) -> np.ndarray:
    """Predictors of all pairs from the rows' priors, (ROWS, COLUMNS); shifted, if there is a
    `pattern` of ratings.
    """
    model = RowPriors(RANK, standardised=True, width=width)
    factors = []
    for n, rated in ((ROWS, pattern), (COLUMNS, None if pattern is None else pattern.T)):
        precision = rng.gamma(model.precision_prior.shape, 1 / model.precision_prior.rate, RANK)
        bias = rng.gamma(model.bias_prior.shape, 1 / model.bias_prior.rate)
        mean = rng.normal(size=RANK) / np.sqrt(precision)
        theta = mean + rng.normal(size=(n, RANK)) / np.sqrt(precision)
        rows = np.column_stack([theta, rng.normal(size=n) / np.sqrt(bias)])
        if rated is not None:
            beta = rng.gamma(PRIOR.shape, 1 / PRIOR.rate, RANK + 1)
            y = rng.normal(size=(rated.shape[1], RANK + 1)) / np.sqrt(beta)
            rows += rated @ y / np.sqrt(rated.sum(axis=1))[:, None]
        factors.append((rows[:, :RANK], rows[:, RANK]))
    (w, a), (h, b) = factors
    return a[:, None] + b + w @ h.T


def noise_factors(rng: np.random.Generator, model: str) -> np.ndarray:
    """Factors (ROWS, COLUMNS) of the precision tau."""
    factors = np.ones((ROWS, COLUMNS))
    for shape in ((ROWS, 1), (1, COLUMNS)) if model == "both" else ():
        nu = 2 ** (rng.integers(65) / 8 + 2)
        factors *= rng.gamma(nu / 2, 2 / nu, shape)
    return factors


def state_of(target: FactorTarget) -> tuple[np.ndarray, float]:
    """Predictors of all pairs, and tau, in the state of a chain."""
    w, h = (rows_of(target, factor) for factor in Factor)
    return w[:, :RANK] @ h[:, :RANK].T + w[:, RANK:] + h[:, RANK], float(
        target.noise.parameters.tau
    )


def make(path: Path, config: ResolvedConfig, sampler: Sampler[Any, Any]) -> FactorTarget:
    """A chain's target, with ratings as they are: the prior is that of ratings in their own
    unit.
    """
    ring = Ring(MPI.COMM_SELF, 1)
    with Ratings(path) as ratings:
        blocks = RatingBlocks(
            ratings, ring, 0.0, codes=lambda values: config.law.codes(values, None)
        )
        chain = ChainFacts(
            model=config.facts,
            orientation=ratings.orientation,
            ratings=blocks,
            ring=ring,
            sizes=config.quantities_for(ratings).sizes,
            by_parts=False,
            moves_from=sampler.moves_from,
        )
        data = read_parts(config.law, config, ratings=ratings, blocks=blocks, ring=ring)
        return FactorTarget(
            ring,
            blocks,
            make_parts(config, chain, data),
            SamplerFields(sampler.kept, sampler.working, sampler.positions),
            stream=RandomStream(config.seed, 0),
            sizes=chain.sizes,
            hyper_start=config.hyper_start,
        )


def quantities(eta: np.ndarray, tau: float, asked: tuple[np.ndarray, ...]) -> Ranked:
    """Quantities that are ranked, by name, for predictors (ROWS, COLUMNS) and tau."""
    return {
        "predictor": eta[asked],
        "mean square": np.array([(eta**2).mean()]),
        "tau": np.array([tau]),
    }


def ranks(seed: int, model: str, sampler: str) -> Ranked | None:
    """Ranks of the truth among the draws, by name; None if the chain diverged."""
    sampler_type = build({"sampler": sampler}).sampler.algorithm
    counts = DataCounts(
        n=RATINGS,
        per_parameter=RATINGS / ((ROWS + COLUMNS) * (RANK + 1)),
        evenness=1.0,  # rows have about as many ratings
    )
    config = sampler_type.Steps.for_data(sampler_type.Config(), counts)
    section = {"name": sampler} | config.model_dump()
    settings = {
        "rank": RANK,
        "prior": "normal-gamma",
        "grid": 1,
        "seed": seed,
        "sampler": section,
        "burn_in": BURN_IN,
        **MODELS[model],
    }
    resolved = build({**settings, "iterations": BURN_IN + DRAWS * THIN}).resolved()
    rng = np.random.default_rng(seed)
    algorithm = resolved.make_sampler()
    cells = rng.permutation(ROWS * COLUMNS)
    tau = rng.gamma(1.0)
    rated, asked = (
        np.divmod(chosen, COLUMNS) for chosen in (np.sort(cells[:RATINGS]), cells[RATINGS:][:PAIRS])
    )
    pattern = np.zeros((ROWS, COLUMNS))
    pattern[rated] = 1
    eta = predictors(rng, resolved.law.width, pattern if "implicit" in model else None)
    ratings = eta + rng.normal(size=eta.shape) / np.sqrt(tau * noise_factors(rng, model))
    with tempfile.TemporaryDirectory() as folder:
        path = write_cells(Path(folder) / "r.h5", (ROWS, COLUMNS), *rated, ratings[rated])
        target = make(path, resolved, algorithm)
    target.reset()
    algorithm.start(target, resolved.initial_sd)
    truth = quantities(eta, tau, asked)
    below = {name: np.zeros(len(values)) for name, values in truth.items()}
    for iteration in iterate(target, algorithm, BURN_IN + DRAWS * THIN):
        if iteration >= BURN_IN and (iteration - BURN_IN) % THIN == THIN - 1:
            for name, values in quantities(*state_of(target), asked).items():
                if not np.isfinite(values).all():
                    return None
                below[name] += values < truth[name]
    return below


def line(below: np.ndarray) -> tuple[str, ...]:
    """Cells on ranks (replicates, quantities): mean of rank / L, its standard error, chi-square of
    bins, and p.
    """
    share = (below + 0.5) / (DRAWS + 1)
    error = share.mean(axis=1).std(ddof=1) / np.sqrt(len(below))
    counts, _ = np.histogram(share[:, 0], BINS, (0, 1))
    square = ((counts - len(below) / BINS) ** 2).sum() / (len(below) / BINS)
    return (
        f"{share.mean():.3f}",
        f"{error:.3f}",
        f"{square:.1f}",
        f"{chi2.sf(square, BINS - 1):.3f}",
    )


def main() -> None:
    """Run the replicates, and print."""
    parser = arguments(__doc__)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument(
        "--sampler", default="baoab", help="one whose gradients are of all ratings, or gibbs"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["shared", "both"])
    options = parser.parse_args()
    say_head("model, quantity", "mean rank", "standard error", "chi-square", "p", "diverged")
    for model in options.models:
        all_ranks = [ranks(seed, model, options.sampler) for seed in range(options.replicates)]
        kept = [ranked for ranked in all_ranks if ranked is not None]
        for name in kept[0]:
            cells = line(np.array([ranked[name] for ranked in kept]))
            say(f"{model}, {name}", *cells, f"{len(all_ranks) - len(kept)} of {len(all_ranks)}")


if __name__ == "__main__":
    main()
