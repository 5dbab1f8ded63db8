"""What a model may have besides its likelihood, the priors of its rows and noise: one file for each part."""

from dsgmcmc.model.parts.base import Part, PriorMean
from dsgmcmc.model.parts.features import FeatureEffects
from dsgmcmc.model.parts.implicit import ImplicitFeatures
from dsgmcmc.model.parts.time import TimeEffects

#: Of the rows' prior means, in the order in which they are drawn.
PRIOR_MEANS: tuple[type[PriorMean], ...] = (ImplicitFeatures, FeatureEffects)
PARTS: tuple[type[Part], ...] = (*PRIOR_MEANS, TimeEffects)

__all__ = ["PARTS", "PRIOR_MEANS", "FeatureEffects", "ImplicitFeatures", "Part", "PriorMean", "TimeEffects"]
