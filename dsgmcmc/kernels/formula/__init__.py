"""The small language of fused elementwise updates: `Formula`, its parser, and the source that it is compiled from."""

from dsgmcmc.kernels.formula.batch import Batch
from dsgmcmc.kernels.formula.formula import Formula, Gradient, RowPrior

__all__ = ["Batch", "Formula", "Gradient", "RowPrior"]
