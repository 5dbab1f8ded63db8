"""``sample --from``: what a run takes of an earlier one, by name, and when it refuses to."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import planted, sample, typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.index import Index
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.runs.warm_start import WarmStart
from dsgmcmc.storage.rundir import RunDirectory

MODEL = {
    "rank": 2,
    "noise": "by-user",
    "grid": 2,
    "burn_in": 5,
    "thin": 2,
    "iterations": 20,
    "sampler": {"name": "psgld"},
}
STILL = {
    "sampler": {"name": "sgld", "step_size": 1e-12},
    "iterations": 1,
    "burn_in": 0,
    "thin": 1,
    "grid": 3,
}


def prepared(path: Path, users: int, items: int, suffix: str = "") -> Path:
    """Prepare ratings, the last first, of users and items that are called by their number and a
    suffix.
    """
    i, j, x = planted(40, 40, 0.4)
    lines = [
        f"{u}{suffix},{v}{suffix},{r}"
        for u, v, r in zip(i, j, x, strict=True)
        if u < users and v < items
    ]
    csv = path.with_suffix(".csv")
    csv.write_text("\n".join(["user,item,rating", *reversed(lines)]))
    prepare_ratings([csv], path, test_fraction=0.1)
    return path


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 users and 20 items, of whom W has the users."""
    folder = tmp_path_factory.mktemp("earlier")
    data = prepared(folder / "r.h5", 30, 20)
    assert sample(MPI.COMM_SELF, data, folder / "run", **MODEL) == 0
    return folder / "run"


def state(path: Path, entity: str, field: str) -> dict[str, np.ndarray]:
    """Rows of a field in a run's newest checkpoint, by name."""
    run = WarmStart(path)
    index = Index(run.directory, run.directory.read_settings()[1])
    rows = run.checkpoints[0].read_field("state", index.factors[entity], field)
    return dict(zip(map(str, index.vocabulary(entity).ids.tolist()), rows, strict=True))


def test_rows_are_found_by_their_names(earlier, tmp_path):
    """They begin where the run is, though sides and sampler have changed; only new rows begin at
    random.
    """
    grown = prepared(tmp_path / "grown.h5", 32, 40)
    assert sample(MPI.COMM_SELF, grown, tmp_path / "new", start=earlier, **STILL) == 0
    assert RunDirectory(tmp_path / "new").read_settings()[1]["transposed"]
    for entity, new in (("user", 2), ("item", 19)):
        for field in ("theta", "weight") if entity == "user" else ("theta",):
            before, now = (state(path, entity, field) for path in (earlier, tmp_path / "new"))
            assert len(now) == len(before) + new
            if field == "theta":
                np.testing.assert_allclose(
                    [now[name] for name in before], list(before.values()), atol=1e-4
                )
                fresh = np.array([now[name] for name in now.keys() - before.keys()])
                assert 0.01 < fresh.std(axis=0).mean() < 0.5
    before, now = (
        WarmStart(path).checkpoints[0].manifest.state for path in (earlier, tmp_path / "new")
    )
    # no sweep is over
    assert (now["W.precision"], now["tau"]) == (
        before["H.precision"],
        before["tau"],
    )


def test_python_starts_from_a_model(earlier, tmp_path):
    """`fit(start=...)` takes the model of what it starts from, also where that is what the
    estimator was before.
    """
    i, j, x = planted(30, 20, 0.4)
    pairs = np.column_stack([i, j])
    short = {"iterations": 40, "burn_in": 10, "options": {"grid": 2}}
    model = BPMF(**short, rank=2, noise="both").fit(pairs[:100], x[:100])
    grown = BPMF(**short, out=tmp_path / "run").fit(pairs, x, start=model)
    assert (grown.run_.config.rank, grown.run_.config.noise, grown.run_.config.hyper_start) == (
        2,
        "both",
        1,
    )
    again = model.fit(pairs, x, start=model)
    np.testing.assert_array_equal(again.predict(pairs), grown.predict(pairs))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": 3}, "rank 2, but 3 is requested"),
        (
            {"likelihood": "ordinal-logit", "noise_precision": 1.0, "standardise": False},
            "likelihood gaussian",
        ),
        ({"noise": "shared"}, "noise by-user"),
        (
            {"scale": "log"},
            "with scale identity, but log is requested.*leave out --scale or --from",
        ),
    ],
)
def test_another_model_is_refused(earlier, tmp_path, settings, words):
    """In one line, and nothing is left."""
    with pytest.raises(InputError, match=words):
        sample(MPI.COMM_SELF, earlier.parent / "r.h5", tmp_path / "new", start=earlier, **settings)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_a_start_is_refused(earlier, tmp_path):
    """No run, names that have nothing in common; a run that began without one."""
    strangers = prepared(tmp_path / "strangers.h5", 30, 20, "x")
    for data, start, words in (
        (strangers, earlier, "no user and no item in common"),
        (strangers, tmp_path / "nothing", "is not a run directory"),
    ):
        result = typed("sample", data, "--out", tmp_path / "new", "--from", start).expect(2)
        assert words in result.err
        assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="did not start from another run"):
        sample(MPI.COMM_SELF, earlier.parent / "r.h5", earlier, resume=True, start=earlier)
