"""The result of a comparison: a table of models, and which of them is recommended; its file, with a checksum."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from dsgmcmc.diagnostics.summary import read_summary, save_summary
from dsgmcmc.errors import InputError

#: Criteria by what they are called in tables; each is there with its sign, so that more is better but for the RMSE.
CRITERIA = {
    "log-probability": "log probability of the rating's level",
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
        By the names of `sample`.
    sweeps : int
        How long its chain was.
    criterion : float or None
        Mean of the criterion over the ratings that were held out; None if the chain diverged.
    behind, error : float or None
        How much worse than the best model at that length, and the standard error of that.
    rmse, ndcg : float or None
        RMSE, and NDCG@10, where they were measured.
    seconds : float or None
        What its chain took.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    settings: dict[str, str | int]
    sweeps: int
    criterion: float | None = None
    behind: float | None = None
    error: float | None = None
    rmse: float | None = None
    ndcg: float | None = None
    seconds: float | None = None


class Comparison(BaseModel):
    """What was compared, and the choice.

    Attributes
    ----------
    data_hash : str
        Of the ratings file.
    metric : str
        A key of `CRITERIA`.
    training, held_out : int
        Ratings that the models were sampled from, and that they were scored on.
    models : list of Model
        In the order of their complexity.
    left_out : list of str
        Models that were not sampled, as their law had lost.
    best, recommended : str
        Names of models.
    given_up : list of str
        Models that were recommended before, and diverged when they were sampled whole.
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

    def model(self, name: str) -> Model:
        """The model of a name."""
        return next(each for each in self.models if each.name == name)

    @property
    def settings(self) -> dict[str, str | int]:
        """Settings of the recommended model."""
        return self.model(self.recommended).settings

    def without_recommended(self) -> Self | None:
        """Recommend the best of the other models, in place of one that diverged; None if no other has a score."""
        given_up = [*self.given_up, self.recommended]
        others = [each for each in self.models if each.criterion is not None and each.name not in given_up]
        if not others:
            return None
        smaller_is_better = self.metric == "rmse"
        best = max(others, key=lambda each: (each.criterion or 0.0) * (-1 if smaller_is_better else 1))
        return self.model_copy(update={"recommended": best.name, "given_up": given_up})

    def sentence(self) -> str:
        """The recommendation."""
        criterion = CRITERIA[self.metric]
        if self.given_up:
            return f"Take {self.recommended}: {' and '.join(self.given_up)} diverged when sampled whole."
        if self.recommended == self.best:
            return f"Take {self.recommended}: it has the best {criterion}."
        gap = self.model(self.recommended)
        return (
            f"Take {self.recommended}: it is the simplest model whose {criterion} is within one standard error of the "
            f"best, that of {self.best} ({gap.behind:.4f} worse, standard error {gap.error:.4f})."
        )

    def save(self, path: Path) -> None:
        """Write it; raises OSError."""
        save_summary(path, self.model_dump())

    @classmethod
    def read(cls, path: Path) -> Comparison:
        """Read it. Raises InputError if it is damaged, and FileNotFoundError if there is none."""
        try:
            return cls.model_validate(read_summary(path))
        except ValidationError as error:
            raise InputError(f"{path} is damaged: {error.errors(include_input=False)[0]['msg']}") from error

    def toml(self) -> str:
        """Settings of the recommended model, for ``sample --config``."""
        return f"# {self.sentence()}\n{tomli_w.dumps(self.settings)}"

    def table(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**self.model_dump(), "settings": self.settings, "sentence": self.sentence()}
