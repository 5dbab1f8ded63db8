"""The report of one or several runs: a self-contained HTML file."""

from dsgmcmc.diagnostics.report.page import write_report

__all__ = ["write_report"]
