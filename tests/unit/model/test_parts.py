"""What every part of the model says of itself: its settings, what it keeps, what it cannot go with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chain_states import start_chain
from support import write_planted

from dsgmcmc.config.run import build
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.model.parts import PARTS, Part
from dsgmcmc.types import Factor

#: Settings with which a run has the part.
WITH: dict[str, dict[str, Any]] = {
    "Noise": {"noise": "both"},
    "RowPriors": {"prior": "normal-wishart"},
    "ImplicitFeatures": {"implicit_features": "both"},
    "FeatureEffects": {"features": "yes"},
    "TimeEffects": {"time_levels": "user:page"},
}
#: What parts and likelihoods cannot go with, and the setting that the message names.
AGAINST: list[tuple[dict[str, Any], str]] = [
    ({"implicit_features": "user", "prior": "normal-wishart"}, "--prior"),
    ({"implicit_features": "user", "sampler": "hamcmc"}, "--implicit-features no"),
    ({"time_levels": "user", "likelihood": "all-cells"}, "--time-levels"),
    ({"time_levels": "user", "sampler": "hamcmc"}, "leave out --time-levels"),
    ({"time_levels": "user", "sampler": {"name": "sgld", "gradient": "control-variate"}}, "leave out --time-levels"),
    ({"time_levels": "week"}, "'week' is not known"),
    ({"time_levels": "user:1"}, "'user:1' is not known"),
    ({"time_levels": "user,user:8"}, "a level twice"),
    ({"likelihood": "all-cells", "biases": True}, "no use for --biases: leave it out"),
    ({"likelihood": "all-cells", "noise_precision": "sampled"}, "no use for --noise-precision: leave it out"),
    ({"likelihood": "all-cells", "sampler": "psgld"}, "use --sampler baoab or gibbs or --set sampler.gradient=full"),
    ({"likelihood": "all-cells", "noise": "both"}, "no use for --noise: leave it out"),
    ({"likelihood": "gaussian", "thresholds": "user"}, "no use for --thresholds: leave it out"),
    ({"likelihood": "gaussian", "zero_weight": 0.1}, "no use for --zero-weight: leave it out"),
    ({"likelihood": "ordinal-logit", "noise_precision": 2.0}, "no use for --noise-precision: leave it out"),
    ({"likelihood": "negative-binomial", "noise": "both"}, "no use for --noise: leave it out"),
    ({"likelihood": "negative-binomial", "biases": False}, "leave out --no-biases"),
    ({"likelihood": "negative-binomial", "center": False}, "no use for --set center: leave it out"),
]
THERE = {Factor.W: (4, 2), Factor.H: (3, 2)}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
@pytest.mark.parametrize("sampler", ["baoab", "gibbs"])
def test_a_chain_has_what_a_part_says(tmp_path: Path, part: type[Part], sampler: str) -> None:
    """It keeps these quantities, and draws all that belong to a draw at the first turn, with every kind of sampler."""
    path = write_planted(tmp_path / "r.h5", stars=True, features=(4, 3), timed=True)
    settings = {"rank": 2, "grid": 2, "sampler": sampler, "features": "no", "hyper_start": 1}
    config = build(settings | WITH[part.__name__])
    target, algorithm = start_chain(path, 0.3, config)
    (present,) = (other for other in target.parts if type(other) is part)
    assert present.quantities == part.quantities_of(config.resolved(), False, THERE)
    states = []
    for iteration in range(12):  # noise of two factors is drawn in turns
        blocks = {f"{b.factor.name}.{b.index}.{name}": b[name] for b in target.blocks() for name in target.layout.names}
        shared = {name: value for parameters in present.replicated for name, value in parameters.arrays().items()}
        states.append({name: value.copy() for name, value in (blocks | shared).items()})
        target.begin(iteration)
        algorithm.step(target, iteration)
    for quantity in present.quantities:
        names = [name for name in states[0] if name.endswith(quantity.name)]
        assert names or not (quantity.kept and quantity.drawn)
        if quantity.drawn:
            assert any((states[0][name] != states[-1][name]).any() for name in names), quantity.name


@pytest.mark.parametrize(("given", "named"), AGAINST)
def test_the_model_says_what_cannot_go_together(given: dict[str, Any], named: str) -> None:
    """Before anything is read, and with the setting that helps."""
    with pytest.raises(InputError, match=named):
        build(given).resolved()


def test_a_part_says_what_ratings_lack(data: Path) -> None:
    """Features and times that are asked for and are not there."""
    with Ratings(data) as ratings:
        for given, what in [
            ({"features": "user"}, "no features of users"),
            ({"time_levels": "user"}, "prepare it again with --timestamps"),
        ]:
            config = build(given).resolved()
            (part,) = (part for part in PARTS if given.keys() <= part.Settings.model_fields.keys())
            with pytest.raises(InputError, match=what):
                part.check_ratings(config, ratings)
