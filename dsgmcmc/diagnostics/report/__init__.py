"""The report of one run or of several: one HTML file that needs nothing else."""

from dsgmcmc.diagnostics.report.page import write_report

__all__ = ["write_report"]
