"""Warnings of a run reach Python at the end of `fit`, as ``dsgmcmc info`` prints them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from support import typed

import dsgmcmc
from dsgmcmc import BPMF
from dsgmcmc.diagnostics.convergence import unmixed

Ratings = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    """Users and items of 200 ratings of little noise, and the ratings."""
    rng = np.random.default_rng(0)
    pairs = np.column_stack(np.divmod(rng.choice(400, 200, replace=False), 20))
    return pairs, 3 + 0.1 * pairs[:, 0] - 0.05 * pairs[:, 1] + rng.normal(0, 0.2, 200)


def test_a_fit_warns_with_the_lines_that_info_prints(ratings: Ratings, tmp_path: Path) -> None:
    """Each warning once, in its own class, at the line that called `fit`, in words of Python."""
    pairs, values = ratings
    explained = 3 + 0.1 * pairs[:, 0] - 0.05 * pairs[:, 1]
    precise = explained + (values - explained) / 10
    model = BPMF(2, sampler="baoab", iterations=140, options={"grid": 2}, out=tmp_path / "run")
    with pytest.warns(dsgmcmc.RunWarning) as caught:
        model.fit(pairs, precise)  # warns here
    (path,) = {each.filename for each in caught}
    (line,) = {each.lineno for each in caught}
    assert Path(path).read_text().split("\n")[line - 1].endswith("# warns here")
    texts = [str(each.message) for each in caught]
    assert len(set(texts)) == len(texts)
    (mixing,) = [text for text in texts if text.startswith("the draws have not mixed in ")]
    assert "warm_start=True, until none and iterations " in mixing
    printed = typed("info", tmp_path / "run").out
    assert printed.count("warning: ") == len(texts)
    beginning = mixing.partition(":")[0]
    assert f"warning: {beginning}: do not interpret these" in printed
    assert "continue with --resume, --until none and --iterations " in printed
    assert printed.count("do not interpret") == 1


def test_a_fit_warns_if_biases_alone_predict_better(ratings: Ratings) -> None:
    """Ratings that nothing explains, and factors that are hardly held."""
    pairs, values = ratings
    rng = np.random.default_rng(1)
    options = {"grid": 2, "prior": "fixed", "prior_precision": 0.01}
    model = BPMF(8, iterations=400, test_fraction=0.2, options=options)
    with pytest.warns(dsgmcmc.RunWarning) as caught:
        model.fit(pairs, rng.permutation(values))
    (worse,) = [str(each.message) for each in caught if "biases only" in str(each.message)]
    assert worse.startswith("worse than biases only: the log predictive density")
    assert worse.endswith("(rank 0) is simpler, and model auto looks for a better model")


def test_a_good_run_warns_of_nothing_and_filters_silence_a_bad_one(ratings: Ratings) -> None:
    """So programs can hold warnings to be errors, and leave out those of runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BPMF(2, sampler="baoab", iterations=1000, options={"grid": 2}).fit(*ratings)
        warnings.simplefilter("ignore", dsgmcmc.RunWarning)
        BPMF(2, sampler="baoab", iterations=200, options={"grid": 2}).fit(*ratings)


def test_doubts_about_the_input_point_at_the_call(ratings: Ratings) -> None:
    """However deep in the package they are found."""
    pairs, values = ratings
    coded = np.where(np.arange(200) % 7, np.round(values), 99)
    with pytest.warns(UserWarning, match="99") as caught:
        BPMF(1, iterations=60).compare(pairs, coded)
    assert {Path(each.filename) for each in caught} == {Path(__file__)}


def test_only_a_large_rhat_with_a_small_ess_counts() -> None:
    """Either alone happens by chance; nobody reads parameters without a unit; and what is known to
    a hundredth is known.
    """

    class Config:
        burn_in = 100
        thin = 2

    def quantity(
        name: str, halves: float, ess: float, sd: float = 0.5, read: bool = True
    ) -> dict[str, object]:
        return {
            "name": name,
            "label": name,
            "read": read,
            "mean": 2.0,
            "sd": sd,
            "halves": halves,
            "ess_bulk": ess,
            "ess_tail": ess + 1,
        }

    diagnosis = {
        "withheld": None,
        "draws": 50,
        "quantities": [
            quantity("tau", 1.2, 10.0),
            quantity("nu", 1.2, 21.0),
            quantity("dispersion", 1.5, 5.0),
            quantity("time_sd_user_8", 1.05, 5.0),
            quantity("time_sd_user_page", 1.5, 5.0, sd=0.03),
            quantity("item_bias_precision", 1.5, 5.0, read=False),
            quantity("test_log_likelihood", 1.5, 5.0, read=False),
        ],
    }
    found = unmixed(diagnosis, Config())
    assert [each["label"] for each in found["quantities"]] == ["dispersion", "tau"]
    assert found["iterations"] == 100 + 4 * 50 * 2
    assert unmixed({**diagnosis, "withheld": "few draws"}, Config()) == {}
