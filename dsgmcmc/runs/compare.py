"""Compares candidate models on held-out training ratings, and recommends one of them.

It depends on the data, the settings and the seed, but not on time.

1. *The likelihood.* The candidates are a model with biases only, and models with factors and each
   of the likelihoods that suit the ratings; all are without additions.
2. *The additions.* Each is tried alone, with the chosen likelihood. All that improve the score are
   then combined: small gains add up, and may be significant only together.
3. *The recommended model* is chosen by `dsgmcmc.runs.candidate_scores.recommended`.

All chains have the same length; that of a candidate that is clearly behind the best one ends after
half of its draws. Of a table of three directions, a likelihood is first chosen in the open file's
arrangement; with it, alone and with features, the arrangement; then 1 to 3 follow in this one. All
arrangements have the same held-out cells. A candidate whose chain diverges is excluded; only the
simplest one falls back to other samplers. Every chain is a run in a folder that is deleted at the
end, named by a hash of its ratings and settings, so a comparison that was stopped resumes.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits
from typing_extensions import override

from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig, RunConfig, automatic_rank, merged
from dsgmcmc.diagnostics.comparison import Comparison, Model
from dsgmcmc.diagnostics.scores import mae, rmse
from dsgmcmc.errors import DivergenceError, InputError, StoppedError
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.prepare.not_rated import find_codes
from dsgmcmc.ratings.directions import Arrangement, arrangements_of
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.runs.candidate_scores import (
    CandidateScores,
    acceptable,
    are_discrete,
    best_of,
    has_larger_error,
    in_order_of_cells,
    leading,
    outdone,
    ranking_scores,
    recommended,
    scores_of,
    simpler_with,
)
from dsgmcmc.runs.group import ChainGroup
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.models import (
    ADDED,
    BIASES_ONLY,
    BURN_IN_SWEEPS,
    CLICKS,
    Candidate,
    RatedValues,
    candidates,
    length_of,
    rules_for,
)
from dsgmcmc.runs.progress import logs
from dsgmcmc.runs.settings import Metric
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import ATTEMPT_SECONDS, Lock
from dsgmcmc.storage.store import open_array, write_array
from dsgmcmc.terminal import say
from dsgmcmc.types import Array

#: Of more training ratings than this number, those of some rows are left out, but at most of three
#: rows in four, whose values would slow down the draws of the priors of rows.
ENOUGH_RATINGS = 250_000
LEAST_ROWS = 0.25
#: Likelihoods that are replaced while several additions are tried, and their replacements: the
#: sweeps of Gaussian noise by user and item are shorter, and it draws time effects exactly.
TRIAL_LIKELIHOODS = {"ordinal": "noise"}
#: Likelihoods with noise levels of rows, and the same with one level.
ONE_NOISE = {"noise": "plain", "log noise": "log", "log1p noise": "log1p"}
#: Smallest number of saved draws of a candidate, if rankings are the criterion.
RANKING_DRAWS = 20
#: Share of the training ratings that is held out, at least `HELD_OUT_MIN` ratings, but at most a
#: quarter of them.
HELD_OUT_SHARE = 0.1
HELD_OUT_MIN = 1000
#: Names of the files and folders of a comparison.
OWN_FILES = re.compile(r"[0-9a-f]{64}(\.npy|\.h5)?|lock")


def inner_split_of(ratings: Ratings, seed: int) -> InnerSplit:
    """Divide the training ratings of an open file into training and held-out ratings."""
    share = min(0.25, max(HELD_OUT_SHARE, HELD_OUT_MIN / ratings.nnz))
    rows = min(1.0, max(LEAST_ROWS, ENOUGH_RATINGS / ratings.nnz))
    return InnerSplit(ratings, share, seed, rows=rows)


class Plan(NamedTuple):
    """Candidates and settings of a comparison, equal on all processes.

    Attributes
    ----------
    seed : int
        Seed of the chains and of the choice of held-out ratings.
    metric : Metric
        Criterion of the comparison.
    models : list of Candidate
        Candidates that ratings and settings admit, the simplest first.
    runs : list of str
        Name of each candidate's run.
    ranks : dict of str to int
        Rank of the models of each arrangement; the name of a matrix is empty.
    fixed : dict
        Settings of all chains.
    sweeps : int
        Length of each chain, burn-in included.
    note : str
        Hint that ratings of some value probably mean "not rated"; empty without one.
    """

    seed: int
    metric: Metric
    models: list[Candidate]
    runs: list[str]
    ranks: dict[str, int | Literal["auto"]]
    fixed: dict[str, Any]
    sweeps: int
    note: str

    @property
    def half(self) -> int:
        """Sweeps after which a chain has made half of its draws."""
        return (BURN_IN_SWEEPS + self.sweeps) // 2

    @property
    def number_of(self) -> dict[Candidate, int]:
        """Number of each candidate."""
        return {model: number for number, model in enumerate(self.models)}

    def numbers(self, arrangement: str) -> list[int]:
        """List the numbers of the candidates of an arrangement, the simplest first."""
        return [
            number for number, model in enumerate(self.models) if model.arrangement == arrangement
        ]

    def bare(self, arrangement: str) -> set[int]:
        """Return the numbers of the candidates of an arrangement without additions."""
        return {number for number in self.numbers(arrangement) if not self.models[number].added}


class CandidateJob(Job):
    """A job that samples a candidate, and writes no summary."""

    @override
    def _write_summary(self, group: ChainGroup) -> list[str]:
        return []


@dataclass(eq=False)
class Comparing:
    """A comparison of candidates on all processes.

    Parameters
    ----------
    comm : Comm
        All processes.
    source : RatingsSource
        The ratings to which the candidates are fitted.
    folder : Path
        Temporary folder for the candidates' runs.
    settings : dict
        Settings for all candidates; model settings restrict the candidates.
    metric : Metric, optional
        Criterion. Default: NDCG for clicks; the log probability of the recorded value if ratings
        are levels or were recorded to a step; else the log density.
    policy : Policy, optional
        Actions when time runs out or an error occurs.
    signals : Signals, optional
        Handlers that the program has installed; if None, jobs run inside another program
        (`Job.run`).
    quiet : bool
        Whether to show no progress.
    """

    comm: Comm
    source: RatingsSource
    folder: Path
    settings: Mapping[str, Any]
    _: KW_ONLY
    metric: Metric | None = None
    policy: Policy = field(default_factory=Policy)
    signals: Signals | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        self._half_scores: dict[int, CandidateScores] = {}  # from the first half of the draws
        self._full_scores: dict[int, CandidateScores] = {}  # from all draws
        self._diverged: set[int] = set()

    def run(self) -> Comparison:
        """Compare the candidates. Collective.

        Raises
        ------
        InputError
            If settings or ratings are wrong, there are too few ratings to hold some out, or another
            job uses the folder.
        StoppedError
            If the comparison was stopped; an identical call resumes it.
        DivergenceError
            If the chains of all candidates without additions diverge.
        """
        lock = Lock(self.folder / "lock")
        # the number of threads affects the last bits
        with logs(self.comm.rank, quiet=True), threadpool_limits(1, user_api="blas"):
            self._plan = on_root(self.comm, self._make_plan)
            try:
                while not on_root(self.comm, lock.attempt):
                    sleep(ATTEMPT_SECONDS)
                self._sources = self._inner_sources(self._plan.seed)
                chosen, best = self._choose()
                result = on_root(self.comm, partial(self._result, chosen, best))
                on_root(self.comm, partial(remove_candidates, self.folder))
            finally:
                lock.release()
        return result

    # ------------------------------------------------------------------ the plan, on process 0

    def _inner_sources(self, seed: int) -> dict[str, RatingsSource]:
        """Return the training and held-out ratings in each arrangement, by its name."""
        view = partial(inner_split_of, seed=seed)
        directions = self.source.ratings.open_directions
        if directions is None:
            return {"": RatingsSource(self.source.path, view=view)}
        return {
            arrangement.name: RatingsSource(self._arranged_file(seed, arrangement))
            for arrangement in arrangements_of(directions)
        }

    def _arranged_file(self, seed: int, arrangement: Arrangement) -> Path:
        identity = f"{self.source.ratings.digest} {seed} {arrangement.name}"
        return self.folder / f"{hashlib.sha256(identity.encode()).hexdigest()}.h5"

    def _arrange(self, seed: int, written: list[Path]) -> None:
        """Write the ratings of a table of three directions in all arrangements.

        Files that exist are kept; others are appended to `written`.
        """
        ratings = self.source.ratings
        if ratings.open_directions is None:
            return
        if ratings.minimum == ratings.maximum or self.metric == "ndcg":
            raise InputError(
                f"{self.source.path}: arrangements of three directions are compared by values, and"
                " not by rankings of clicks: say on which side the third column is"
                " (docs/three-way.md)"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        view = inner_split_of(ratings, seed)
        from dsgmcmc.prepare.three_way import arrange_ratings  # a database: slow to import

        for arrangement in arrangements_of(ratings.open_directions):
            file = self._arranged_file(seed, arrangement)
            if not file.is_file():
                arrange_ratings(view, arrangement, file)
                written.append(file)

    def _make_plan(self) -> Plan:
        """Choose the seed, candidates, metric and number of sweeps."""
        requested = self.source.build({}, self.settings)
        arranged: list[Path] = []
        try:
            self._arrange(requested.seed, arranged)
            return self._plan_for(requested)
        except InputError:  # the call can be corrected, and needs an empty folder
            for file in arranged:
                file.unlink()
            with suppress(OSError):
                self.folder.rmdir()
            raise

    def _plan_for(self, requested: RunConfig) -> Plan:
        """Make the plan for settings that are chosen for the ratings."""
        sources = self._inner_sources(requested.seed)
        ratings = next(iter(sources.values())).ratings
        levels = Levels.from_ratings(ratings)
        fixed = {
            "chains": 1,
            "until": "none",
            "burn_in": f"{BURN_IN_SWEEPS}sweeps",
            "evaluate_every": "10sweeps",
            "save_draws": 0,
            "checkpoint_every": "10min",
        }
        ranks: dict[str, int | Literal["auto"]] = {}
        admitted: dict[Candidate, ResolvedConfig] = {}
        for name, source in sources.items():
            ranks[name] = self._rank_of(source, requested.rank)
            models = self._candidates(source.ratings, levels, arrangement=name)
            admitted |= self._admitted(source, models, merged(fixed, {"rank": ranks[name]}))
        metric = self._criterion(ratings, admitted.values())
        if metric == "ndcg":
            fixed["save_draws"] = RANKING_DRAWS
        models = list(admitted)
        of_first = [model for model in models if model.arrangement == models[0].arrangement]
        sweeps = length_of(ratings.nnz, of_first)
        identities = [
            f"{sources[model.arrangement].ratings.digest} {config.hash()} {metric} {sweeps} with"
            " errors"
            for model, config in admitted.items()
        ]
        return Plan(
            seed=requested.seed,
            metric=metric,
            models=models,
            runs=[hashlib.sha256(identity.encode()).hexdigest() for identity in identities],
            ranks=ranks,
            fixed=fixed,
            sweeps=sweeps,
            note=str(find_codes(levels.values, levels.counts)),
        )

    def _rank_of(
        self, source: RatingsSource, requested: int | Literal["auto"]
    ) -> int | Literal["auto"]:
        """Return the rank of models of an arrangement, given that of the open file."""
        if self.settings.get("rank", "auto") != "auto":
            return requested
        ratings = source.ratings
        return automatic_rank(self.source.ratings.nnz, ratings.n_rows + ratings.n_cols)

    def _candidates(self, ratings: Ratings, levels: Levels, *, arrangement: str) -> list[Candidate]:
        """List the candidates that suit the ratings, the simplest first."""
        if ratings.minimum == ratings.maximum:
            rules = [CLICKS]
        else:
            items_differ = bool(self.source.ratings.item_levels)
            rules = rules_for(RatedValues(levels.values, levels.counts, items_differ))
        if self.settings.get("rank", "auto") != "auto":
            rules = [rule for rule in rules if rule.name != BIASES_ONLY]
        models = candidates(
            rules,
            features=bool(ratings.features),
            times=ratings.times is not None,
        )
        is_measured = ratings.mean_weight is not None or ratings.has_bounds
        binary = len(levels.values) == 2 and not is_measured
        return [model._replace(binary=binary, arrangement=arrangement) for model in models]

    def _admitted(
        self, source: RatingsSource, models: Sequence[Candidate], fixed: Mapping[str, Any]
    ) -> dict[Candidate, ResolvedConfig]:
        """Return the candidates that ratings and settings admit, with their configurations.

        No two have one configuration.

        Raises
        ------
        InputError
            If there are none.
        """
        admitted: dict[ResolvedConfig, Candidate] = {}
        refused: list[InputError] = []
        for model in models:
            overriding = self._settings_over(model, fixed)
            try:
                config = source.resolve(self.comm.size, {}, model.settings, overriding)
            except InputError as error:
                refused.append(error)
            else:
                admitted.setdefault(config, model)
        if not admitted:
            raise refused[0]
        return {model: config for config, model in admitted.items()}

    def _criterion(self, ratings: Ratings, configs: Iterable[ResolvedConfig]) -> Metric:
        """Return the requested metric, or the default for the ratings."""
        if not all(config.law.can_be_evaluated for config in configs):
            if self.metric not in (None, "ndcg"):
                raise InputError(
                    f"{named('metric')} {self.metric}: clicks have no values; leave it out or use"
                    " ndcg"
                )
            return "ndcg"
        has_probabilities = are_discrete(ratings)
        if self.metric == "log-probability" and not has_probabilities:
            raise InputError(
                f"{named('metric')} log-probability needs ratings with levels, or recorded to a"
                " step: use log-density or rmse"
            )
        if self.metric is not None:
            return self.metric
        return "log-probability" if has_probabilities else "log-density"

    def _settings_over(self, candidate: Candidate, last: Mapping[str, Any]) -> dict[str, Any]:
        """Merge the settings that override a candidate's: the user's, then `last`.

        A model with biases only keeps its rank of 0.
        """
        own = {"rank": 0} if candidate.likelihood == BIASES_ONLY else {}
        return merged(self.settings, last, own)

    # ------------------------------------------------------------------ the choice

    def _choose(self) -> tuple[int, int]:
        """Sample candidates; return the numbers of the recommended and the best candidate.

        Collective.
        """
        arrangement = self._choose_arrangement()
        tried = self._plan.bare(arrangement)
        chosen = self._choose_likelihood(arrangement)
        if chosen is not None:
            tried |= self._try_additions(chosen)
        scores = self._race(tried)
        if not scores:
            raise DivergenceError(
                f"all compared models diverged: use a smaller {named('step_size')}"
            )
        return recommended(scores), best_of(scores)

    def _choose_likelihood(self, arrangement: str) -> Candidate | None:
        """Return the best model of an arrangement with factors, and without additions. Collective.

        None if the chains of all of them diverge.
        """
        models = self._plan.models
        bare = self._plan.bare(arrangement)
        scores = self._race({n for n in bare if models[n].likelihood != BIASES_ONLY})
        if not scores:
            return None
        return models[recommended(scores)]

    def _choose_arrangement(self) -> str:
        """Return the name of the best arrangement of a table of three directions. Collective.

        The arrangements are compared with the likelihood that is best in the first of them, alone
        and with features.
        """
        models = self._plan.models
        first, *others = self._plan.ranks
        if not others:
            return first
        chosen = self._choose_likelihood(first)
        if chosen is None:
            return first
        scores = self._race(
            {
                number
                for number, model in enumerate(models)
                if model.likelihood == chosen.likelihood and model.added in ((), ("features",))
            }
        )
        if not scores:
            return first
        return models[best_of(scores)].arrangement

    def _try_additions(self, chosen: Candidate) -> set[int]:
        """Try each addition to a likelihood alone, and combine those that improve it. Collective.

        Returns
        -------
        set of int
            Numbers of the candidates with one addition, and of the chosen likelihood with all
            additions that improve it, also if the noise is the same for all rows: additions can
            explain what else is taken for noise.
        """
        number_of = self._plan.number_of
        trial = self._trial_model(chosen)
        trial_number = number_of[trial]
        alone: dict[str, int] = {}
        for name in ADDED:
            model = trial._replace(added=(name,))
            if model in number_of and chosen._replace(added=(name,)) in number_of:
                alone[name] = number_of[model]
        gains = [name for name, number in alone.items() if self._is_better(number, trial_number)]
        combined = chosen._replace(added=tuple(gains))
        with_one_noise = combined._replace(likelihood=ONE_NOISE.get(chosen.likelihood, ""))
        numbers = {*alone.values(), number_of.get(combined, number_of[chosen])}
        if gains and with_one_noise in number_of:
            numbers.add(number_of[with_one_noise])
        return numbers

    def _trial_model(self, chosen: Candidate) -> Candidate:
        """Return the model with which additions are tried; see `TRIAL_LIKELIHOODS`."""
        number_of = self._plan.number_of
        likelihood = TRIAL_LIKELIHOODS.get(chosen.likelihood, chosen.likelihood)
        trial = chosen._replace(likelihood=likelihood)
        additions = [name for name in ADDED if chosen._replace(added=(name,)) in number_of]
        if trial in number_of and len(additions) > 1:
            return trial
        return chosen

    # ------------------------------------------------------------------ scores of candidates

    def _is_better(self, number: int, than: int) -> bool:
        """Whether a candidate's score is larger than another's, or only the other one diverges.

        Collective.
        """
        scores = self._race({than, number})
        return bool(scores) and best_of(scores) == number

    def _race(self, numbers: set[int]) -> dict[int, CandidateScores]:
        """Return the scores of the candidates that may be the best. Collective.

        Candidates that diverge, that a simpler one has outdone, or that are clearly behind after
        the first half of their draws, are left out; if several are left, their chains go on.
        """
        for number in sorted(numbers):
            self._begin(number)
        halves = {number: self._half_scores[number] for number in sorted(numbers - self._diverged)}
        if not halves:
            return {}
        halves = acceptable(halves)
        left = leading(halves)
        if len(left) < 2:
            return {number: halves[number] for number in left}
        for number in left:
            self._go_on(number)
        if self._diverged.intersection(left):
            return self._race(numbers)
        return acceptable({number: self._full_scores[number] for number in left})

    def _begin(self, number: int) -> None:
        """Sample and score the first half of a candidate's draws. Collective.

        A file next to the run keeps the scores for a job that resumes later.
        """
        if number in self._half_scores or number in self._diverged:
            return
        is_scored = on_root(self.comm, self._path(number, ".npy").is_file)
        if is_scored or self._sample(number, self._plan.half):
            score = partial(self._score_first_half, number)
            self._half_scores[number] = on_root(self.comm, score, "comparing models")

    def _go_on(self, number: int) -> None:
        """Sample and score the rest of a candidate's draws. Collective."""
        if number in self._full_scores:
            return
        if self._sample(number, self._plan.sweeps):
            scores = on_root(self.comm, partial(self._score, number), "comparing models")
            first = self._half_scores[number].values
            self._full_scores[number] = scores.compared_with(first)

    def _path(self, number: int, suffix: str = "") -> Path:
        return self.folder / f"{self._plan.runs[number]}{suffix}"

    def _sample(self, number: int, sweeps: int) -> bool:
        """Sample a candidate's chain up to a number of sweeps; return whether it does not diverge.

        Collective.
        """
        model = self._plan.models[number]
        if self.comm.rank == 0 and not self.quiet:
            say(f"{sweeps} sweeps of {model.name}", file=sys.stderr)
        policy = self.policy
        # the simplest candidate falls back, so that there is always one
        if number != self._plan.numbers(model.arrangement)[0]:
            policy = policy.model_copy(update={"on_divergence": "stop"})
        fixed = {
            **self._plan.fixed,
            "rank": self._plan.ranks[model.arrangement],
            "iterations": f"{sweeps}sweeps",
        }
        job = CandidateJob(
            self.comm,
            self._sources[model.arrangement],
            self._path(number),
            self._settings_over(model, fixed),
            resume=True,
            policy=policy,
            quiet=True,
            defaults=model.settings,
        )
        try:
            status = job.run(self.signals)
        except DivergenceError:
            self._diverged.add(number)
            return False
        if status:
            raise StoppedError("the comparison was stopped", status)
        return number not in self._diverged

    def _score_first_half(self, number: int) -> CandidateScores:
        """Return the scores from the first half of the draws; their file is written if missing."""
        file = self._path(number, ".npy")
        if not file.is_file():
            scores = self._score(number)
            columns: list[Array] = [scores.values, scores.users]
            if scores.squares is not None:
                columns.append(scores.squares)
            write_array(file, np.stack(columns))
        values, users, *squares = np.array(open_array(file))
        return CandidateScores(values, users.astype(np.int32), squares=next(iter(squares), None))

    def _score(self, number: int) -> CandidateScores:
        """Return the scores from all draws so far."""
        run = Run(self._path(number))
        arrangement = self._plan.models[number].arrangement
        if self._plan.metric == "ndcg":
            return ranking_scores(run, Rated(self._sources[arrangement].ratings))
        scores = scores_of(run, self._plan.metric)
        if not arrangement:
            return scores
        assert self.source.ratings.directions is not None
        return in_order_of_cells(scores, run, self.source.ratings.directions)

    # ------------------------------------------------------------------ the table, on process 0

    def _result(self, chosen: int, best: int) -> Comparison:
        models = self._plan.models
        inner = self._sources[models[best].arrangement].ratings
        sampled = sorted(self._half_scores.keys() | self._diverged)
        return Comparison(
            data_hash=self.source.ratings.digest,
            metric=self._plan.metric,
            training=inner.nnz,
            held_out=inner.nnz_test,
            models=[self._row(number, best) for number in sampled],
            left_out=[model.name for number, model in enumerate(models) if number not in sampled],
            best=models[best].name,
            recommended=models[chosen].name,
            note=self._plan.note,
        )

    def _row(self, number: int, best: int) -> Model:
        """Describe a candidate.

        Its gap to the best candidate is that of the whole chains if both have been sampled.
        """
        candidate = self._plan.models[number]
        full = self._plan.sweeps
        row = Model(
            name=candidate.name,
            settings=dict(candidate.settings),
            sweeps=full,
            arrangement=candidate.arrangement,
        )
        if number in self._diverged:
            return row
        is_full = number in self._full_scores
        sweeps = full if is_full else self._plan.half
        scores = self._full_scores if is_full else self._half_scores
        comparable = scores if best in scores else self._half_scores
        gap = comparable[number].behind(comparable[best])

        run = Run(self._path(number))
        figures: dict[str, Any] = {}
        if run.config.law.can_be_evaluated:
            test = predict_test(run).exact()
            point = test.point(run.config.law)
            if len(point):
                figures = {"rmse": rmse(test.rating, point), "mae": mae(test.rating, point)}
        criterion = float(scores[number].values.mean())
        unit = 1.0
        if self._plan.metric == "rmse" and figures:
            criterion = figures["rmse"]
            unit = 2 * criterion  # the gap is a difference of mean squared errors
        *_, last = run.directory.metrics()
        figures |= {
            "larger_error_than": self._name_of_simpler(has_larger_error, number),
            "outdone_by": self._name_of_simpler(outdone, number),
            "sweeps": sweeps,
            "seconds": last["time_s"] * sweeps / last["sweep"],
            "criterion": criterion,
            "behind": gap.mean / unit,
            "error": gap.error / unit,
        }
        return row.model_copy(update=figures)

    def _name_of_simpler(
        self, relation: Callable[[CandidateScores, CandidateScores], bool], number: int
    ) -> str:
        """Return a name of those to which a candidate has a relation after half of the draws.

        It is that of the one with the smallest error; empty if there is none.
        """
        found = simpler_with(relation, number, self._half_scores)
        if not found:
            return ""
        best = min(found, key=lambda simpler: self._half_scores[simpler].mean_square)
        return self._plan.models[best].name


def remove_candidates(folder: Path) -> None:
    """Remove runs and scores of candidates from a folder, and the folder if nothing else is in it.

    The lock is removed, too.
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if OWN_FILES.fullmatch(path.name):
            with suppress(OSError):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    with suppress(OSError):
        folder.rmdir()
