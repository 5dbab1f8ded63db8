"""The result of a comparison of models: a table, and the recommended model.

It is stored in a file with a checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from dsgmcmc.diagnostics.summary import read_summary, save_summary
from dsgmcmc.errors import refusing
from dsgmcmc.ratings.directions import Arrangement, arrangements_of
from dsgmcmc.ratings.format import Directions

#: Texts for the criteria, by their names in tables. For every criterion but the RMSE, larger values
#: are better.
CRITERIA = {
    "log-probability": "log probability of the recorded rating",
    "log-density": "log density",
    "rmse": "RMSE",
    "ndcg": "NDCG@10",
}


class Model(BaseModel):
    """A model that was sampled.

    Attributes
    ----------
    name : str
    settings : dict
        Settings under the names that `sample` uses.
    sweeps : int
        Number of sweeps of its chain.
    criterion : float or None
        Mean of the criterion over the held-out ratings; None if the chain diverged.
    behind, error : float or None
        By how much its criterion is worse than that of the best model, after as many sweeps as both
        chains have, and the standard error of this difference.
    rmse, mae : float or None
        Errors of predictions (with scale log, of means or medians: `dsgmcmc.model.log_scale`), if
        they were measured.
    seconds : float or None
        Time that its chain took.
    larger_error_than : str
        A simpler model with a mean squared error that is clearly smaller; empty if there is none.
    outdone_by : str
        Such a model, if the criterion gains less than the larger error costs, so that this model is
        not recommended (`dsgmcmc.runs.candidate_scores.outdone`); empty if there is none.
    arrangement : str
        Name of the arrangement of a table of three directions; empty for a matrix.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    settings: dict[str, Any]
    sweeps: int
    criterion: float | None = None
    behind: float | None = None
    error: float | None = None
    rmse: float | None = None
    mae: float | None = None
    seconds: float | None = None
    larger_error_than: str = ""
    outdone_by: str = ""
    arrangement: str = ""


class Comparison(BaseModel):
    """The models that were compared, and the choice.

    Attributes
    ----------
    data_hash : str
        Hash of the ratings file.
    metric : str
        A key of `CRITERIA`.
    training, held_out : int
        Number of ratings from which the models were sampled, and number of ratings on which they
        were scored.
    models : list of Model
        In the order of their complexity.
    left_out : list of str
        Models that were not sampled, because their likelihood, or a part added to the model, had no
        gain when tried alone.
    best, recommended : str
        Names of the model with the best criterion, and of the recommended model.
    given_up : list of str
        Models that were recommended first, but diverged in the full run.
    note : str
        Hint that ratings of some value probably mean "not rated".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_hash: str
    metric: str
    training: int
    held_out: int
    models: list[Model]
    left_out: list[str]
    best: str
    recommended: str
    given_up: list[str] = []
    note: str = ""

    def model(self, name: str) -> Model:
        """Return the model with this name."""
        return next(model for model in self.models if model.name == name)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the recommended model."""
        return self.model(self.recommended).settings

    def arrangement(self, directions: Directions) -> Arrangement:
        """Return the arrangement of the recommended model, for a table of these directions."""
        name = self.model(self.recommended).arrangement
        return next(found for found in arrangements_of(directions) if found.name == name)

    def without_recommended(self) -> Self | None:
        """Recommend the best other model after the recommended model diverged.

        None if no other model has a score.
        """
        given_up = [*self.given_up, self.recommended]
        scores = {
            model.name: model.criterion for model in self.models if model.criterion is not None
        }
        others = [
            name for name in scores if name not in given_up and not self.model(name).outdone_by
        ]
        if not others:
            return None
        if self.metric == "rmse":
            best = min(others, key=lambda name: scores[name])
        else:
            best = max(others, key=lambda name: scores[name])
        return self.model_copy(update={"recommended": best, "given_up": given_up})

    def sentence(self) -> str:
        """Write the recommendation, and what speaks against it."""
        return " ".join([self._recommendation(), *self._next_arrangement(), *self._reservations()])

    def _next_arrangement(self) -> list[str]:
        """Name the best other arrangement of a table of three directions, and how far behind."""
        chosen = self.model(self.recommended).arrangement
        others = {
            model.name: model.behind
            for model in self.models
            if model.arrangement != chosen and model.behind is not None
        }
        if not others:
            return []
        best = self.model(min(others, key=others.__getitem__))
        return [
            f"The next arrangement is {best.name} ({best.behind:.4f} worse, standard error"
            f" {best.error:.4f})."
        ]

    def _reservations(self) -> list[str]:
        """Name simpler models with a smaller error, and models that are not recommended for it."""
        criterion = CRITERIA[self.metric]
        sentences = []
        error = "mean squared error"
        simpler = self.model(self.recommended).larger_error_than
        if simpler:
            sentences.append(f"Its {criterion} is better, its {error} worse than {simpler}'s.")
        for model in self.models:
            if model.outdone_by and model.behind is not None and model.behind < 0:
                sentences.append(
                    f"The {criterion} of {model.name} is better by {-model.behind:.4f}, its {error}"
                    f" clearly worse than {model.outdone_by}'s."
                )
        return sentences

    def _recommendation(self) -> str:
        criterion = CRITERIA[self.metric]
        if self.given_up:
            return (
                f"Take {self.recommended}: {' and '.join(self.given_up)} diverged in the full run."
            )
        if self.recommended == self.best:
            return f"Take {self.recommended}: it has the best {criterion}."
        chosen = self.model(self.recommended)
        return (
            f"Take {self.recommended}: it is the simplest model whose {criterion} is within one"
            f" standard error of the best, that of {self.best} ({chosen.behind:.4f} worse, standard"
            f" error {chosen.error:.4f})."
        )

    def including(self, common: Mapping[str, Any]) -> Self:
        """Return the comparison with `common` settings added to the settings of every model."""
        models = [
            model.model_copy(update={"settings": {**model.settings, **common}})
            for model in self.models
        ]
        return self.model_copy(update={"models": models})

    def save(self, path: Path) -> None:
        """Write the comparison to a file; raises OSError."""
        save_summary(path, self.model_dump())

    @classmethod
    def read(cls, path: Path) -> Comparison:
        """Read a comparison.

        Raises InputError if the file is damaged, and FileNotFoundError if there is none.
        """
        with refusing(f"{path} is damaged", ValidationError):
            return cls.model_validate(read_summary(path))

    def toml(self) -> str:
        """Return the settings of the recommended model, for ``sample --config``."""
        return f"# {self.sentence()}\n{tomli_w.dumps(self.settings)}"

    def table(self) -> dict[str, Any]:
        """Return the comparison as plain values, with the recommended settings and the sentence."""
        return {**self.model_dump(), "settings": self.settings, "sentence": self.sentence()}
