"""Writes ``docs/api.md`` from the docstrings: ``python docs/reference.py``. A test compares."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

PUBLIC = [
    ("dsgmcmc.bpmf", "BPMF"),
    ("dsgmcmc.posterior.run", "open_run"),
    ("dsgmcmc.posterior.run", "Run"),
    ("dsgmcmc.posterior.names", "Vocabulary"),
    ("dsgmcmc.posterior.draws", "Draw"),
    ("dsgmcmc.posterior.draws", "Moments"),
    ("dsgmcmc.posterior.draws", "Prior"),
    ("dsgmcmc.posterior.predict", "Options"),
    ("dsgmcmc.targets.factorisation.likelihoods.base", "Prediction"),
    ("dsgmcmc.posterior.predict", "Predictor"),
    ("dsgmcmc.posterior.recommend", "Ranking"),
    ("dsgmcmc.posterior.recommend", "recommend"),
    ("dsgmcmc.posterior.foldin", "FoldIn"),
    ("dsgmcmc.diagnostics.convergence", "diagnose"),
    ("dsgmcmc.diagnostics.calibration", "calibration"),
    ("dsgmcmc.posterior.export", "export"),
    ("dsgmcmc.posterior.arviz", "to_datatree"),
    ("dsgmcmc.diagnostics.report", "write_report"),
    ("dsgmcmc.samplers.base", "Sampler"),
    ("dsgmcmc.targets.base", "World"),
    ("dsgmcmc.targets.vector", "Target"),
    ("dsgmcmc.targets.vector", "VectorWorld"),
    ("dsgmcmc.samplers.sample", "sample"),
]


def reference() -> str:
    """Return the page."""
    parts = ["# Python API", "Generated from the docstrings by `python docs/reference.py`; do not edit."]
    parts.append("`from dsgmcmc import BPMF, open_run`; everything else from its module.")
    for module, name in PUBLIC:
        thing = getattr(importlib.import_module(module), name)
        parts += [f"## {module}.{name}", *_entry(name, thing)]
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if member.startswith("_"):
                    continue
                function = getattr(value, "fget", None) or getattr(value, "func", None) or value
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and function.__doc__:
                    parts += [f"### {name}.{member}", *_entry(member, function, isinstance(value, property))]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, thing: object, is_property: bool = False) -> list[str]:
    """Signature and docstring, as they are written."""
    parts = []
    if inspect.isfunction(thing) and not is_property:
        parts.append(f"```text\n{name}{inspect.signature(thing)}\n```")
    return [*parts, f"```text\n{inspect.getdoc(thing)}\n```"]


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(reference(), encoding="utf-8")
