"""Fit a tensor factorisation of three directions to a table, as its user would.

    python tensors.py NAME RANK TRAIN.csv TEST.csv

Files have a title line, then lines of three names, each a letter and a number, and a value. Values
are standardised by the mean and standard deviation of TRAIN. Printed is JSON: the RMSE of TEST in
the unit of the values, and the processor seconds of the fit without start-up and reading. NAME is

- ``smurff``: the tensor factorisation of SMURFF with its sampled noise, in an environment that has
  it; 500 sweeps, 100 of them burn-in;
- ``cp``: a Gibbs sampler in NumPy of the Bayesian Gaussian CP factorisation of Chen, He & Sun
  (2019), `doi:10.1016/j.trc.2018.11.003`; 1,200 sweeps, 1,000 of them burn-in as there.
"""

import csv
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

SMURFF_SWEEPS = {"burnin": 100, "nsamples": 400}
CP_BURN_IN = 1000
CP_SWEEPS = 1200


class Cells(NamedTuple):
    """Known or hidden cells of a table of three directions."""

    index: np.ndarray  # (cells, 3)
    value: np.ndarray


def read(path: str) -> Cells:
    """Return the cells of a file."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    index = [[int(name[1:]) for name in line[:3]] for line in lines]
    return Cells(np.array(index), np.array([float(line[3]) for line in lines]))


# ---------------------------------------------------------------------- SMURFF


def smurff(rank: int, train: Cells, test: Cells, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mean predictions of SMURFF."""
    import pandas as pd
    import smurff as package

    def tensor(cells: Cells) -> object:
        frame = pd.DataFrame(cells.index.astype(np.int32), columns=["first", "second", "third"])
        frame["value"] = cells.value
        return package.SparseTensor(frame, shape)

    session = package.TrainSession(
        priors=["normal"] * 3,
        num_latent=rank,
        num_threads=1,
        seed=1,
        verbose=0,
        **SMURFF_SWEEPS,
    )
    session.addTrainAndTest(tensor(train), tensor(test), package.AdaptiveNoise(1.0, 10.0))
    predicted = {tuple(p.coords): p.pred_avg for p in session.run()}
    return np.array([predicted[place] for place in map(tuple, test.index.tolist())])


# ---------------------------------------------------------------------- CP


def wishart(rng: np.random.Generator, degrees: float, scale: np.ndarray) -> np.ndarray:
    """Draw a Wishart matrix by Bartlett's decomposition."""
    rank = len(scale)
    lower = np.tril(rng.normal(size=(rank, rank)), -1)
    lower[np.diag_indices(rank)] = np.sqrt(rng.chisquare(degrees - np.arange(rank)))
    root = np.linalg.cholesky(scale) @ lower
    return root @ root.T


def draw_prior(rng: np.random.Generator, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw the mean and the precision of the rows of a factor given the rows."""
    n_rows, rank = factor.shape
    mean = factor.mean(axis=0)
    centred = factor - mean
    inverse_scale = np.eye(rank) + centred.T @ centred
    inverse_scale += n_rows / (n_rows + 1) * np.outer(mean, mean)
    precision = wishart(rng, rank + n_rows, np.linalg.inv(inverse_scale))
    root = np.linalg.cholesky((n_rows + 1) * precision)
    drawn_mean = n_rows * mean / (n_rows + 1) + np.linalg.solve(root.T, rng.normal(size=rank))
    return drawn_mean, precision


def draw_factor(
    rng: np.random.Generator, factors: list[np.ndarray], axis: int, known: list[np.ndarray]
) -> np.ndarray:
    """Draw the rows of a factor given the two others.

    `known` has two tensors: the mask of known cells, and their values, each times the precision of
    the noise.
    """
    others = [factors[number] for number in range(3) if number != axis]
    rank = others[0].shape[1]
    products = (others[0][:, None, :] * others[1][None, :, :]).reshape(-1, rank)
    squares = (products[:, :, None] * products[:, None, :]).reshape(-1, rank * rank)
    mask, values = (np.moveaxis(part, axis, 0).reshape(len(factors[axis]), -1) for part in known)
    mean, prior = draw_prior(rng, factors[axis])
    precision = (mask @ squares).reshape(-1, rank, rank) + prior
    linear = values @ products + prior @ mean
    root = np.linalg.cholesky(precision)
    half = np.linalg.solve(root, linear[:, :, None]) + rng.normal(size=(*linear.shape, 1))
    return np.linalg.solve(root.transpose(0, 2, 1), half)[:, :, 0]


def cp(rank: int, train: Cells, test: Cells, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mean predictions of a Gibbs sampler of a CP factorisation."""
    rng = np.random.default_rng(1)
    mask = np.zeros(shape)
    mask[tuple(train.index.T)] = 1.0
    values = np.zeros(shape)
    values[tuple(train.index.T)] = train.value
    factors = [0.1 * rng.normal(size=(size, rank)) for size in shape]
    noise_precision = 1.0
    total = np.zeros(shape)
    for sweep in range(CP_SWEEPS):
        known = [noise_precision * mask, noise_precision * values]
        for axis in range(3):
            factors[axis] = draw_factor(rng, factors, axis, known)
        drawn = np.einsum("ik,jk,lk->ijl", *factors, optimize=True)
        squares = ((values - drawn)[mask > 0] ** 2).sum()
        noise_precision = rng.gamma(1e-6 + mask.sum() / 2, 1 / (1e-6 + squares / 2))
        if sweep >= CP_BURN_IN:
            total += drawn
    return total[tuple(test.index.T)] / (CP_SWEEPS - CP_BURN_IN)


PROGRAMS = {"smurff": smurff, "cp": cp}


def main(name: str, rank: int, train_file: str, test_file: str) -> None:
    """Print the RMSE and the seconds of a fit."""
    train = read(train_file)
    test = read(test_file)
    mean = train.value.mean()
    sd = train.value.std()
    shape = tuple((np.concatenate([train.index, test.index]).max(axis=0) + 1).tolist())
    begin = time.process_time()
    scaled = [Cells(cells.index, (cells.value - mean) / sd) for cells in (train, test)]
    predicted = mean + sd * PROGRAMS[name](rank, *scaled, shape)
    seconds = time.process_time() - begin
    rmse = float(np.sqrt(np.mean((predicted - test.value) ** 2)))
    print(json.dumps({"rmse": rmse, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
