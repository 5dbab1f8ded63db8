"""Writes ``docs/api.md`` from the docstrings: ``python docs/reference.py``. A test compares."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import dsgmcmc

#: What users import, by what they do with it.
PUBLIC = {
    "Ratings": [
        ("dsgmcmc.bpmf", "BPMF"),
        ("dsgmcmc.posterior.fitted", "FittedModel"),
        ("dsgmcmc.posterior.opened", "open_run"),
        ("dsgmcmc.posterior.run", "Run"),
        ("dsgmcmc.posterior.names", "Vocabulary"),
        ("dsgmcmc.posterior.draws", "Draw"),
        ("dsgmcmc.posterior.draws", "Moments"),
        ("dsgmcmc.posterior.draws", "Prior"),
        ("dsgmcmc.posterior.predict", "Options"),
        ("dsgmcmc.posterior.predict", "Predictor"),
        ("dsgmcmc.model.predictive.base", "Prediction"),
        ("dsgmcmc.posterior.rules", "Ranking"),
        ("dsgmcmc.posterior.recommend", "recommend"),
        ("dsgmcmc.posterior.foldin", "FoldIn"),
        ("dsgmcmc.posterior.new_ratings", "fold_in"),
        ("dsgmcmc.posterior.similar", "similar"),
        ("dsgmcmc.diagnostics.convergence", "diagnose"),
        ("dsgmcmc.diagnostics.calibration", "calibration"),
        ("dsgmcmc.diagnostics.ranking", "evaluate"),
        ("dsgmcmc.posterior.export", "export"),
        ("dsgmcmc.posterior.arviz", "to_datatree"),
        ("dsgmcmc.diagnostics.report", "write_report"),
    ],
    "Densities": [
        ("dsgmcmc.targets.density", "Density"),
        ("dsgmcmc.targets.sums", "SumDensity"),
        ("dsgmcmc.targets.regression", "Regression"),
        ("dsgmcmc.targets.links", "Link"),
        ("dsgmcmc.targets.network", "Network"),
        ("dsgmcmc.targets.density", "Riemannian"),
        ("dsgmcmc.targets.lda", "LatentDirichlet"),
        ("dsgmcmc.targets.potentials", "Gaussian"),
        ("dsgmcmc.targets.potentials", "DoubleWell"),
        ("dsgmcmc.targets.potentials", "Banana"),
        ("dsgmcmc.runs.sources.density", "sample_density"),
        ("dsgmcmc.config.job", "Policy"),
        ("dsgmcmc.posterior.density", "DensityRun"),
        ("dsgmcmc.samplers.sample", "vector_target"),
        ("dsgmcmc.samplers.sample", "sample"),
        ("dsgmcmc.diagnostics.stein", "kernel_stein_discrepancy"),
        ("dsgmcmc.diagnostics.stein", "tuning_table"),
        ("dsgmcmc.diagnostics.stein", "Tried"),
        ("dsgmcmc.posterior.consensus", "consensus"),
        ("dsgmcmc.samplers.recipe", "Dynamics"),
        ("dsgmcmc.samplers.recipe", "drift"),
        ("dsgmcmc.samplers.recipe", "euler"),
        ("dsgmcmc.samplers.recipe", "residual"),
    ],
    "Samplers, targets and likelihoods of your own": [
        ("dsgmcmc.samplers.base", "Sampler"),
        ("dsgmcmc.samplers.step_size", "SamplerConfig"),
        ("dsgmcmc.samplers.step_size", "StepSize"),
        ("dsgmcmc.samplers.gradients", "GradientEstimator"),
        ("dsgmcmc.samplers.subsampling", "Subsample"),
        ("dsgmcmc.kernels.formula", "Formula"),
        ("dsgmcmc.targets.state", "ParameterBlock"),
        ("dsgmcmc.targets.state", "Conditional"),
        ("dsgmcmc.targets.state", "StateField"),
        ("dsgmcmc.targets.state", "Replicated"),
        ("dsgmcmc.targets.base", "Target"),
        ("dsgmcmc.targets.base", "Cell"),
        ("dsgmcmc.targets.base", "Information"),
        ("dsgmcmc.targets.base", "Recorder"),
        ("dsgmcmc.model.likelihoods.base", "Law"),
        ("dsgmcmc.model.likelihoods.base", "Likelihood"),
        ("dsgmcmc.model.predictive.base", "Predictive"),
        ("dsgmcmc.model.predictive.base", "PredictorDraws"),
        ("dsgmcmc.model.predictive.mixture", "Mixture"),
    ],
}


def reference() -> str:
    """Return the page."""
    parts = ["# Python API", "Generated from the docstrings by `python docs/reference.py`; do not edit."]
    names = ", ".join(name for name in dsgmcmc.__all__ if not name.startswith("_"))
    parts.append(f"`from dsgmcmc import {names}`; everything else from its module.")
    for purpose, public in PUBLIC.items():
        parts.append(f"# {purpose}")
        for module, name in public:
            thing = getattr(importlib.import_module(module), name)
            parts += [f"## {module}.{name}", *_entry(name, thing), *_members(name, thing)]
    return "\n\n".join(parts) + "\n"


def _members(name: str, thing: object) -> list[str]:
    """Entries of a class's public methods and properties, and of no other thing."""
    parts = []
    for member, value in vars(thing).items() if inspect.isclass(thing) else ():
        function = getattr(value, "fget", None) or getattr(value, "func", None) or value
        function = getattr(function, "__func__", function)
        public = not member.startswith("_") or member == "__call__"
        if public and inspect.isfunction(function) and function.__doc__:
            parts += [f"### {name}.{member}", *_entry(member, function, isinstance(value, property))]
    return parts


def _entry(name: str, thing: object, is_property: bool = False) -> list[str]:
    """Signature and docstring, as they are written."""
    parts = []
    if inspect.isfunction(thing) and not is_property:
        parts.append(f"```text\n{name}{inspect.signature(thing)}\n```")
    return [*parts, f"```text\n{inspect.getdoc(thing)}\n```"]


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(reference(), encoding="utf-8")
