"""``dsgmcmc bench cluster`` on several processes: real rings of some of them, while the others wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpi4py import MPI

from dsgmcmc.runs.scaling.study import Study, Wanted

pytestmark = pytest.mark.mpi


def test_the_processes_of_a_node(comm: MPI.Comm, data: Path, tmp_path_factory, together) -> None:
    """1, 2, ... all of them: messages and bytes to the last one what the forecast beside them says."""
    out = comm.bcast(tmp_path_factory.mktemp("scaling") / "out" if comm.rank == 0 else None)
    settings = {"sampler": "baoab", "noise": "shared", "rank": 2, "save_draws": 0, "iterations": "700sweeps"}
    assert Study(comm, Wanted(settings, out, 1200, data)).run() == 0
    found = comm.bcast(json.loads((out / "scaling.json").read_text(encoding="utf-8")) if comm.rank == 0 else None)
    with together():
        assert found["complete"], found["left_out"]
        lines = [line for line in found["measured"] if "strong" in line["series"]]
        doubled = {1 << k for k in range(comm.size.bit_length())}
        assert [line["processes"] for line in lines] == sorted({*doubled, comm.size})
        for line in found["measured"]:
            for name in ("messages_per_sweep", "sent_per_sweep"):
                assert line["seen"][name] == pytest.approx(line["said"][name])
