"""``summary.json``: results and times of a job, under a checksum; see `dsgmcmc.runs.summary`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsgmcmc.config.accuracy import format_accuracy, parse_accuracy
from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import open_plain, write_whole
from dsgmcmc.storage.manifest import seal, unseal

MAX_SUMMARY_BYTES = 1 << 22

Summary = dict[str, Any]
Accuracy = Annotated[str, AfterValidator(lambda text: format_accuracy(parse_accuracy(text)))]
Whole = Annotated[int, Field(ge=0, lt=1 << 63)]
Level = Annotated[str, Field(pattern=r"^0\.[0-9]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class Agreement(_Section):
    """Agreement of chains."""

    above: float
    rhat_median: float
    rhat_worst: float
    pairs: Whole


class Slowest(_Section):
    """A shared parameter that mixes slowly."""

    label: str
    ess: float
    rhat: float


class Baselines(_Section):
    """RMSE of the two baselines."""

    mean_only: float
    biases_only: float


class OverBiases(_Section):
    """How much better a model is than biases only; see `dsgmcmc.diagnostics.baselines.advantage`."""

    measure: Literal["log_probability", "log_predictive_density"]
    biases_only: float
    gain: float
    gain_error: float
    square: float
    square_error: float


class Ending(_Section):
    """`dsgmcmc.diagnostics.accuracy.Look`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    until: Accuracy
    iteration: Whole
    found: dict[str, float]
    reached: bool
    limit: Whole


class PhaseTimes(_Section):
    """Seconds of one phase."""

    mean: float
    max: float
    by_process: list[float]


class Straggler(_Section):
    """The process for which the others waited."""

    process: Whole
    host: str
    busy_seconds: float
    others_seconds: float


class Temperature(_Section):
    """Temperature of a field; see `dsgmcmc.diagnostics.convergence`."""

    value: float
    error: float


class FellBack(_Section):
    """A model, or a chain at an iteration, that has diverged, and what was sampled next."""

    model: str = ""
    chain: Whole = 0
    iteration: Whole = 0
    next: str


class SummaryModel(_Section):
    """Entries of a summary."""

    time: str
    iterations: Whole
    processes: Whole
    seconds_sampling: float
    ratings_per_second: float = 0.0
    data_per_second: float = 0.0
    peak_rss_bytes: list[Whole] = []
    versions: dict[str, str] = {}
    phases: dict[str, PhaseTimes] = Field({}, max_length=16)
    straggler: Straggler | None = None
    fell_back: list[FellBack] = Field([], max_length=1 << 20)
    until: Ending | None = None
    draws: Whole | None = None
    test_ratings: int = Field(1, ge=1, lt=1 << 63)
    tau: float | None = None
    rmse_mean: float | None = None
    mae_mean: float | None = None
    log_probability: float | None = None
    coverage: dict[Level, float] = {}
    baselines: Baselines | None = None
    over_biases: OverBiases | None = None
    agreement: Agreement | None = None
    temperatures: dict[str, Temperature] = Field({}, max_length=64)
    slowest: dict[str, Slowest] = Field({}, max_length=3)
    energy: float | None = None

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.rmse_mean is not None and (self.mae_mean is None or "0.9" not in self.coverage):
            raise ValueError("rmse_mean is there without mae_mean and coverage")
        return self


def save_summary(path: Path, summary: Summary) -> None:
    """Write a summary and its checksum; raises OSError."""
    write_whole(path, seal(json.dumps(summary, indent=1)))


def read_summary(path: Path) -> Summary:
    """Read a summary. Raises InputError if it is damaged or not a summary, and FileNotFoundError if there is none."""
    try:
        with open_plain(path, MAX_SUMMARY_BYTES) as file:
            text = file.read().decode()
        return SummaryModel.model_validate_json(unseal(text, path)).model_dump(exclude_unset=True)
    except (FileNotFoundError, InputError):
        raise
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "its content"
        raise InputError(f"{path} is damaged: {where}: {first['msg']}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
