r"""Users or items never seen: their exact posterior given each saved draw, without sampling anew.

Given a draw, the ratings x of a new row depend on the other side alone through phi_j = (H_j, 1), so that its theta has
the normal law [Salakhutdinov 2008, eq. 11]

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where m has the row's implicit features, if the model has such: those of what it has ratings of.

Over all saved draws this is the law of the new row given the old ratings, exact but for what the new ratings would say
about everything else. Where new rows have noise of their own, g | theta ~ Gamma((nu + n) / 2, (nu + tau SSE) / 2) and
theta | g are drawn in turns, `GIBBS` times from g = 1, and theta's law given the last g is taken. Where rows have
scales, Lambda above is s Lambda, and s | theta ~ Gamma((nu + D) / 2, (nu + Q) / 2) is drawn alike, with Q = (theta -
m)^T Lambda (theta - m): so the prior of a new row, too, is a Student's t.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ingest.load import create_raw, load
from dsgmcmc.data.ingest.sources import inspect, parse_columns
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.features import feature_names
from dsgmcmc.posterior.names import Vocabulary, unknown_names
from dsgmcmc.posterior.predict import Rows
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Int32

GIBBS = 10
_OTHER = {"user": "item", "item": "user"}


class FoldIn:
    """New users (or items) of a run.

    Parameters
    ----------
    run : Run
        With saved draws.
    kind : {"user", "item"}
        What the new rows are.
    vocabulary : Vocabulary
        Their names; none is known to the run.
    rows : (n,) int
        The new row of each rating.
    others : (n,) int32
        Row of the item (or user) that it is of.
    values : (n,) float
        The ratings.
    seed : int
        Of the scales of noise and of rows, where the model has them.

    Raises
    ------
    InputError
        If the run has no draws, or a name is known to it.
    """

    def __init__(
        self,
        run: Run,
        kind: str,
        vocabulary: Vocabulary,
        rows: npt.NDArray[np.integer],
        others: Int32,
        values: npt.NDArray[np.floating],
        seed: int = 0,
    ) -> None:
        run.source("draws")
        if not run.config.law.is_conditionally_gaussian():
            raise InputError(
                f"a fold-in is exact, which it cannot be with the {run.config.likelihood} likelihood: sample again "
                "with the new ratings"
            )
        known = vocabulary.ids[run.vocabulary(kind).index_of(vocabulary.ids) >= 0]
        if len(known):
            shown = ", ".join(map(str, known[:5].tolist()))
            raise InputError(
                f"{len(known)} of the new {kind}s are known to the run ({shown}): a fold-in is for those it has never "
                "seen; sample again with the new ratings, or take these out"
            )
        self.run, self.kind, self.vocabulary, self.seed = run, kind, vocabulary, seed
        order = np.argsort(rows, kind="stable")
        self._others, self._values = others[order], values[order].astype(np.float64)
        self._ends = np.searchsorted(rows[order], np.arange(len(vocabulary) + 1))
        self._rows: dict[int, Rows] = {}

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that a new row rated."""
        found: Int32 = self._others[self._ends[which] : self._ends[which + 1]]
        return found

    def rows(self, number: int, which: npt.NDArray[np.intp]) -> Rows:
        """Laws of new rows at a saved draw.

        Parameters
        ----------
        number : int
            Position of the draw among the run's.
        which : (q,) int
            New rows.

        Returns
        -------
        Rows
            Means, covariances and 1 / g.
        """
        if number not in self._rows:
            self._rows[number] = self._solve(number)
        rows = self._rows[number]
        return Rows(rows.mean[which], rows.covariance[which], rows.noise[which])

    def _solve(self, number: int) -> Rows:
        draw, other = self.run.draw(number), _OTHER[self.kind]
        rank, biases = self.run.config.rank, self.run.config.biases
        prior = draw.prior[self.kind]
        precision = np.linalg.inv(prior.covariance)
        n, d = len(self.vocabulary), len(prior.mean)
        result = Rows(np.empty((n, d)), np.empty((n, d, d)), np.ones(n))
        nu = draw.nu.get(self.kind)
        turns = GIBBS if nu is not None or prior.nu is not None else 0
        rng = np.random.default_rng([self.seed, number])
        for row in range(n):
            part = slice(self._ends[row], self._ends[row + 1])
            theta = draw.theta[other][self._others[part]].astype(np.float64)
            centre = prior.mean
            if other in draw.implicit and len(theta):
                centre = centre + draw.implicit[other][self._others[part]].sum(axis=0) / np.sqrt(len(theta))
            target = self._values[part] - self.run.mean
            if biases:
                target = target - theta[:, rank]
                theta[:, rank] = 1.0
            noise_precision = draw.tau * draw.noise_scale[other][self._others[part]].astype(np.float64)
            found = self.run.config.law.statistics(theta, target, noise_precision)
            assert found is not None
            gram, moment = found
            g, s = 1.0, 1.0
            for turn in range(turns + 1):
                lower = np.linalg.cholesky(s * precision + g * gram)
                inverse = np.linalg.inv(lower)
                mean = inverse.T @ (inverse @ (s * precision @ centre + g * moment))
                if turn == turns:
                    break
                drawn = mean + inverse.T @ rng.standard_normal(d)
                if nu is not None:
                    squares = float(noise_precision @ (target - theta @ drawn) ** 2)
                    g = rng.gamma((nu + len(target)) / 2) / ((nu + squares) / 2)
                if prior.nu is not None:
                    u = drawn - centre
                    s = rng.gamma((prior.nu + d) / 2) / ((prior.nu + float(u @ precision @ u)) / 2)
            result.mean[row], result.covariance[row], result.noise[row] = mean, inverse.T @ inverse, 1 / g
        return result


def fold_in_file(
    run: Run, path: Path, kind: str, columns: str | None = None, seed: int = 0
) -> tuple[FoldIn, list[str]]:
    """Fold in what can be of a file of ratings.

    Parameters
    ----------
    run : Run
    path : Path
        Ratings in any of the formats that ``prepare`` reads, by original names.
    kind : {"user", "item"}
        What is new.
    columns : str, optional
        ``user=U,item=I,rating=R``, as of ``prepare``; detected by default.
    seed : int

    Returns
    -------
    FoldIn
    notes : list of str
        What was left out (ratings of unknown items, or of users that the run knows), and what is doubtful.

    Raises
    ------
    InputError
        If the file is wrong, a pair is there twice, or nothing is left to fold in.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist")
    other = _OTHER[kind]
    with duckdb.connect() as db:
        create_raw(db)
        load(db, inspect(path, None, parse_columns(columns), False), False)
        twice = db.execute(
            "SELECT user_id, item_id FROM raw GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 5"
        ).fetchall()
        if twice:
            shown = ", ".join(f"({user}, {item})" for user, item in twice)
            raise InputError(f"{path} has several ratings of one pair of user and item: {shown}")
        found = db.execute(f"SELECT {kind}_id AS new, {other}_id AS old, rating FROM raw").fetchnumpy()
    new, old = (np.ma.getdata(found[name]) for name in ("new", "old"))
    if run.vocabulary(kind).integers:
        try:
            new = np.array([int(name) for name in new], np.int64)
        except (ValueError, OverflowError):
            raise InputError(f"{path}: not all {kind}s are integers, as those of the run are") from None
    others, values = run.vocabulary(other).index_of(old), np.ma.getdata(found["rating"])
    unknown, known = others < 0, run.vocabulary(kind).index_of(new) >= 0
    notes, taken = _left_out(path, kind, new, old, unknown, known), ~(unknown | known)
    if not taken.any():
        raise InputError("; ".join(notes) + "; nothing is left to fold in")
    new, others, values = new[taken], others[taken], values[taken]
    low, high = float(run.facts["minimum"]), float(run.facts["maximum"])
    beyond = values[(values < low) | (values > high)]
    if len(beyond):
        notes.append(f"{path}: {len(beyond)} rating(s) outside {low:g} to {high:g}, the range so far: {beyond[0]:g}")
    ids, rows = np.unique(new.astype(str) if new.dtype == object else new, return_inverse=True)
    vocabulary = Vocabulary(kind, ids if ids.dtype == np.int64 else ids.astype(object))
    if feature_names(run, kind)[0]:
        notes.append(f"new {kind}s are taken to be average in their features, which are not used here")
    return FoldIn(run, kind, vocabulary, rows, others, values, seed), notes


def _left_out(path: Path, kind: str, new: Array, old: Array, unknown: Array, known: Array) -> list[str]:
    """Say which ratings are left out: of others that are `unknown`, and of new names that are `known`."""
    notes = []
    if unknown.any():
        what = unknown_names(_OTHER[kind], list(dict.fromkeys(old[unknown].tolist())))
        notes.append(f"{path}: {int(unknown.sum())} rating(s) left out: {what}")
    if known.any():
        names = list(dict.fromkeys(new[known].tolist()))
        notes.append(
            f"{path}: {int(known.sum())} rating(s) left out: {len(names)} {kind}(s) known to the run "
            f"({', '.join(map(str, names[:5]))}), whose new ratings need a new run"
        )
    return notes
