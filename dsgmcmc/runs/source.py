"""The ratings of a job: this module checks settings against them, makes the targets of chains, and
scores results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.config.chain import DEFAULT_LENGTH
from dsgmcmc.config.run import ResolvedConfig, RunConfig, automatic_rank, build, merged
from dsgmcmc.data.precision import find_bad_scale
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics.baselines import BiasesOnly, advantage, baselines, fit_biases_only
from dsgmcmc.diagnostics.convergence import agreement, diagnose, slowest, temperatures
from dsgmcmc.diagnostics.scores import held_out_scores
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.likelihoods.ordinal import recognised_levels
from dsgmcmc.model.parts import PARTS
from dsgmcmc.model.parts.base import ModelFacts
from dsgmcmc.model.parts.rows import start_precision
from dsgmcmc.model.scale import on_scale
from dsgmcmc.model.target import FactorTarget, SamplerFields, make_parts, read_parts
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.posterior.heldout import test_parts
from dsgmcmc.posterior.names import write_index
from dsgmcmc.posterior.rank import liked_facts
from dsgmcmc.posterior.run import Run, newest_states
from dsgmcmc.runs.warm_start import WarmStart, start_digest
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import Facts, RunDirectory, made_with
from dsgmcmc.storage.store import Key
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.terminal import log

#: With more elements of the factors per rating, even exact Gibbs sampling mistakes noise for
#: structure.
MAX_ELEMENTS_PER_RATING = 3
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
        self.path, self.start = path, start
        self._view = view
        self._earlier: WarmStart | None = None
        self._biases: dict[str, BiasesOnly] = {}

    @cached_property
    def ratings(self) -> Ratings:
        """The open ratings; the file is opened and checked only once, because a check may take
        longer than a run.
        """
        opened = Ratings(self.path)
        return opened if self._view is None else self._view(opened)

    def biases_only(self, config: ResolvedConfig) -> BiasesOnly:
        """The fitted Gaussian model with biases only on the scale of a run, a baseline for all
        models on this scale.
        """
        if config.scale not in self._biases:
            self._biases[config.scale] = fit_biases_only(
                self.ratings, on_scale(Gaussian, config.scale)
            )
        return self._biases[config.scale]

    def build(self, saved: Mapping[str, Any], *layers: Mapping[str, Any]) -> RunConfig:
        """Merge and check settings: `layers` override `saved`, and later layers override earlier
        layers.

        `saved` has the settings of a resumed run. It is empty for a new run, which may take its
        model from an earlier run. Settings that are still unset are chosen to suit the ratings.
        """
        if self.start is not None and not saved:
            self._earlier = WarmStart(self.start)
            saved = self._earlier.model()
        requested = build(saved, self._usual(saved, *layers), *layers)
        ratings = self.ratings
        n, rows = ratings.nnz, ratings.n_rows + ratings.n_cols
        rank = automatic_rank(n, rows) if requested.rank == "auto" else requested.rank
        config = requested.sampler.kind.adapted_to_data(
            requested.sampler.config, n, n / (rows * (rank + requested.biases))
        )
        suited: dict[str, Any] = {
            "sampler": requested.sampler.model_copy(update={"config": config}),
            "rank": rank,
        }
        if "prior_precision" not in merged(saved, *layers):
            suited["prior_precision"] = min(requested.prior_precision, start_precision(rank))
        if requested.until is None and requested.iterations is None and not ratings.nnz_test:
            log.info(
                "without test ratings a run has no target accuracy: it ends after %s",
                DEFAULT_LENGTH,
            )
            suited["iterations"] = DEFAULT_LENGTH
        return requested.model_copy(update=suited)

    def _usual(self, saved: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the default likelihood that suits the ratings: for two values logistic, if the
        settings admit it.
        """
        values, logistic = self.ratings.levels(2), {"likelihood": "ordinal-logit"}
        if values is None or len(values) < 2 or "likelihood" in merged(saved, *layers):
            return {}
        try:
            build(saved, logistic, *layers).resolved()
        except InputError:
            return {}
        said = (
            "ratings of two values, %g and %g, get the likelihood ordinal-logit (logistic): choose"
            " another by %s"
        )
        log.info(said, *values, named("likelihood"))
        return logistic

    def resolve(
        self, processes: int, saved: Mapping[str, Any], *layers: Mapping[str, Any]
    ) -> ResolvedConfig:
        """Resolve the settings of `build` for `processes` processes in all chains together, and
        check them.

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
        """Refuse settings that `processes` processes per chain cannot sample; warn of doubtful
        settings.
        """
        ratings = self.ratings
        for part in PARTS.values():
            part.check_ratings(config, ratings)
        if config.grid > ratings.n_cols:
            raise InputError(
                f"{named('grid')} {config.grid} is more than the {ratings.n_cols} columns of"
                f" {self.path}"
            )
        check_limits(config, ratings)
        if self._earlier is not None:
            self._earlier.check(config, config.law.levels_of(ratings))
            self._earlier.rows_of(ratings)
        check_values(ratings, config)
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

    def prepare(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Write the names of users and items, and starting values if any; return facts for
        ``run.toml``.

        The facts include the scores of the baselines; a resumed run does not compute them again.
        """
        saved = run.read_settings()[1] if run.settings_file.exists() else {}
        saved_baselines, start = saved.get("baselines"), saved.get("start")
        if saved and self.start is not None and start is None:
            raise InputError(
                f"{run.path} did not start from another run: leave out {named('from')} to"
                " continue it"
            )
        if start is not None and start != start_digest(run):
            raise InputError(
                f"{run.start()} is incomplete, or has changed since the run started: start"
                " another run"
            )
        ratings = self.ratings
        levels = config.law.levels_of(ratings)
        if levels is None:
            levels = recognised_levels(ratings)
        scored = ratings.nnz_test and config.law.can_be_evaluated
        facts = {
            "data": str(self.path.absolute()),
            "mean": _centre(config, config.law.view(ratings)),
            "minimum": ratings.minimum,
            "maximum": ratings.maximum,
            "transposed": ratings.transposed,
            **({} if levels is None else {"levels": levels.tolist()}),
            **liked_facts(ratings),
            "ratings": ratings.nnz,
            "test_ratings": ratings.nnz_test,
            **({"cautions": warnings} if (warnings := warnings_for_data(config, ratings)) else {}),
            **(
                {"baselines": saved_baselines or baselines(ratings, self.biases_only(config))}
                if scored
                else {}
            ),
        }
        write_index(run, ratings, config.hash(), made_with(facts))
        if self._earlier is not None:
            start = self._earlier.write(run, ratings, config, made_with(facts))
        return facts if start is None else facts | {"start": start}

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

    def results(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """Return the results of a run for its summary.

        Returns
        -------
        dict
            ``tau`` (posterior mean; null if there is no noise), ``rank``, ``draws`` (number in all
            chains); ``temperatures``, ``agreement`` of chains and ``slowest`` shared parameters
            (`dsgmcmc.diagnostics.convergence`); ``rmse_mean``, ``mae_mean`` and other scores on the
            ``test_ratings`` (`dsgmcmc.diagnostics.scores`); ``untrained``, how many of these are of
            users or items without training ratings; ``baselines`` and ``over_biases``
            (`dsgmcmc.diagnostics.baselines`). For clicks, and without test ratings, ``rmse_mean``
            and ``mae_mean`` are null. Clicks have ``rankings`` instead, if draws were saved
            (`dsgmcmc.diagnostics.ranking`).
        """
        taus = [
            snapshot.read(Key("trace", "run", 0, "tau"))
            for snapshot in newest_states(run, run.read_settings()[1])
        ]
        tau = float(np.concatenate(taus).mean()) if taus and config.law.has_noise else None
        common: dict[str, Any] = {"tau": tau, "rank": config.rank, "draws": sum(map(len, taus))}
        common["temperatures"] = temperatures(run, self.ratings.transposed)
        if common["draws"]:
            diagnosis = diagnose(Run(run.path))
            common |= {"slowest": slowest(diagnosis, config), "agreement": agreement(diagnosis)}
        no_scores = {"rmse_mean": None, "mae_mean": None}
        if not config.law.can_be_evaluated:
            if not (clicks := sum(len(part.rating) for part in test_parts(run))):
                return {**no_scores, **common}
            opened = Run(run.path)
            if opened.draws:  # rankings need them
                from dsgmcmc.diagnostics.ranking import (
                    click_scores,
                )  # other runs start faster without it

                common["rankings"] = click_scores(opened, self.ratings)
            return {**no_scores, "test_ratings": clicks, **common}
        recorded = run.read_settings()[1].get("levels")
        levels = None if recorded is None else np.array(recorded, np.float64)
        scores = held_out_scores(test_parts(run), config.law, levels)
        if scores is None:
            return {**no_scores, **common}
        scores["coverage"] = {str(level): share for level, share in scores["coverage"].items()}
        over_biases = None  # without factors
        if config.rank:
            over_biases = advantage(
                test_parts(run),
                law=config.law,
                levels=levels,
                ratings=self.ratings,
                biases=self.biases_only(config),
            )
        return {
            "rmse_mean": scores.pop("rmse"),
            "mae_mean": scores.pop("mae"),
            "test_ratings": scores.pop("ratings"),
            "untrained": self.ratings.untrained(),
            **scores,
            "baselines": run.read_settings()[1].get("baselines"),
            "over_biases": over_biases,
            **common,
        }


def _centre(config: ResolvedConfig, ratings: Ratings) -> float:
    """Return the number to subtract from ratings: their mean, or 0 for levels, for counts, and
    without ``center``.

    Ratings, their mean and the result are on the scale of the likelihood.

    Instead of the mean, levels have thresholds, and counts have prior means.
    """
    return ratings.mean if config.center and not config.law.replaces_mean else 0.0


def targets_of(config: ResolvedConfig, ratings: Ratings, ring: Ring) -> MakeTarget:
    """Read the ratings, and return a function that makes a chain's target in its initial state.

    Collective.
    """
    levels = ring.agree(partial(config.law.levels_of, ratings))
    scaled = ring.agree(partial(config.law.view, ratings))
    centre, codes = _centre(config, scaled), partial(config.law.codes, levels=levels)
    blocks = RatingBlocks(scaled, ring, centre, config.standardise, codes)
    data = read_parts(config, scaled, blocks, ring)
    sizes = config.quantities_for(ratings).sizes

    def make(chain: int, sampler: Sampler[Any, Any]) -> FactorTarget:
        by_parts = sampler.gradient.by_parts
        model = ModelFacts(
            config=config,
            transposed=ratings.transposed,
            ratings=blocks,
            ring=ring,
            sizes=sizes,
            subchains=len(sampler.positions),
            by_parts=by_parts,
            moves_from=sampler.moves_from,
        )
        schedule = None
        if by_parts:
            sizes_of_parts = blocks.part_sizes.tolist()
            schedule = Schedule(config.schedule, sizes_of_parts, config.seed, chain)
        return FactorTarget(
            ring,
            blocks,
            make_parts(model, data),
            SamplerFields(sampler.kept, sampler.working, sampler.positions),
            stream=RandomStream(config.seed, chain),
            schedule=schedule,
            sizes=sizes,
            hyper_start=config.hyper_start,
        )

    return make


# ---------------------------------------------------- checks of a configuration against the ratings


def warnings_for_data(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Return warnings about a model that does not suit the ratings, for example about too large a
    rank.
    """
    warnings = [*config.law.warnings_for_data(ratings, config.likelihood), *ratings.doubts()]
    rows_and_columns = ratings.n_rows + ratings.n_cols
    elements = config.rank * rows_and_columns
    if config.law.is_sum_over_ratings and elements > MAX_ELEMENTS_PER_RATING * ratings.nnz:
        published = (
            ""
            if config.standardise
            else ", and leave out standardise: the published priors are too wide here"
        )
        warnings.insert(
            0,
            f"{elements:,} elements of factors for {ratings.nnz:,} training ratings: the data"
            " hardly tell noise from factors, so tau means little; leave out --rank, or try --rank"
            f" {automatic_rank(ratings.nnz, rows_and_columns)}{published}",
        )
    return warnings


def check_values(ratings: Ratings, config: ResolvedConfig) -> None:
    """Refuse ratings that the likelihood does not accept, or whose squares or variances are too
    large for float32.
    """
    config.law.check_ratings(config, ratings)
    low, high = ratings.minimum, ratings.maximum
    for x in ratings.values("test"):
        low, high = float(x.min(initial=low)), float(x.max(initial=high))
    if bad := find_bad_scale(low, high):
        raise InputError(f"{ratings.path}: {bad}")


def check_limits(config: ResolvedConfig, ratings: Ratings) -> None:
    """Refuse a block of rows with more test ratings than a 32-bit index can address."""
    tested = int(np.diff(ratings.test_indptr[block_bounds(ratings.row_indptr, config.grid)]).max())
    if tested >= 2**31:
        raise InputError(
            f"a block of rows would have {tested:,} test ratings, too many: use a larger"
            f" {named('grid')}"
        )
