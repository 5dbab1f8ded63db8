"""The ratings of a job: settings are checked against them, chains sample them, scores use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.config.chain import DEFAULT_LENGTH, DEFAULT_SAMPLER, SamplerSection
from dsgmcmc.config.run import ResolvedConfig, RunConfig, automatic_rank, build, merged
from dsgmcmc.diagnostics.baselines import Advantage, BiasesOnly, baselines, fit_biases_only
from dsgmcmc.diagnostics.convergence import agreement, diagnose, slowest, temperatures, unmixed
from dsgmcmc.diagnostics.scores import TestScores
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.centring import Unit, robust_unit
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.limits import FACT as LIMITS
from dsgmcmc.model.likelihoods.limits import RESOLUTION_FACT as RESOLUTION
from dsgmcmc.model.likelihoods.limits import limits_of, resolution_of
from dsgmcmc.model.likelihoods.ordinal.ordinal import recognised_levels
from dsgmcmc.model.likelihoods.student_t import FEW_VALUES
from dsgmcmc.model.log_scale import on_scale
from dsgmcmc.model.parts.base import ChainFacts
from dsgmcmc.model.parts.rows import have_movable_sizes, start_precision
from dsgmcmc.model.target import FactorTarget, SamplerFields, make_parts, read_parts
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.posterior.heldout import test_parts
from dsgmcmc.posterior.index import write_index
from dsgmcmc.posterior.lists.liked import liked_facts
from dsgmcmc.posterior.progress import newest_states
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.description import doubts_about_test, independent_tests
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.float32 import find_bad_scale
from dsgmcmc.ratings.reversed_items import describe_reversed
from dsgmcmc.runs.models import LOGARITHMS, RatedValues, RunRatings, chosen_by_ratings
from dsgmcmc.runs.warm_start import WarmStart, start_digest
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_policy import DataCounts
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import Facts, RunDirectory, made_with
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.terminal import log

#: With more elements of the factors per rating, even exact Gibbs sampling mistakes noise for
#: structure.
MAX_ELEMENTS_PER_RATING = 3
#: Scores of a run without test ratings, and of a run on clicks.
NO_SCORES: dict[str, Any] = {"rmse_mean": None, "mae_mean": None}
#: Makes the target of a chain in its state before the first iteration, given the chain number for
#: random numbers (`dsgmcmc.targets.state.restarted_chain`) and the sampler.
MakeTarget = Callable[[int, Sampler[Any, Any]], FactorTarget]


class RatingsSource:
    """The ratings of a job.

    All processes use `ratings` and `start_chain`; only process 0 uses the rest.

    Parameters
    ----------
    path : Path
        Ratings file.
    start : Path, optional
        Earlier run from which a new run starts. A resumed run does not read it: it has a copy of
        the starting values.
    view : callable, optional
        Returns the ratings to use, for example a subset, given the open ratings.
    """

    def __init__(
        self,
        path: Path,
        start: Path | None = None,
        view: Callable[[Ratings], Ratings] | None = None,
    ) -> None:
        self.path = path
        self.start = start
        self._view = view
        self._earlier: WarmStart | None = None
        self._biases: dict[str, BiasesOnly] = {}

    @cached_property
    def ratings(self) -> Ratings:
        """The open ratings.

        The file is opened and checked only once, because a check may take longer than a run.
        """
        opened = Ratings(self.path)
        if self._view is None:
            return opened
        return self._view(opened)

    def biases_only(self, config: ResolvedConfig) -> BiasesOnly:
        """Return the fitted Gaussian model with biases only, a baseline on the scale of a run."""
        if config.scale not in self._biases:
            law = on_scale(GaussianRatings, config.scale)
            self._biases[config.scale] = fit_biases_only(self.ratings, law)
        return self._biases[config.scale]

    # ------------------------------------------------------------------ settings

    def build(self, saved: Mapping[str, Any], *layers: Mapping[str, Any]) -> RunConfig:
        """Merge and check settings; those that are still unset are chosen to suit the ratings.

        Parameters
        ----------
        saved : dict
            Settings of a resumed run; empty for a new run, which may have the model of an earlier
            run.
        *layers : dict
            Settings that override `saved`; later layers override earlier layers.
        """
        if self.start is not None and not saved:
            self._earlier = WarmStart(self.start)
            saved = self._earlier.model()
        # the sampler "auto" of a layer must not take back the one that is chosen here
        layers = tuple(map(merged, layers))
        ratings = self.ratings
        chosen_before = merged(saved, *layers)
        by_ratings = chosen_by_ratings(RunRatings(ratings, self.biases_only), chosen_before)
        requested = build(saved, by_ratings, *layers)
        entities = ratings.n_rows + ratings.n_cols
        rank = requested.rank
        if rank == "auto":
            rank = automatic_rank(ratings.nnz, entities)
        chosen: dict[str, Any] = {"rank": rank, "sampler": self._sampler_for(requested, rank)}
        if "prior_precision" not in chosen_before:
            chosen["prior_precision"] = min(requested.prior_precision, start_precision(rank))
        chosen |= self._as_begun(requested, saved, chosen_before)
        if requested.until is None and requested.iterations is None and not ratings.nnz_test:
            log.info(
                "without test ratings a run has no target accuracy: it ends after %s",
                DEFAULT_LENGTH,
            )
            chosen["iterations"] = DEFAULT_LENGTH
        return requested.model_copy(update=chosen)

    def _as_begun(
        self, requested: RunConfig, saved: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return settings of new runs that runs of earlier versions lack, and go on without."""
        begun: dict[str, Any] = {}
        if requested.thresholds == "item" and saved.get("thresholds") != "item":
            begun["item_levels"] = chosen.get("item_levels", "observed")
        if not saved and "coupled_noise" not in chosen:
            # of levels and rare counts, the rows with little noise are no small ones: robust.md
            is_measured = requested.draws_noise_scales and self.ratings.levels(FEW_VALUES) is None
            begun["coupled_noise"] = is_measured
        if not saved and "size_moves" not in chosen:
            is_default = requested.sampler.name == DEFAULT_SAMPLER
            begun["size_moves"] = is_default and have_movable_sizes(requested.prior, requested.law)
        return begun

    def _sampler_for(self, requested: RunConfig, rank: int) -> SamplerSection:
        """Return the sampler of a run, with step sizes that suit the number of ratings."""
        section = requested.sampler
        ratings = self.ratings
        elements = (ratings.n_rows + ratings.n_cols) * (rank + requested.biases)
        evenness = 0.0
        if requested.law.has_noise:
            most = max(np.diff(ratings.row_indptr).max(), ratings.column_counts.max())
            evenness = ratings.nnz / min(ratings.n_rows, ratings.n_cols) / max(most, 1)
        counts = DataCounts(
            n=ratings.nnz, per_parameter=ratings.nnz / elements, evenness=float(evenness)
        )
        config = section.algorithm.Steps.for_data(section.config, counts)
        return section.model_copy(update={"config": config})

    def resolve(
        self, processes: int, saved: Mapping[str, Any], *layers: Mapping[str, Any]
    ) -> ResolvedConfig:
        """Resolve the settings of `build`, and check them.

        `processes` is the number of processes of all chains together.

        Raises
        ------
        InputError
            If settings are wrong, or the ratings do not admit them.
        """
        requested = self.build(saved, *layers)
        per_chain = -(-processes // min(processes, requested.chains))
        config = requested.resolved(per_chain, self.ratings.n_cols)
        self._check(config, per_chain)
        return config

    def _check(self, config: ResolvedConfig, processes: int) -> None:
        """Refuse settings that cannot be sampled; warn of doubtful ones.

        `processes` is the number of processes per chain.
        """
        ratings = self.ratings
        if config.grid > ratings.n_cols:
            raise InputError(
                f"{named('grid')} {config.grid} is more than the {ratings.n_cols} columns of"
                f" {self.path}"
            )
        check_limits(config, ratings)
        if self._earlier is not None:
            self._earlier.check(config, config.law.levels_of(ratings))
            self._earlier.match_rows(ratings)
        config.check_ratings(ratings)
        check_values(ratings)
        if config.until and not ratings.nnz_test:
            raise InputError(
                f"until {config.until} needs predictions of test ratings, and {self.path} has none:"
                f" give {named('until')} none, or prepare it with {named('test_fraction')} 0.1"
            )
        for text in warnings_for_data(config, ratings):
            log.warning("%s", text)
        if processes > config.grid:
            raise InputError(
                f"{processes} processes cannot share a grid of {config.grid} blocks: start at most"
                f" {config.grid} processes per chain, or a new run with {named('grid')}"
                f" {2 * processes}"
            )

    # ------------------------------------------------------------------ the run directory

    def prepare(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Write the names of users and items, and starting values if any.

        Returns
        -------
        dict
            Facts for ``run.toml``. They include the scores of the baselines, which a resumed run
            does not compute again.
        """
        saved: Facts = {}
        if run.settings_file.exists():
            _, saved = run.read_settings()
            self._check_start(run, saved.get("start"))
        ratings = self.ratings
        levels = config.law.levels_of(ratings)
        if levels is None:
            levels = recognised_levels(ratings)
        found = {
            "data": str(self.path.absolute()),
            "mean": _unit(config, config.law.transform.view(ratings)).centre,
            "minimum": ratings.minimum,
            "maximum": ratings.maximum,
            "transposed": ratings.orientation.transposed,
            "levels": None if levels is None else levels.tolist(),
            RESOLUTION: resolution_of(ratings),
            LIMITS: list(limits_of(ratings, config.law)),
            **liked_facts(ratings),
            "ratings": ratings.nnz,
            "test_ratings": ratings.nnz_test,
            **_facts_of_measurements(ratings),
            "cautions": warnings_for_data(config, ratings) or None,
            "baselines": self._baselines(config, saved),
        }
        facts = {name: fact for name, fact in found.items() if fact is not None}
        write_index(run, ratings, config.hash(), made_with(facts))
        start = saved.get("start")
        if self._earlier is not None:
            start = self._earlier.write(run, ratings, config, made_with(facts))
        if start is not None:
            facts["start"] = start
        return facts

    def _check_start(self, run: RunDirectory, start: str | None) -> None:
        """Compare the starting values of a resumed run with their digest `start`, if it has any."""
        if start is None:
            if self.start is not None:
                raise InputError(
                    f"{run.path} did not start from another run: leave out {named('from')} to"
                    " continue it"
                )
            return
        if start != start_digest(run):
            raise InputError(
                f"{run.start()} is incomplete, or has changed since the run started: start"
                " another run"
            )

    def _baselines(self, config: ResolvedConfig, saved: Facts) -> object:
        """Return the scores of the baselines, from the facts of a resumed run if it has them.

        None if there are no test ratings, or nothing is said of them.
        """
        ratings = self.ratings
        if not ratings.nnz_test or not config.law.can_be_evaluated:
            return None
        found = saved.get("baselines")
        if found:
            return found
        return baselines(ratings, self.biases_only(config), limits_of(ratings, config.law))

    def start_chain(
        self, run: RunDirectory, facts: Facts, chain: int, target: FactorTarget
    ) -> None:
        """Move a target to the earlier run's values or, without such a run, to fitted biases.

        Collective.
        """
        if "start" in facts:
            target.ring.agree(
                lambda: target.take_start(run.open_start(chain, facts)), "starting from another run"
            )
        else:
            target.fit_biases()

    # ------------------------------------------------------------------ results

    def results(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Return the results of a run for its summary.

        Returns
        -------
        dict
            ``tau`` (posterior mean; null if there is no noise), ``rank``, ``draws`` (number in all
            chains); ``temperatures``, ``agreement`` of chains, ``slowest`` and ``unmixed`` shared
            parameters (`dsgmcmc.diagnostics.convergence`); ``rmse_mean``, ``mae_mean`` and other
            scores on the ``test_ratings`` (`dsgmcmc.diagnostics.scores`); ``untrained``, how many
            of these are of users or items without training ratings, and ``independent``, how many
            count if each of these users and items counts once; ``baselines`` and ``over_biases``
            (`dsgmcmc.diagnostics.baselines`). For clicks, and without test ratings, ``rmse_mean``
            and ``mae_mean`` are null. Clicks have ``rankings`` instead, if draws were saved
            (`dsgmcmc.diagnostics.ranking`).
        """
        of_chains = self._results_of_chains(run, config)
        if config.law.can_be_evaluated:
            scores = self._scores(run, config)
        else:
            scores = self._scores_of_clicks(run)
        return {**scores, **of_chains}

    def _results_of_chains(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Return the results that need no test ratings."""
        _, facts = run.read_settings()
        traced_tau = Key("trace", "run", 0, "tau")
        taus = [snapshot.read(traced_tau) for snapshot in newest_states(run, facts)]
        draws = sum(map(len, taus))
        tau = None
        if taus and config.law.has_noise:
            tau = float(np.concatenate(taus).mean())
        results: dict[str, Any] = {
            "tau": tau,
            "rank": config.rank,
            "draws": draws,
            "temperatures": temperatures(run, self.ratings.orientation),
        }
        if draws:
            diagnosis = diagnose(Run(run.path))
            results["slowest"] = slowest(diagnosis, config)
            results["unmixed"] = unmixed(diagnosis, config)
            results["agreement"] = agreement(diagnosis)
        return results

    def _scores(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Return the scores on the test ratings, if any."""
        _, facts = run.read_settings()
        levels = None
        if facts.get("levels") is not None:
            levels = np.array(facts["levels"], np.float64)
        over_biases = None
        if config.rank and self.ratings.nnz_test:  # the model has more than biases
            over_biases = Advantage(self.ratings, self.biases_only(config))
        scorer = TestScores(config.law, levels, facts.get("grouped_by", ()))
        for test in test_parts(run):
            scored = scorer.add_test(test)
            if over_biases is not None:
                over_biases.add(scored)
        if not scorer.ratings:
            return dict(NO_SCORES)
        scores = scorer.result()
        scores["coverage"] = {str(level): share for level, share in scores["coverage"].items()}
        return {
            "rmse_mean": scores.pop("rmse"),
            "mae_mean": scores.pop("mae"),
            "test_ratings": scores.pop("ratings"),
            "untrained": self.ratings.untrained,
            "independent": independent_tests(self.ratings),
            **scores,
            "baselines": facts.get("baselines"),
            "over_biases": None if over_biases is None else over_biases.result(),
        }

    def _scores_of_clicks(self, run: RunDirectory) -> dict[str, Any]:
        """Return the scores of rankings on the test clicks, if any."""
        clicks = sum(len(part.rating) for part in test_parts(run))
        if not clicks:
            return dict(NO_SCORES)
        scores = {**NO_SCORES, "test_ratings": clicks}
        opened = Run(run.path)
        if opened.draws:  # rankings need them
            # here, because other runs start faster without it
            from dsgmcmc.diagnostics.ranking import click_scores

            scores["rankings"] = click_scores(opened, self.ratings)
        return scores


def _unit(config: ResolvedConfig, ratings: Ratings) -> Unit:
    """Return the centre and the unit of ratings: their mean and root mean square, or robust ones.

    The centre is 0 without ``center``, and for levels and counts, which have thresholds and prior
    means instead. Ratings and the result are on the scale of the likelihood.
    """
    if not config.center or config.law.replaces_mean:
        return Unit(0.0)
    if config.standardise and config.law.has_heavy_tails:
        robust = robust_unit(ratings)
        if robust is not None:
            return robust
    return Unit(ratings.mean)


def _noise_resolution(config: ResolvedConfig, ratings: Ratings) -> float | None:
    """Return the step whose rounding bounds the noise from below; None without a bound."""
    if not config.rounding_bounds_noise:
        return None
    return resolution_of(ratings)


def _facts_of_measurements(ratings: Ratings) -> dict[str, Any]:
    """Return facts about columns, reading, replicates, weights, bounds and directions, or None."""
    directions = None
    if ratings.directions is not None:
        directions = list(ratings.directions.columns)
    bounded = None
    if ratings.has_bounds:
        bounded = ratings.count_bounded("train")
    return {
        "columns": ratings.named_columns or None,
        "reading": ratings.reading.stored() or None,
        "directions": directions,
        "grouped_by": list(ratings.grouped_by) or None,
        "replicates": ratings.replicates or None,
        "mean_weight": ratings.mean_weight,
        "bounded": bounded,
    }


def targets_of(config: ResolvedConfig, ratings: Ratings, ring: Ring) -> MakeTarget:
    """Read the ratings, and return a function that makes a chain's target in its initial state.

    Collective.
    """
    levels = ring.agree(partial(config.law.levels_of, ratings))
    scaled = ring.agree(partial(config.law.transform.view, ratings))
    codes = partial(config.law.codes, levels=levels)
    unit = on_root(ring.comm, partial(_unit, config, scaled))
    blocks = RatingBlocks(
        scaled,
        ring,
        unit.centre,
        standardise=config.standardise,
        scale=unit.scale,
        codes=codes,
        limits=on_root(ring.comm, partial(limits_of, ratings, config.law)),
        resolution=on_root(ring.comm, partial(_noise_resolution, config, ratings)),
    )
    data = read_parts(config.law, config, ratings=scaled, blocks=blocks, ring=ring)
    facts = config.facts
    sizes = config.quantities_for(ratings).sizes

    def make(chain: int, sampler: Sampler[Any, Any]) -> FactorTarget:
        by_parts = sampler.gradient.by_parts
        of_chain = blocks.for_chain()
        chain_facts = ChainFacts(
            model=facts,
            orientation=ratings.orientation,
            ratings=of_chain,
            ring=ring,
            sizes=sizes,
            by_parts=by_parts,
            moves_from=sampler.moves_from,
        )
        schedule = None
        if by_parts:
            sizes_of_parts = blocks.part_sizes.tolist()
            schedule = Schedule(config.schedule, sizes_of_parts, config.seed, chain)
        return FactorTarget(
            ring,
            of_chain,
            make_parts(config, chain_facts, data),
            SamplerFields(
                sampler.kept, sampler.working, sampler.positions, momentum=sampler.momentum
            ),
            stream=RandomStream(config.seed, chain),
            schedule=schedule,
            sizes=sizes,
            hyper_start=config.hyper_start,
        )

    return make


# ---------------------------------------------------- checks of a configuration against the ratings


def warnings_for_data(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Return warnings about a model that does not suit the ratings."""
    warnings = [
        *config.law.warnings_for_data(ratings, config.likelihood),
        *doubts_about_test(ratings),
    ]
    if config.rank == 0 and config.law.levels_of(ratings) is not None:
        warnings += describe_reversed(ratings)
    warnings += _doubts_about_scale(config, ratings)
    entities = ratings.n_rows + ratings.n_cols
    elements = config.rank * entities
    if config.law.is_sum_over_ratings and elements > MAX_ELEMENTS_PER_RATING * ratings.nnz:
        warning = (
            f"{elements:,} elements of factors for {ratings.nnz:,} training ratings: the data"
            " hardly tell noise from factors, so tau means little; leave out"
            f" {named('rank')}, or try {named('rank')} {automatic_rank(ratings.nnz, entities)}"
        )
        if not config.standardise:
            warning += ", and leave out standardise: the published priors are too wide here"
        warnings.insert(0, warning)
    return warnings


def _doubts_about_scale(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Return a warning if logarithms of ratings are modelled in comparisons, and here they are not.

    Ratings are in random order: the first ones show it.
    """
    if config.scale != "identity" or config.likelihood not in ("gaussian", "student-t"):
        return []
    first = next(iter(ratings.values("train")))
    found = RatedValues(*np.unique(first.astype(np.float64), return_counts=True))
    for scale, are_suited in LOGARITHMS.items():
        if are_suited(found):
            return [
                f"ratings from {ratings.minimum:g} to {ratings.maximum:g} are skewed: try"
                f" {named('scale')} {scale}, which models their logarithms, or {named('model')}"
                " auto, which compares both"
            ]
    return []


def check_values(ratings: Ratings) -> None:
    """Refuse ratings whose squares overflow float32."""
    low = ratings.minimum
    high = ratings.maximum
    for values in ratings.values("test"):
        low = float(values.min(initial=low))
        high = float(values.max(initial=high))
    bad = find_bad_scale(low, high)
    if bad:
        raise InputError(f"{ratings.path}: {bad}")


def check_limits(config: ResolvedConfig, ratings: Ratings) -> None:
    """Refuse a block of rows with more test ratings than a 32-bit index can address."""
    bounds = block_bounds(ratings.row_indptr, config.grid)
    tested = int(np.diff(ratings.test_indptr[bounds]).max())
    if tested >= 2**31:
        raise InputError(
            f"a block of rows would have {tested:,} test ratings, too many: use a larger"
            f" {named('grid')}"
        )
