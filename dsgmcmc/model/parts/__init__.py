"""What a model has besides its likelihood: one file for each part."""

from dsgmcmc.model.parts.base import Effects, Part, PriorMean
from dsgmcmc.model.parts.features import FeatureEffects
from dsgmcmc.model.parts.implicit import ImplicitFeatures
from dsgmcmc.model.parts.noise import Noise
from dsgmcmc.model.parts.rows import RowPriors
from dsgmcmc.model.parts.time import TimeEffects

#: In the order in which they are drawn.
PARTS: tuple[type[Part], ...] = (Noise, RowPriors, ImplicitFeatures, FeatureEffects, TimeEffects)

__all__ = [
    "PARTS",
    "Effects",
    "FeatureEffects",
    "ImplicitFeatures",
    "Noise",
    "Part",
    "PriorMean",
    "RowPriors",
    "TimeEffects",
]
