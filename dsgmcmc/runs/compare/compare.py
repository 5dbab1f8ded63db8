"""Compares candidate models on ratings that are held out of the training ones: samples, scores, and chooses.

A candidate's chain is a run of its own, in a folder that goes at the end. Its scores where it is looked at are kept in
a file there, so that a comparison that was stopped goes on, with the same choice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from dsgmcmc.config.accuracy import LEAST_DRAWS
from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.inner import InnerSplit
from dsgmcmc.diagnostics.comparison import Comparison, Model
from dsgmcmc.diagnostics.mixing import ess_bulk
from dsgmcmc.diagnostics.ranking import MAX_USERS
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.parallel.comm import agree
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.posterior.heldout import TestPredictions
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.compare.candidates import ADDED, BIASES_ONLY, Candidate, candidates, laws_for
from dsgmcmc.runs.compare.choice import BURN_IN_SWEEPS, TRIAL, best_of, half_way, helpful, length_of, recommended
from dsgmcmc.runs.compare.scores import Halves, Metric, Scores, ranking_scores, recorded_values, scores_of
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.logs import logs_as_before, start_logs
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.files import write_whole
from dsgmcmc.terminal import say
from dsgmcmc.types import Array, Comm, Float64

DRAWS, RANKING_DRAWS = 5, 20  # draws that a candidate keeps for its rankings, at least; where they are the criterion
MIN_ESS_RATIO = 2  # times the effective sample size of the median prediction is above that by which runs end
RANKED_USERS = 300  # users whose rankings are measured where they are not the criterion
HELD_OUT_SHARE = 0.1  # of the training ratings
HELD_OUT_MIN = 1000  # ratings, of few up to a quarter


class Stopped(Exception):
    """A comparison was stopped at a checkpoint; `status` is the exit status of its job."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def held_out_of(ratings: Ratings, seed: int) -> InnerSplit:
    """Divide the training ratings of an open file: of some of them models are sampled, and judged by the others."""
    return InnerSplit(ratings, min(0.25, max(HELD_OUT_SHARE, HELD_OUT_MIN / ratings.nnz)), seed)


class Asked(NamedTuple):
    """What is compared, the same on all processes.

    Attributes
    ----------
    seed : int
        Of chains, and of what is held out.
    metric : Metric
    models : list of Candidate
        Those that ratings and settings admit.
    fixed : dict
        Settings of all chains.
    length : int
        Sweeps of each.
    """

    seed: int
    metric: Metric
    models: list[Candidate]
    fixed: dict[str, Any]
    length: int


class Measured(NamedTuple):
    """What is kept of a candidate where it is looked at: its scores, and what its whole run will take.

    Attributes
    ----------
    scores : Scores
        Of no rating where its chain diverged.
    rmse : float
        Not a number where there is none.
    seconds : float
        Of an iteration, as measured.
    iterations : float
        That the whole run will make.
    """

    scores: Scores
    rmse: float = np.nan
    seconds: float = np.nan
    iterations: float = np.nan

    def save(self, path: Path, **predictions: Array | None) -> None:
        """Write it at once, with predictions of the test ratings."""
        kept: dict[str, Any] = {**self.scores._asdict(), **self._asdict(), **predictions}
        del kept["scores"]
        file = io.BytesIO()
        np.savez(file, **{name: each for name, each in kept.items() if each is not None})
        write_whole(path, [file.getbuffer()])

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Read it."""
        with np.load(path, allow_pickle=False) as kept:
            scores = Scores(kept["each"], kept["owners"], float(kept["error"]))
            return cls(scores, *(float(kept[name]) for name in ("rmse", "seconds", "iterations")))


class Comparing:
    """A comparison on all processes.

    Parameters
    ----------
    comm : Comm
        All processes.
    source : RatingsSource
        Ratings file.
    folder : Path
        Where chains and scores lie meanwhile.
    layers : Layers
        Settings of all candidates; those of the model restrict what is compared.
    metric : Metric, optional
        Default: log probability of the level, if ratings have levels; of clicks NDCG; else log density.
    policy : Policy, optional
        What to do when time runs out or something goes wrong.
    signals : Signals, optional
        Of a program that has installed them; else the caller's handlers are borrowed.
    quiet : bool
        Whether to show no progress.
    """

    def __init__(
        self,
        comm: Comm,
        source: RatingsSource,
        folder: Path,
        layers: Layers,
        metric: Metric | None = None,
        policy: Policy | None = None,
        signals: Signals | None = None,
        quiet: bool = False,
    ) -> None:
        self._comm, self._folder, self._layers, self._metric = comm, folder, layers, metric
        self._policy, self._signals, self._quiet = policy or Policy(), signals, quiet
        self._root = comm.rank == 0
        self._whole = source

    def run(self) -> Comparison:
        """Compare. Collective.

        Raises
        ------
        InputError
            If settings or ratings are wrong, or too few to hold some out.
        Stopped
            If it was stopped: the same again goes on.
        """
        with logs_as_before(), threadpool_limits(1, user_api="blas"):  # so that scores do not depend on threads
            start_logs(self._comm.rank, self._policy.log_level, quiet=True)
            self._asked: Asked = self._comm.bcast(agree(self._comm, self._plan if self._root else lambda: None))
            self._inner = self._inner_source(self._asked.seed)
            self._measured: dict[tuple[int, int], Measured] = {}
            result = self._comm.bcast(agree(self._comm, partial(self._result, *self._choose())))
            if self._root:
                shutil.rmtree(self._folder, ignore_errors=True)
        return Comparison.model_validate(result)

    # ------------------------------------------------------------------ what is compared

    def _inner_source(self, seed: int) -> RatingsSource:
        return RatingsSource(self._whole.path, view=partial(held_out_of, seed=seed))

    def _plan(self) -> Asked:
        """Find what to compare; on process 0."""
        asked = self._whole.build({}, *self._layers.read())
        whole, inner = self._whole.ratings, self._inner_source(asked.seed)
        ratings = inner.ratings
        clicks = ratings.minimum == ratings.maximum
        fixed = {"rank": asked.rank, "chains": 1, "until": "none", "burn_in": f"{BURN_IN_SWEEPS}sweeps"}
        fixed |= {"evaluate_every": "10sweeps", "save_draws": DRAWS, "checkpoint_every": "10min"}
        given = any(layer.get("rank", "auto") != "auto" for layer in self._layers.read())
        laws = [law for law in laws_for(Levels.of(ratings)) if not (given and law == BIASES_ONLY)]
        described, timed = bool(whole.features), whole.times is not None
        found = candidates(clicks=clicks, features=described, times=timed, laws=laws)
        admitted, configs, refused = list[Candidate](), list[ResolvedConfig](), None
        for each in found:
            try:
                config = self._config(inner, each, fixed)
            except InputError as error:
                refused = refused or error
                continue
            if config.hash() not in {known.hash() for known in configs}:
                admitted.append(each)
                configs.append(config)
        if not admitted:
            assert refused is not None
            raise refused
        recorded = recorded_values(ratings) is not None
        usual: Metric = "log-probability" if recorded else "log-density"
        if not all(config.law.can_be_evaluated() for config in configs):
            usual = "ndcg"
            if self._metric not in (None, usual):
                raise InputError(f"{named('metric')} {self._metric}: clicks have no values, and are compared by ndcg")
        if self._metric == "log-probability" and not recorded:
            raise InputError(f"{named('metric')} log-probability: the ratings have no levels; take log-density or rmse")
        length = length_of(ratings.nnz, admitted)
        metric = self._metric or usual
        if metric == "ndcg":
            fixed["save_draws"] = RANKING_DRAWS
        what = [ratings.digest, metric, length, *(config.hash() for config in configs)]
        identity = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        self._begin(identity)
        return Asked(asked.seed, metric, admitted, fixed, length)

    def _begin(self, identity: str) -> None:
        """Make the folder of a comparison, unless this one has begun there before; one of something else goes."""
        note = self._folder / "identity"
        if self._folder.is_symlink() or (self._folder.exists() and any(self._folder.iterdir()) and not note.is_file()):
            raise InputError(f"{self._folder} is not the folder of a comparison: move it out of the way")
        if note.is_file() and note.read_text(encoding="utf-8") != identity:
            shutil.rmtree(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        note.write_text(identity, encoding="utf-8")

    def _config(self, source: RatingsSource, candidate: Candidate, last: Mapping[str, Any]) -> ResolvedConfig:
        """Configuration of a candidate on these ratings; raises InputError if they do not admit it."""
        config = source.build({}, *self._layers_of(candidate, last).read()).resolved(
            self._comm.size, source.finest_grid()
        )
        source.check(config, self._comm.size)
        return config

    def _layers_of(self, candidate: Candidate, last: Mapping[str, Any]) -> Layers:
        """Settings of a candidate; the rank of all others is not that of biases only."""
        own = {"rank": 0} if candidate.law == BIASES_ONLY else {}
        return self._layers._replace(below=candidate.settings, above={**last, **own})

    # ------------------------------------------------------------------ sampling

    def _choose(self) -> tuple[int, int]:
        """Sample the candidates; return the numbers of the recommended and of the best one. Collective."""
        number_of = {each: number for number, each in enumerate(self._asked.models)}
        laws = self._sample([number for each, number in number_of.items() if not each.added])
        if not laws:
            raise DivergenceError(f"every model that was compared diverged: use a smaller {named('step_size')}")
        having = {number: each for number, each in laws.items() if self._asked.models[number].law != BIASES_ONLY}
        if not having:  # all that have factors diverged
            return recommended(laws), best_of(laws)
        law = self._asked.models[recommended(having)]
        trial = law._replace(law=TRIAL.get(law.law, law.law))
        trial = trial if trial in number_of else law
        alone = [number for each, number in number_of.items() if each.law == trial.law and len(each.added) <= 1]
        scores = laws | self._sample(alone)
        parts = {
            part for number in helpful(scores, number_of[trial], alone) for part in self._asked.models[number].added
        }
        together = law._replace(added=tuple(part for part in ADDED if part in parts))
        scores |= self._sample([number_of.get(together, number_of[law])])
        return recommended(scores), best_of(scores)

    def _sample(self, numbers: list[int]) -> dict[int, Scores]:
        """Scores of candidates at the end of their chains, without those that diverged. Collective."""
        return self._sample_to(list(self._sample_to(numbers, half_way(self._asked.length))), self._asked.length)

    def _sample_to(self, numbers: list[int], sweeps: int) -> dict[int, Scores]:
        """Scores of candidates after so many sweeps, without those that diverged. Collective."""
        for number in numbers:
            if (number, sweeps) not in self._measured:
                if self._root and not self._quiet:
                    say(f"{sweeps} sweeps of {self._asked.models[number].name}", file=sys.stderr)
                self._measured[number, sweeps] = self._measure(number, sweeps)
        scores = {number: self._measured[number, sweeps].scores for number in numbers}
        return {number: each for number, each in scores.items() if len(each.each)}

    def _measure(self, number: int, sweeps: int) -> Measured:
        """Sample a candidate up to a length, unless its scores are known. Collective."""
        kept = self._file(number, sweeps)
        if not self._comm.bcast(self._root and kept.is_file()):
            try:
                self._advance(number, sweeps)
                work = partial(self._look, number, sweeps)
            except DivergenceError:
                work = partial(Measured(Scores(np.zeros(0), np.zeros(0, np.int32))).save, kept)
            agree(self._comm, work if self._root else lambda: None, "comparing models")
        result: Measured = self._comm.bcast(agree(self._comm, lambda: Measured.read(kept) if self._root else None))
        return result

    def _advance(self, number: int, sweeps: int) -> None:
        """Sample the chain of a candidate up to a length. Collective."""
        last = {**self._asked.fixed, "iterations": f"{sweeps}sweeps"}
        layers = self._layers_of(self._asked.models[number], last)
        policy = replace(self._policy, on_divergence="stop") if number else self._policy
        job = Job(self._comm, self._inner, self._run_of(number), layers, resume=True, policy=policy, quiet=True)
        if self._signals is None:
            job.run_inside()
        elif status := job.run(self._signals):
            raise Stopped(status)

    def _run_of(self, number: int) -> Path:
        return self._folder / f"{number}"

    def _file(self, number: int, sweeps: int) -> Path:
        return self._folder / f"{number}-{sweeps}.npz"

    # ------------------------------------------------------------------ measuring, on process 0

    @cached_property
    def _recorded(self) -> Float64 | None:
        return recorded_values(self._inner.ratings)

    @cached_property
    def _rated(self) -> Rated:
        return Rated(self._inner.ratings)

    def _look(self, number: int, sweeps: int) -> None:
        """Score a candidate's chain as it is now, and keep that."""
        run, rmse, last = Run(self._run_of(number)), np.nan, sweeps == self._asked.length
        summary, test = read_summary(run.directory.summary_file), run.test
        seconds = summary["seconds_sampling"] / max(summary["iterations_made"], 1)
        if self._asked.metric == "ndcg":
            scores = ranking_scores(run, self._rated, MAX_USERS, last)
        else:
            scores = scores_of(run, self._asked.metric, self._first_part(number) if last else None, self._recorded)
        if run.config.law.can_be_evaluated():
            rmse = float(np.sqrt(np.mean(np.square(test.rating - test.mean))))
        predictions = {} if last else vars(test)
        Measured(scores, rmse, seconds, self._iterations(run, number)).save(self._file(number, sweeps), **predictions)

    def _first_part(self, number: int) -> Halves:
        """Predictions of a candidate where it was looked at."""
        names = [field.name for field in dataclasses.fields(TestPredictions)]
        with np.load(self._file(number, half_way(self._asked.length)), allow_pickle=False) as kept:
            first = TestPredictions(**{name: kept[name] for name in names if name in kept})
        return Halves(first, (half_way(self._asked.length) - BURN_IN_SWEEPS) / (self._asked.length - BURN_IN_SWEEPS))

    def _iterations(self, run: Run, number: int) -> float:
        """Iterations that the whole run of a candidate will make, by the effective sample size of this one."""
        config = self._config(self._whole, self._asked.models[number], {})
        if not config.until or "ess" not in config.wanted:
            return config.iterations
        followed = np.stack(run.followed()[1]).astype(np.float64)
        if not followed.size or followed.shape[1] < 2 * LEAST_DRAWS:
            return config.iterations
        size = float(np.median(ess_bulk(followed))) / MIN_ESS_RATIO
        sampled = config.burn_in + followed.shape[1] * config.thin * config.wanted["ess"] / size
        return float(min(sampled, config.iterations))

    def _result(self, chosen: int, best: int) -> dict[str, Any]:
        """Make the table; on process 0."""
        if not self._root:
            return {}
        asked, models = self._asked, []
        for number in sorted({number for number, _ in self._measured}):
            sweeps = max(length for each, length in self._measured if each == number)
            models.append(self._row(number, sweeps, self._measured[best, sweeps].scores))
        names = {each.name for each in models}
        inner = self._inner.ratings
        return Comparison(
            data_hash=self._whole.digest(),
            metric=asked.metric,
            training=inner.nnz,
            held_out=inner.nnz_test,
            models=models,
            left_out=[each.name for each in asked.models if each.name not in names],
            best=asked.models[best].name,
            recommended=asked.models[chosen].name,
        ).model_dump()

    def _row(self, number: int, sweeps: int, best: Scores) -> Model:
        candidate, measured = self._asked.models[number], self._measured[number, sweeps]
        config = self._config(self._whole, candidate, {})
        memory = Costs.of(config, self._whole.ratings, self._comm.size).memory_per_process
        row = Model(name=candidate.name, settings=dict(candidate.settings), sweeps=sweeps, memory=memory)
        if not len(measured.scores.each):
            return row
        rooted, mean = self._asked.metric == "rmse", float(measured.scores.each.mean())
        gap = measured.scores.behind(best)
        unit = 2 * measured.rmse if rooted else 1.0  # of a difference of mean squared errors
        listed = mean if self._asked.metric == "ndcg" else None
        if sweeps == self._asked.length and listed is None:
            ranked = ranking_scores(Run(self._run_of(number)), self._rated, RANKED_USERS, False).each
            listed = float(ranked.mean()) if len(ranked) else None  # perhaps nobody likes what is held out
        found: dict[str, float | None]
        found = {"criterion": measured.rmse if rooted else mean, "behind": gap.mean / unit, "error": gap.error / unit}
        found |= {"rmse": None if np.isnan(measured.rmse) else measured.rmse, "ndcg": listed}
        return row.model_copy(update={**found, "seconds": measured.seconds * measured.iterations})
