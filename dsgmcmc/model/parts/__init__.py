"""All parts of a model other than its likelihood, and their settings."""

from typing import Any

from dsgmcmc.model.parts.base import Part
from dsgmcmc.model.parts.bounds import BoundedRatings
from dsgmcmc.model.parts.features import FeatureEffects, FeatureSettings
from dsgmcmc.model.parts.implicit import ImplicitFeatures, ImplicitSettings
from dsgmcmc.model.parts.noise import Noise, NoiseSettings
from dsgmcmc.model.parts.rows import RowPriors, RowSettings
from dsgmcmc.model.parts.time import TimeEffects, TimeSettings

#: The parts in the order of their draws, except that Gibbs sampling draws effects on ratings first.
#: Every model has the first two.
PARTS: dict[str, type[Part[Any]]] = {
    "noise": Noise,
    "rows": RowPriors,
    "implicit": ImplicitFeatures,
    "features": FeatureEffects,
    "time": TimeEffects,
    "bounds": BoundedRatings,
}


class PartSettings(TimeSettings, FeatureSettings, ImplicitSettings, NoiseSettings, RowSettings):
    """Settings of these parts; the settings of the last base class come first."""


__all__ = [
    "PARTS",
    "BoundedRatings",
    "FeatureEffects",
    "ImplicitFeatures",
    "Noise",
    "Part",
    "PartSettings",
    "RowPriors",
    "TimeEffects",
]
