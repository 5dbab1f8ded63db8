"""What other tools do with the ratings of large.py: more and more of them, while memory and a time limit allow.

    python tests/benchmarks/large_rivals.py FOLDER [--only SMURFF,LIBMF,Spark] [--sizes 2e7,1e8,4.5e8] [--limit 600]

FOLDER has ratings.h5 of large.py. Every tool gets the training ratings of the first so many users, at rank 16, in a
process that may have 20 GB; seconds are of its fit, the RMSE is of these users' held-out ratings. Tools are installed
as by others.py. Spark needs a Java runtime. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

RANK, THREADS, MOST = 16, 2, 20 << 30
NAMES = ("users", "items", "values")


def smurff(train, test, shape):
    """Seconds of a sweep of SMURFF's BPMF with adaptive noise; its RMSE after four."""
    import smurff
    from scipy import sparse

    mean = float(train[2].mean())
    given, held = (
        sparse.coo_matrix((part[2] - np.float32(mean), (part[0], part[1])), shape=shape) for part in (train, test)
    )
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            priors=["normal", "normal"],
            num_latent=RANK,
            num_threads=THREADS,
            burnin=2,
            nsamples=2,
            seed=1,
            verbose=0,
            save_name=f"{folder}/run.hdf5",
        )
        session.addTrainAndTest(given, held, smurff.AdaptiveNoise(1.0, 10.0))
        session.init()
        begin, status = perf_counter(), session.getStatus()
        while session.step():
            status = session.getStatus()
        return (perf_counter() - begin) / 4, status.rmse_avg


def libmf(train, test, shape):
    """LIBMF's SGD, 10 iterations."""
    from libmf.mf import MF

    model = MF(k=RANK, nr_threads=THREADS, nr_iters=10, quiet=True, lambda_p2=0.05, lambda_q2=0.05)
    given = np.empty((len(train[0]), 3), np.float32)
    for number, column in enumerate(train):
        given[:, number] = column
    begin = perf_counter()
    model.fit(given)
    seconds = perf_counter() - begin
    w, h = (np.nan_to_num(each) for each in (model.p_factors(), model.q_factors()))
    squares = 0.0
    for some in np.array_split(np.arange(len(test[0])), max(1, len(test[0]) // 1_000_000)):
        users, items = np.minimum(test[0][some], len(w) - 1), np.minimum(test[1][some], len(h) - 1)
        squares += float(((test[2][some] - (w[users] * h[items]).sum(axis=1)) ** 2).sum())
    return seconds, (squares / len(test[0])) ** 0.5


def spark(train, test, shape):
    """Spark's ALS on this machine alone, 10 iterations."""
    import pandas as pd
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    build = SparkSession.builder.master(f"local[{THREADS}]").config("spark.ui.enabled", "false")
    session = build.config("spark.driver.memory", f"{MOST * 3 // 4 >> 20}m").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for part, columns in (("train", train), ("test", test)):
            for number, some in enumerate(np.array_split(np.arange(len(columns[0])), max(2, len(columns[0]) >> 22))):
                table = pd.DataFrame({name: column[some] for name, column in zip(NAMES, columns, strict=True)})
                Path(folder, part).mkdir(exist_ok=True)
                table.to_parquet(Path(folder, part, f"{number:05}.parquet"))
        given, held = (session.read.parquet(f"{folder}/{part}") for part in ("train", "test"))
        begin = perf_counter()
        als = ALS(rank=RANK, regParam=0.1, seed=0, userCol="users", itemCol="items", ratingCol="values")
        model = als.setColdStartStrategy("drop").fit(given)
        model.userFactors.count(), model.itemFactors.count()
        seconds = perf_counter() - begin
        error = model.transform(held).selectExpr("avg(pow(`values` - prediction, 2)) as e")
        return seconds, error.collect()[0]["e"] ** 0.5


TOOLS = {"SMURFF": smurff, "LIBMF": libmf, "Spark": spark}


def inside(name, folder):
    """Run a tool in its own environment on arrays in a folder."""
    if name != "Spark":  # Java has its own limit, and reserves more than it takes
        resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
    parts = [[np.load(folder / f"{part}_{each}.npy", mmap_mode="r") for each in NAMES] for part in ("train", "test")]
    shape = tuple(max(int(part[side].max()) for part in parts) + 1 for side in (0, 1))
    seconds, rmse = TOOLS[name](*parts, shape)
    print(json.dumps({"seconds": seconds, "rmse": rmse, "GB": sum(map(peak, [os.getpid(), *children(os.getpid())]))}))


def children(process):
    """Processes that a process has started, and those of these."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return [each for one in found for each in (one, *children(one))]


def peak(process):
    """Most memory that a process has had, in GB."""
    return int(Path(f"/proc/{process}/status").read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]) / 1e6


def export(data, folder, size):
    """Write the ratings of the first users, about `size` training ratings, as plain arrays."""
    import h5py

    with h5py.File(data) as file:
        users = int(np.searchsorted(file["train/indptr"][:], size, side="right")) - 1
        for part in ("train", "test"):
            indptr = file[part]["indptr"][: users + 1]
            rows = np.repeat(np.arange(users, dtype=np.int32), np.diff(indptr))
            columns = rows, file[part]["indices"][: indptr[-1]], file[part]["values"][: indptr[-1]]
            for name, column in zip(NAMES, columns, strict=True):
                np.save(folder / f"{part}_{name}.npy", column)
    return users, int(indptr[-1])


def main():
    """Measure every tool at every size, and print a line for each."""
    from others import PACKAGES, environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(TOOLS))
    parser.add_argument("--sizes", default="2e7,1e8,4.5e8")
    parser.add_argument("--limit", type=float, default=600, help="seconds of a fit and what it needs")
    parser.add_argument("--environments", type=Path, help="folder with env-NAME; default FOLDER")
    given = parser.parse_args()
    more = {"Spark": ("pandas", "pyarrow")}
    left = given.only.split(",")
    for size in given.sizes.split(","):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            users, _ = export(given.folder / "ratings.h5", Path(name), float(size))
            for tool in list(left):
                folder = (given.environments or given.folder) / f"env-{tool}"
                python = environment(folder, PACKAGES[tool] + more.get(tool, ()))
                command = [python, __file__, "--inside", tool, name]
                try:
                    done = subprocess.run(command, capture_output=True, text=True, timeout=given.limit, check=False)
                    ending = done.stderr.strip()[-300:] or f"ended with status {done.returncode}"
                    said = [ending] if done.returncode else done.stdout.strip().splitlines()[-1:]
                except subprocess.TimeoutExpired:
                    said = [f"not done after {given.limit:g} s"]
                print(f"{tool}, {float(size):,.0f} ratings of {users:,} users: {said[0]}", flush=True)
                if not said[0].startswith("{"):
                    left.remove(tool)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
