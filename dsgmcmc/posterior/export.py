"""A run in one file for other tools.

**Parquet**: a row for every user and item and chain (``side, id, chain, ratings``, then ``bias, bias_sd, factor_1,
factor_1_sd ...``), or, of draws, for every draw (``side, id, chain, iteration, weight, tau, bias, factor_1 ...``).

A prediction is the mean of the training ratings + the products of the factors + both biases, of one draw or of one
chain's means: never mix chains, whose latent dimensions differ.

**netCDF**: `dsgmcmc.posterior.arviz`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.tables import write_blocks
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.arviz import to_netcdf
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.files import write_whole

KINDS_OF_FILE = {".parquet": "parquet", ".pq": "parquet", ".nc": "netcdf"}


def export(run: Run, out: Path, *, draws: bool = False, force: bool = False) -> None:
    """Write a run to one file, atomically.

    Parameters
    ----------
    run : Run
    out : Path
        Its suffix chooses the format: ``.parquet`` or ``.nc``.
    draws : bool
        Parquet: write draws instead of moments.
    force : bool
        Replace `out` if it exists.

    Raises
    ------
    InputError
        If the format is unknown or does not support the options, the run has no such results yet, or the file exists.
    WriteError
        If it cannot be written.
    """
    kind = KINDS_OF_FILE.get(out.suffix.lower())
    if kind is None:
        raise InputError(f"{out}: the format is told by the suffix: {', '.join(KINDS_OF_FILE)}")
    if draws and kind != "parquet":
        raise InputError("--draws chooses what a Parquet file holds; netCDF has the traces")
    if draws:
        run.need_draws()
    if out.exists() and not force:
        raise InputError(f"{out} exists: give another name, or --force to replace it")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    with writing(out):
        if kind == "netcdf":
            write_whole(out, [to_netcdf(run)])
        else:
            write_blocks(_draw_tables(run) if draws else _moment_tables(run), out)


def _labels(run: Run, kind: str) -> dict[str, npt.NDArray[Any]]:
    ids = run.vocabulary(kind).ids
    if not (run.users.integers and run.items.integers):  # one column has one type
        ids = ids.astype(str).astype(object)
    return {"side": np.full(len(ids), kind, dtype=object), "id": ids}


def _columns(run: Run) -> list[tuple[str, int]]:
    """Name and column of what a row of theta has, the bias first."""
    rank = run.config.rank
    factors = [(f"factor_{k + 1}", k) for k in range(rank)]
    return [("bias", rank), *factors] if run.config.biases else factors


def _moment_tables(run: Run) -> Iterator[dict[str, npt.NDArray[Any]]]:
    for chain, m in zip(run.chains, run.moments, strict=True):
        for kind in KINDS:
            table = _labels(run, kind) | {"chain": np.full(len(m.mean[kind]), chain), "ratings": run.counts(kind)}
            for name, k in _columns(run):
                table[name] = np.ascontiguousarray(m.mean[kind][:, k])
                table[f"{name}_sd"] = np.sqrt(np.ascontiguousarray(m.variance[kind][:, k]))
            yield table


def _draw_tables(run: Run) -> Iterator[dict[str, npt.NDArray[Any]]]:
    for number, (chain, iteration) in enumerate(run.draws):
        draw = run.draw(number)
        for kind in KINDS:
            n = len(draw.theta[kind])
            facts = {"chain": chain, "iteration": iteration, "weight": run.draw_weights[number], "tau": draw.tau}
            table = _labels(run, kind) | {name: np.full(n, value) for name, value in facts.items()}
            for name, k in _columns(run):
                table[name] = np.ascontiguousarray(draw.theta[kind][:, k])
            yield table
