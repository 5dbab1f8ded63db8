"""What every part of the model says of itself: its settings, what it keeps, what it cannot go with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import write_planted

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import FactorConfig, ModelConfig
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.model.parts import PARTS, Part
from dsgmcmc.settings import settings
from dsgmcmc.types import Factor

#: Settings with which a run has the part.
WITH: dict[str, dict[str, Any]] = {
    "ImplicitFeatures": {"implicit_features": "both"},
    "FeatureEffects": {"features": "yes"},
    "TimeEffects": {"time_levels": "user:page"},
}
#: What each cannot go with, and the setting that its message names.
AGAINST: list[tuple[dict[str, Any], str]] = [
    ({"implicit_features": "user", "prior": "normal-wishart"}, "--prior"),
    ({"implicit_features": "user", "sampler": "hamcmc"}, "--implicit-features no"),
    ({"time_levels": "user", "likelihood": "ordinal-logit"}, "time_levels"),
    ({"time_levels": "user", "sampler": "hamcmc"}, "--time-levels no"),
]
THERE = {Factor.W: (4, 2), Factor.H: (3, 2)}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_a_part_declares_its_settings_itself(part: type[Part]) -> None:
    """Each is a field of the model's configuration, an option, and no field of what every model has."""
    names = set(part.Settings.model_fields)
    assert names <= set(ModelConfig.model_fields)
    assert not names & set(FactorConfig.model_fields)
    assert names <= {each.name for each in settings()}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_a_part_keeps_something_where_a_run_has_it(part: type[Part]) -> None:
    """Nothing else does: no two parts keep the same, and without it there is nothing."""
    config = build(WITH[part.__name__]).resolved()
    kept = {quantity.name for quantity in part.quantities_of(config, False, THERE)}
    assert kept
    for other in PARTS:
        if other != part:
            other_config = build(WITH[other.__name__]).resolved()
            assert not kept & {quantity.name for quantity in other.quantities_of(other_config, False, THERE)}
    without = build({"features": "no"}).resolved()
    assert part.quantities_of(without, False, THERE) == ()


@pytest.mark.parametrize(("given", "named"), AGAINST)
def test_a_part_says_what_it_cannot_go_with(given: dict[str, Any], named: str) -> None:
    """Before anything is read, and with the setting that helps."""
    with pytest.raises(InputError, match=named):
        build(given).resolved()


def test_a_part_says_what_ratings_lack(tmp_path: Path) -> None:
    """Features and times that are asked for and are not there."""
    with open_ratings(write_planted(tmp_path / "r.h5")) as ratings:
        for given, what in (({"features": "user"}, "no features of users"), ({"time_levels": "user"}, "no timestamps")):
            config = build(given).resolved()
            (part,) = (part for part in PARTS if given.keys() <= part.Settings.model_fields.keys())
            with pytest.raises(InputError, match=what):
                part.check_ratings(config, ratings)
