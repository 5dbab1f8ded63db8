"""What the prior means of a factor's rows have besides m: one file for each kind of knowledge about the rows."""

from dsgmcmc.targets.factorisation.priors.base import PriorMean
from dsgmcmc.targets.factorisation.priors.features import FeatureEffects
from dsgmcmc.targets.factorisation.priors.implicit import ImplicitFeatures

__all__ = ["FeatureEffects", "ImplicitFeatures", "PriorMean"]
