"""Valid input in its many shapes gives the right ratings, names and features, or is refused: files and Python alike."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ingest_cases import prepare
from support import planted

from dsgmcmc import BPMF
from dsgmcmc.data.arrays import read_features
from dsgmcmc.data.features import Description
from dsgmcmc.errors import InputError

BIG = 76561197960265729  # an id of Steam, which no float64 has
USERS, ITEMS, X = planted(rows=12, columns=9, share=0.6)
FRAME = pd.DataFrame({"user": BIG + 16 * USERS, "item": ITEMS + 1, "rating": X.astype(float)})
SHORT = {"rank": 2, "iterations": 60, "burn_in": 20, "options": {"grid": 2}}


@pytest.fixture(scope="module")
def model() -> BPMF:
    """A model whose users have large numbers as names."""
    return BPMF(**SHORT).fit(FRAME)


def fitted(path: Path) -> None:
    """Fit a frame that is written to a file."""
    BPMF(**SHORT).fit(path)


# ---------------------------------------------------------------------- names that are rounded floats

AS_FLOATS = FRAME.to_numpy()
PYTHON = {
    "fit of an array": lambda m: BPMF(**SHORT).fit(AS_FLOATS),
    "fit of a frame with float ids": lambda m: BPMF(**SHORT).fit(FRAME.astype({"user": float})),
    "fit of float32": lambda m: BPMF(**SHORT).fit(FRAME.assign(user=np.float32(2**24) + USERS.astype(np.float32))),
    "predict": lambda m: m.predict(AS_FLOATS[:3, :2]),
    "fold_in": lambda m: m.fold_in(AS_FLOATS[:3]),
    "recommend": lambda m: m.recommend(AS_FLOATS[:1, 0]),
    "recommend one": lambda m: m.recommend(float(BIG)),
    "candidates": lambda m: m.recommend(BIG, candidates=[1e16, 3]),
    "similar": lambda m: m.similar(float(BIG), kind="user"),
    "features": lambda m: BPMF(**SHORT, user_features=np.c_[AS_FLOATS[:, 0], X]).fit(FRAME),
    "an index": lambda m: read_features(pd.DataFrame({"age": X}, index=pd.Index(AS_FLOATS[:, 0], name="who")), "user"),
}


@pytest.mark.parametrize("call", PYTHON)
def test_rounded_names_are_refused_in_python(model, call):
    """A float of 2^53 or more stands for several integers, so it names nobody; the ids of the frame are exact."""
    assert BIG in model.users_
    with pytest.raises(InputError, match="or more, which are rounded integers: row 0 has"):
        PYTHON[call](model)


@pytest.mark.parametrize("name", ["7.656119797626573e+16", "7.656119797626573E16", "9007199254740993.0"])
@pytest.mark.parametrize("place", ["ratings", "pairs", "features"])
def test_rounded_names_are_refused_in_files(tmp_path, model, name, place):
    """Rounded floats as pandas, DuckDB, R and Java write them are no names; hexadecimal names such as 12e3 are."""
    text = f"user,item,rating\n{name},2,3\n5,3,4\n6,2,5\n"
    if place == "features":
        (tmp_path / "u.csv").write_text(f"user,age\n{name},2\n5,3\n6,1\n")
        with pytest.raises(InputError, match=r"the user in line 2 is a float that may be rounded"):
            prepare(tmp_path, "user,item,rating\n5,2,3\n6,3,4\n", described={"user": Description(tmp_path / "u.csv")})
    elif place == "pairs":
        from dsgmcmc.posterior.predict import PredictOptions, predict_table

        (tmp_path / "p.csv").write_text(text)
        with pytest.raises(InputError, match=r"1 pairs have a missing or rounded name[^\n]*\n  line 2: user "):
            predict_table(model.run_, tmp_path / "p.csv", None, PredictOptions(), unknown="prior")
    else:
        with pytest.raises(InputError, match="line 2: a name is a float that may be rounded"):
            prepare(tmp_path, text)
        assert prepare(tmp_path, text.replace(name, "12e3")).users == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounded_names_are_refused_in_parquet(tmp_path, dtype):
    """Floats in Parquet are refused from the first number on whose neighbour they cannot tell."""
    first = 2.0 ** (np.finfo(dtype).nmant + 1)
    for least, refused in ((first - 12, False), (first, True)):
        frame = FRAME.assign(user=(least + USERS).astype(dtype))
        frame.to_parquet(tmp_path / "r.parquet")
        if refused:
            with pytest.raises(InputError, match="a name is a float that may be rounded"):
                fitted(tmp_path / "r.parquet")
        else:
            assert prepare(tmp_path, (tmp_path / "r.parquet").read_bytes(), "s.parquet").users == len(np.unique(USERS))
