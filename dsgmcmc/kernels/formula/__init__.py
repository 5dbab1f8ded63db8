"""A small language for elementwise updates: `Formula`, its parser, and the generator of its source code."""

from dsgmcmc.kernels.formula.batch import Batch
from dsgmcmc.kernels.formula.formula import Formula, Gradient, RowPrior

__all__ = ["Batch", "Formula", "Gradient", "RowPrior"]
