"""What users say of the ratings is stored with the run, and holds for all that it reads later."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import open_run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.reading import Reading

pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning")
SHORT = {"rank": 0, "iterations": 30, "burn_in": 10, "options": {"save_draws": 10}}
RNG = np.random.default_rng(4)
TRUTH = pd.DataFrame(
    np.round(RNG.normal(5, 1, (12, 1)) + RNG.normal(0, 0.2, (12, 6)), 2),
    [f"p{i}" for i in range(12)],
    [f"q{j}" for j in range(6)],
)
HOLES = RNG.random(TRUTH.shape) < 0.2
HOLES[0] = HOLES[:, 0] = False
N = int((~HOLES).sum())


def coded(code, form):
    """The ratings with a code for what is not rated, as a matrix or with a line for each."""
    frame = TRUTH.astype(object).mask(HOLES, code)
    if form == "matrix":
        return frame.rename_axis("id")
    long = frame.stack().rename_axis(["user", "item"]).rename("rating").reset_index()
    if not isinstance(code, str):
        long["rating"] = long["rating"].astype(float)
    return long


CODES = {"code": 99, "word": "absent"}


@pytest.fixture(scope="module", params=["matrix", "long"])
def form(request):
    """How the table has the ratings."""
    return request.param


@pytest.fixture(scope="module", params=CODES)
def run(request, form, tmp_path_factory):
    """The path of a table, and that of a run on it by the commands."""
    folder = tmp_path_factory.mktemp("said")
    path = folder / "r.csv"
    coded(CODES[request.param], form).to_csv(path, index=form == "matrix")
    options = ["--matrix"] if form == "matrix" else []
    options += ["--missing", f"{CODES[request.param]}", "--test-fraction", "0"]
    typed("prepare", path, folder / "r.h5", *options).expect(0)
    chain = ["--rank", "0", "--iterations", "30", "--burn-in", "10", "--save-draws", "10"]
    typed("sample", folder / "r.h5", "--out", folder / "run", *chain).expect(0)
    return path, folder / "run", CODES[request.param]


def test_by_command(run):
    """Evaluate leaves out what prepare left out, unless it is told otherwise; info says so."""
    path, folder, code = run
    scores = json.loads(typed("evaluate", folder, path, "--json").expect(0).out)
    assert scores["ratings"] == N
    assert scores["rmse"] < 1
    other = typed("evaluate", folder, path, "--missing", "77", "--json")
    if code == 99:
        assert json.loads(other.expect(0).out)["ratings"] == HOLES.size
    else:
        other.expect(2)
    assert f"--missing {code}" in typed("info", folder).expect(0).out
    assert f"--missing {code}" in typed("info", folder.with_name("r.h5")).expect(0).out


def test_in_python(run, form):
    """A run that is opened reads frames and files as its ratings were read."""
    path, folder, code = run
    model = open_run(folder)
    frame = coded(code, form)
    right = model.evaluate(TRUTH.mask(HOLES))
    for X in (path, frame):
        assert model.evaluate(X) == right
        assert model.score(X) == pytest.approx(model.score(TRUTH.mask(HOLES)))
    new = frame.copy()
    if form == "matrix":
        new.index = [f"new {name}" for name in new.index]
        filled = model.complete(frame).to_numpy(float)
        assert not np.isclose(filled, 99).any()
        np.testing.assert_array_equal(filled[~HOLES], TRUTH.to_numpy()[~HOLES])
    else:
        new["user"] = "new " + new["user"]
        y = new["rating"].to_numpy()
        with_y = model.score(frame[["user", "item"]], y)
        assert with_y == pytest.approx(model.score(frame))
    folded = model.fold_in(new)
    assert len(folded.predict([["new p3", "q1"]])) == 1
    assert folded.predict([["new p3", "q1"]])[0] == pytest.approx(
        model.predict([["p3", "q1"]])[0], abs=0.5
    )


def test_no_word_for_missing_is_a_word_of_its_own(run):
    """An empty list means that codes of the run are ratings in new tables."""
    _, folder, code = run
    frame = coded(code, "matrix")
    model = open_run(folder)
    model.missing = []
    if code == 99:
        assert model.evaluate(frame)["ratings"] == frame.size
    else:
        with pytest.raises(InputError):
            model.evaluate(frame)


def test_what_a_fit_was_told(tmp_path):
    """It is in the run of `fit`, also of a model that is saved, opened and pickled."""
    frame = coded(99, "matrix").astype(float)
    model = BPMF(**SHORT, missing=99).fit(frame)
    right = model.evaluate(frame)
    assert right["ratings"] == N
    model.save(tmp_path / "saved")
    for other in (open_run(tmp_path / "saved"), pickle.loads(pickle.dumps(model))):
        assert other.evaluate(frame) == right
    long = coded(99, "long")
    assert model.score(long[["user", "item"]], long["rating"]) == pytest.approx(model.score(frame))


def test_cells_that_are_not_stored(tmp_path):
    """`unstored="zero"` holds for later sparse matrices."""
    counts = scipy.sparse.csr_array(RNG.poisson(0.5, (15, 6)))
    BPMF(**SHORT, unstored="zero", out=tmp_path / "run").fit(counts)
    assert open_run(tmp_path / "run").evaluate(counts)["ratings"] == 90


def test_what_a_file_may_say(tmp_path):
    """A ratings file with something else in this place is refused."""
    with pytest.raises(ValueError, match="it was read with"):
        Reading.parse({"missing": [99]})
    said = Reading(matrix=True, missing=("", "99"), unstored="zero")
    assert Reading.parse(json.loads(json.dumps(said.stored()))) == said
    assert Reading.parse({}) == Reading()
    path = tmp_path / "r.csv"
    coded(99, "long").to_csv(path, index=False)
    typed("prepare", path, tmp_path / "r.h5", "--missing", "99").expect(0)
    with Ratings(tmp_path / "r.h5") as ratings:
        assert ratings.reading == Reading(missing=("99",))


def test_missing_needs_a_file(run):
    """The option says nothing of rankings, and is refused."""
    failed = typed("evaluate", run[1], "--missing", "99").expect(2)
    assert "--missing" in failed.err
    assert issubclass(InputError, ValueError)


def test_an_array_in_a_file(tmp_path):
    """A run on the array of an .npz file reads it again, as a matrix."""
    path = tmp_path / "a.npz"
    np.savez(path, TRUTH.mask(HOLES).to_numpy())
    typed("prepare", path, tmp_path / "a.h5", "--matrix").expect(0)
    chain = ["--rank", "0", "--iterations", "20", "--burn-in", "10", "--save-draws", "5"]
    typed("sample", tmp_path / "a.h5", "--out", tmp_path / "run", *chain).expect(0)
    found = json.loads(typed("evaluate", tmp_path / "run", path, "--json").expect(0).out)
    assert found["ratings"] == N
