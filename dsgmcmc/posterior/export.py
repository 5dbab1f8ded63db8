"""A run in one file for other tools.

**HDF5** (format ``dsgmcmc-export``, version 1; D columns: K factors, then the bias if attribute ``biases``):

============================================  ============================================================
``/users/ids``, ``/items/ids``                int64, or UTF-8 of variable length
``/users/ratings``, ``/items/ratings``        (n,) int64: training ratings
``/users/mean``, ``/users/variance``, items   (chains, n, D) float32: posterior moments of every chain, once it ended
``/draws/users``, ``/draws/items``            (draws, n, D) float32 or float16: the saved draws
``/draws/{chain,iteration,weight}``           (draws,): which draw it is, and its weight (they sum to 1)
``/draws/tau``                                (draws,) float64
``/draws/{user,item}_weight``                 (draws, n) float32, where noise is not shared
``/draws/{user,item}_{mean,precision}``       (draws, D), or (draws, D, D) float64: of the rows' prior
``/draws/thresholds``                         (draws, R - 1) float64, where ratings are of levels
``/draws/user_thresholds``                    (draws, n, R - 1) float32, where users have their own
``/draws/...``                                (draws, ...): whatever else the model draws, by the names of its
                                              quantities, such as ``user_implicit``, ``item_features_effects``
attributes                                    ``format version mean rank biases sampler data_hash likelihood levels``
============================================  ============================================================

All numbers have HDF5's checksums (Fletcher32), which any reader compares.

A prediction is mean + users[i, :K] . items[j, :K] + users[i, K] + items[j, K] of one draw, or of one chain's means:
never mix chains, whose latent dimensions differ. Where ratings are of R levels that is the predictor, which has its
probabilities from the thresholds of the same draw, the user's own where they have some; ``weight`` is then the scale s.

**Parquet**: a row for every user and item and chain (``side, id, chain, ratings``, then ``bias, bias_sd, factor_1,
factor_1_sd ...``), or, of draws, for every draw (``side, id, chain, iteration, weight, tau, bias, factor_1 ...``).

**netCDF**: `dsgmcmc.posterior.arviz`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dsgmcmc.data.tables import write_blocks
from dsgmcmc.errors import InputError, writing
from dsgmcmc.model.quantity import THETA
from dsgmcmc.posterior.arviz import to_netcdf
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.files import sync, write_whole
from dsgmcmc.storage.hdf5 import check_sums, new_hdf5
from dsgmcmc.types import Factor

FORMAT, VERSION = "dsgmcmc-export", 1
_CHUNK = 1 << 20  # bytes of a draw under one checksum
KINDS_OF_FILE = {".h5": "hdf5", ".hdf5": "hdf5", ".parquet": "parquet", ".pq": "parquet", ".nc": "netcdf"}


def export(run: Run, out: Path, *, draws: bool = False, float16: bool = False, force: bool = False) -> None:
    """Write a run to one file, atomically.

    Parameters
    ----------
    run : Run
    out : Path
        Its suffix chooses the format: ``.h5``, ``.parquet`` or ``.nc``.
    draws : bool
        Parquet: write draws instead of moments. HDF5 has both.
    float16 : bool
        Draws in half precision (HDF5).
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
    if float16 and kind != "hdf5":
        raise InputError(
            "half precision is only for the draws of an HDF5 export: not all tools read it in other formats"
        )
    if draws and kind != "parquet":
        raise InputError("--draws chooses what a Parquet file holds: HDF5 has moments and draws, netCDF the traces")
    if draws:
        run.need_draws()
    if out.exists() and not force:
        raise InputError(f"{out} exists: give another name, or --force to replace it")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    with writing(out):
        if kind == "hdf5":
            _write_hdf5(run, out, np.dtype(np.float16 if float16 else np.float32))
        elif kind == "netcdf":
            write_whole(out, [to_netcdf(run)])
        else:
            write_blocks(_draw_tables(run) if draws else _moment_tables(run), out)


def _write_hdf5(run: Run, out: Path, dtype: np.dtype[Any]) -> None:
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        _fill_hdf5(run, temporary, dtype)
        sync(temporary)
        check_sums(temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _fill_hdf5(run: Run, path: Path, dtype: np.dtype[Any]) -> None:
    with new_hdf5(path) as (file, check):
        config = run.config
        file.attrs.update(
            format=FORMAT,
            version=VERSION,
            mean=run.mean,
            rank=config.rank,
            biases=config.biases,
            sampler=config.sampler.name,
            data_hash=str(run.facts.get("data_hash", "")),
            likelihood=config.likelihood,
        )
        if "thresholds" in run.traces[0]:
            file.attrs["levels"] = run.levels
        for kind in KINDS:
            ids = run.vocabulary(kind).ids
            group = file.create_group(f"{kind}s")
            group.create_dataset("ids", data=ids, dtype=ids.dtype if ids.dtype.kind == "i" else h5py.string_dtype())
            _add(group, "ratings", run.counts(kind))
            if not run.unfinished:
                _add(group, "mean", np.stack([m.mean[kind] for m in run.moments]))
                _add(group, "variance", np.stack([m.variance[kind] for m in run.moments]))
        group = file.create_group("draws")
        _add(group, "chain", np.array([chain for chain, _ in run.draws], np.int64))
        _add(group, "iteration", np.array([iteration for _, iteration in run.draws], np.int64))
        _add(group, "weight", run.draw_weights)
        count = len(run.draws)
        for number in range(count):
            check()
            for name, array in _arrays_of_draw(run, number):
                kept = dtype if name in ("users", "items") else array.dtype
                _store(group, name, number, count, array, kept)


def _arrays_of_draw(run: Run, number: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """All that belongs to a saved draw, by its names in exports."""
    draw = run.open_draw(number)
    for quantity in run.quantities.drawn_of_rows:
        for factor in Factor if quantity.factor is None else (quantity.factor,):
            whole, kind = draw.whole("draw", factor.name, quantity.name), run.kind_of(factor)
            name = f"{kind}s" if quantity == THETA else f"{kind}_{quantity.exported or quantity.name}"
            yield name, whole if quantity.dims else whole[:, 0]
    for quantity in run.quantities.shared:
        yield run.name_of(quantity.name).replace(".", "_"), draw.manifest.state[quantity.name].array()


def _add(group: Any, name: str, array: npt.NDArray[Any]) -> None:
    """Add a data set with checksums, which HDF5 compares whenever it is read."""
    group.create_dataset(name, data=array, fletcher32=array.size > 0)


def _store(group: Any, name: str, number: int, of: int, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    if number == 0:
        rows = max(1, _CHUNK * len(array) // max(array.nbytes, 1)) if array.ndim else 1
        chunk = (1, min(rows, len(array)), *array.shape[1:]) if array.ndim else (of,)
        group.create_dataset(name, (of, *array.shape), dtype, chunks=chunk, fletcher32=True)
    group[name][number] = array


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
