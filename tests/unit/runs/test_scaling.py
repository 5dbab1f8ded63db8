"""``dsgmcmc bench cluster``: what it measures where, what it writes, and that it ends in time. Rings: ``tests/mpi``."""

from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path

import pytest
from support import dsgmcmc, run, write_planted

from dsgmcmc.cluster.constants import read_machine
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.runs.scaling.layouts import Layout, layouts, places
from dsgmcmc.runs.scaling.page import render
from dsgmcmc.runs.scaling.study import Study, Wanted

SETTINGS = {"sampler": "psgld", "noise": "shared", "rank": 2, "save_draws": 0, "iterations": "700sweeps"}


def test_nodes_are_filled_one_after_the_other() -> None:
    """Two nodes of three processes: strong and weak go 1, 2, 3, 6; spread has both nodes; what is the same is one."""
    found = layouts(2, 3, 6000, 1000)
    assert {name: [lay.processes for lay, of in found.items() if name in of] for name in ("strong", "weak")} == {
        "strong": [1, 2, 3, 6],
        "weak": [6, 1, 2, 3],
    }
    assert [(lay.nodes, lay.each) for lay, of in found.items() if "spread" in of] == [(2, 3), (2, 1), (2, 2)]
    assert {lay.ratings for lay, of in found.items() if "weak" not in of} == {6000}
    assert [lay.ratings for lay, of in found.items() if of == ["weak"]] == [1000, 2000, 3000]
    assert all("spread" not in of for of in layouts(1, 3, 6000, 1000).values())


def test_places_are_the_first_of_each_host() -> None:
    """Also where the launcher has dealt ranks out to the hosts in turn."""
    hosts = ["a", "b", "a", "b", "a", "b"]
    assert places(hosts, Layout(1, 2, 0)) == [0, 2]
    assert places(hosts, Layout(2, 1, 0)) == [0, 1]
    assert places(hosts, Layout(2, 3, 0)) == [0, 2, 4, 1, 3, 5]


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one process on a file that has more than ratings."""
    folder = tmp_path_factory.mktemp("studied")
    data = write_planted(folder / "r.h5", rows=300, columns=80, features=(2, 2), timed=True)
    assert Study(Alone(), Wanted(SETTINGS, folder / "out", 600, data)).run() == 0
    return folder / "out"


def test_seen_stands_beside_said(studied: Path) -> None:
    """Every figure of a sweep, a checkpoint and a resumption; the machine's constants serve `dsgmcmc plan`."""
    found = json.loads((studied / "scaling.json").read_text(encoding="utf-8"))
    assert found["complete"]
    (line,) = found["measured"]
    assert line["series"] == ["strong", "weak"]
    for name in ("seconds_per_sweep", "memory_per_process", "checkpoint_seconds"):
        assert line["seen"][name] > 0 < line["said"][name]
    assert line["seen"]["resume_seconds"] > 0
    assert line["seen"]["messages_per_sweep"] == line["said"]["messages_per_sweep"] == 0
    assert line["seen"]["fastest"] <= line["seen"]["seconds_per_sweep"] <= line["seen"]["slowest"]
    assert read_machine(studied / "machine.toml").model_dump() == found["machine"]
    assert sorted(path.name for path in studied.iterdir()) == ["machine.toml", "scaling.html", "scaling.json"]


def test_results_name_nobody(studied: Path) -> None:
    """They are sent to others: no host, no user, no folder; and the page needs no network."""
    secrets = [platform.node(), str(studied), str(studied.parent), str(Path.home()) + "/", "r.h5"]
    secrets += [getpass.getuser()] if len(getpass.getuser()) > 4 else []
    for name in ("scaling.json", "scaling.html"):
        text = (studied / name).read_text(encoding="utf-8")
        assert not [secret for secret in secrets if secret in text]
    page = (studied / "scaling.html").read_text(encoding="utf-8")
    assert "Strong scaling" in page
    assert "<script" not in page
    assert "http" not in page
    assert page == render(json.loads((studied / "scaling.json").read_text(encoding="utf-8")))


def test_what_there_is_no_time_for_is_left_out(tmp_path: Path) -> None:
    """The job ends before its limit instead of being killed at it, with what it has."""
    data = write_planted(tmp_path / "r.h5", rows=300, columns=80)
    study = Study(Alone(), Wanted(SETTINGS, tmp_path / "out", 1e6, data))
    study._around = 1e6  # as if the one before had taken so many seconds
    assert study.run() == 0
    found = json.loads((tmp_path / "out" / "scaling.json").read_text(encoding="utf-8"))
    assert not found["complete"]
    assert "the time is nearly up" in found["left_out"][0]["left_out"]
    assert "Left out" in (tmp_path / "out" / "scaling.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ratings", "5"], "--ratings 5: expected a number from 10,000"),
        (["--each", "many"], "--each many: expected a number"),
        (["--time", "soon"], "--time soon: expected a time"),
        (["--time", "1min", "--ratings", "1e9"], "give more --time, or fewer --ratings"),
        (["none.h5"], "none.h5 does not exist"),
        (["none.h5", "--ratings", "1e6"], "leave one of the two out"),
        (["--sampler", "nothing"], "nothing"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    """In one message, before anything is measured: an allocation is dear."""
    done = run(*dsgmcmc("bench", "cluster", "--out", tmp_path / "out", *arguments)).expect(2)
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Results of another allocation are not written over."""
    (tmp_path / "scaling.json").touch()
    with pytest.raises(InputError, match="is not empty: give a new folder"):
        Study(Alone(), Wanted(SETTINGS, tmp_path, 600)).run()
