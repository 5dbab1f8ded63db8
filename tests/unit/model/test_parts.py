"""What every part of the model says of itself: its settings, its state, its conflicts."""

from pathlib import Path
from typing import Any

import pytest
from measurements import write_measured

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.model.parts import PARTS
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.testing import check_part

#: Settings with which a run has the part.
WITH: dict[str, dict[str, Any]] = {
    "noise": {"noise": "both"},
    "rows": {"prior": "normal-wishart"},
    "implicit": {"implicit_features": "both"},
    "features": {"features": "yes"},
    "time": {"time_levels": "user:page"},
    "bounds": {},
}
#: What parts and likelihoods cannot go with, and the setting that the message names.
AGAINST: list[tuple[dict[str, Any], str]] = [
    ({"implicit_features": "user", "prior": "normal-wishart"}, "--prior"),
    ({"implicit_features": "user", "sampler": "hamcmc"}, "--implicit-features no"),
    ({"time_levels": "user", "likelihood": "all-cells"}, "--time-levels"),
    ({"time_levels": "user", "sampler": "hamcmc"}, "leave out --time-levels"),
    (
        {"time_levels": "user", "sampler": {"name": "sgld", "gradient": "control-variate"}},
        "leave out --time-levels",
    ),
    ({"time_levels": "week"}, "'week' is not known"),
    ({"time_levels": "user:1"}, "'user:1' is not known"),
    ({"time_levels": "user,user:8"}, "a level twice"),
    ({"likelihood": "all-cells", "biases": True}, "no use for --biases: leave it out"),
    (
        {"likelihood": "all-cells", "noise_precision": "sampled"},
        "no use for --noise-precision: leave it out",
    ),
    (
        {"likelihood": "all-cells", "sampler": "psgld"},
        "use --sampler baoab or gibbs or --set sampler.gradient=full",
    ),
    ({"likelihood": "all-cells", "noise": "both"}, "no use for --noise: leave it out"),
    ({"likelihood": "gaussian", "thresholds": "user"}, "no use for --thresholds: leave it out"),
    ({"likelihood": "gaussian", "zero_weight": 0.1}, "no use for --zero-weight: leave it out"),
    (
        {"likelihood": "ordinal-logit", "noise_precision": 2.0},
        "no use for --noise-precision: leave it out",
    ),
    ({"likelihood": "negative-binomial", "noise": "both"}, "no use for --noise: leave it out"),
    ({"likelihood": "negative-binomial", "biases": False}, "leave out --no-biases"),
    ({"likelihood": "negative-binomial", "center": False}, "no use for --set center: leave it out"),
]


@pytest.mark.parametrize("name", PARTS)
def test_a_chain_has_what_a_part_says(tmp_path: Path, name: str) -> None:
    """It keeps these quantities, and draws all that belong to a draw in the first sweep, with every
    kind of sampler.
    """
    ratings = None
    if name == "bounds":  # not a setting, but ratings make a run have this part
        ratings = write_measured(tmp_path / "r.h5", bounded=True)
    check_part(PARTS[name], ratings=ratings, **WITH[name])


@pytest.mark.parametrize(("settings", "named"), AGAINST)
def test_the_model_says_what_cannot_go_together(settings: dict[str, Any], named: str) -> None:
    """Before anything is read, and with the setting that helps."""
    with pytest.raises(InputError, match=named):
        build(settings).resolved()


def test_a_part_says_what_ratings_lack(data: Path) -> None:
    """Features and times that are asked for and are not there."""
    with Ratings(data) as ratings:
        for settings, what in [
            ({"features": "user"}, "no features of users"),
            ({"time_levels": "user"}, "prepare it again with `dsgmcmc prepare --timestamps`"),
        ]:
            config = build(settings).resolved()
            (part,) = (
                part
                for part in PARTS.values()
                if settings.keys() <= part.Settings.model_fields.keys()
            )
            with pytest.raises(InputError, match=what):
                part.check_ratings(config, config.facts, ratings)
