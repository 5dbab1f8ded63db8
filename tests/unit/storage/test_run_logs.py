"""Logs: lines of JSON, a torn last line, damage anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.storage.logs import EventLine, append, read_log
from dsgmcmc.storage.rundir import RunDirectory


def line(iteration: int) -> dict[str, object]:
    return {"chain": 0, "iteration": iteration, "sweep": 1.0, "time_s": 0.5, "rmse": 0.9, "rmse_mean": None}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory with logs of three lines."""
    made = RunDirectory(tmp_path)
    for iteration in (1, 2, 3):
        append(made.metrics_file(0), line(iteration))
        made.note("resumed", iteration=iteration)
    return made


def test_what_is_appended_is_read_back(run: RunDirectory) -> None:
    """Line by line."""
    assert list(run.metrics()) == [line(1), line(2), line(3)]
    assert [event["iteration"] for event in run.events()] == [1, 2, 3]
    assert run.logs() == [run.path / "events.jsonl", run.metrics_file(0)]


@pytest.mark.parametrize("torn", [b'{"chain": 0, "iter', b"\0" * 700, b"\xff"])
def test_a_torn_last_line_is_left_out_and_cut_off(run: RunDirectory, torn: bytes) -> None:
    """A killed process leaves it; what the next one appends must not become a part of it."""
    for file in (run.metrics_file(0), run.path / "events.jsonl"):
        with file.open("ab") as log:
            log.write(torn)
    whole = run.metrics_file(0).read_bytes()[: -len(torn)]
    assert len(list(run.metrics())) == len(run.events()) == 3
    run.mend_logs()
    assert run.metrics_file(0).read_bytes() == whole
    run.note("resumed", iteration=4)
    assert [event["iteration"] for event in run.events()] == [1, 2, 3, 4]


def test_a_line_without_its_end_is_whole(run: RunDirectory) -> None:
    """Only the newline was lost."""
    file = run.metrics_file(0)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert len(list(run.metrics())) == 3
    run.mend_logs()
    assert file.read_bytes() == whole


def test_nothing_but_a_torn_line_is_mended(run: RunDirectory) -> None:
    """What is no JSON, a lost line end: named with its line, by readers and before a job goes on; the file stays."""
    file = run.metrics_file(0)
    whole = file.read_bytes()
    for damaged in (
        whole.replace(b'"iteration": 2', b'"iteration": 2x'),
        whole.replace(b"}\n", b"}", 1),
        b"\n" + whole,
    ):
        file.write_bytes(damaged)
        for work in (run.mend_logs, run.logs, run.metrics):
            with pytest.raises(InputError, match=r"metrics\.jsonl, line [12], is damaged"):
                work()
        assert file.read_bytes() == damaged


def test_a_damaged_event_is_left_out(run: RunDirectory) -> None:
    """Processes of several hosts append; a job must not end for what two of them wrote at once.

    `verify` refuses the line until the next job has removed it.
    """
    file = run.path / "events.jsonl"
    before = run.events()
    damaged = file.read_bytes().replace(b'"iteration": 2', b'"iteration": 2x')
    file.write_bytes(damaged + b'{"torn')
    with pytest.raises(InputError, match=r"events\.jsonl, line 2, is damaged"):
        run.logs()
    for _ in range(2):
        assert run.events() == [before[0], before[2]]
        run.mend_logs()
    assert file in run.logs()


def test_a_line_follows_what_a_full_disk_has_left_of_another(run: RunDirectory) -> None:
    """Else the two would be one damaged line, which no job goes on after."""
    before = list(run.metrics())
    with run.metrics_file(0).open("ab") as log:
        log.write(b'{"chain": 0, "iter')
    run.add_metrics(0, {"chain": 0, "iteration": 9, "sweep": 1.0, "time_s": 1.0})
    assert [line["iteration"] for line in run.metrics()] == [*(line["iteration"] for line in before), 9]


def test_a_job_does_not_write_through_a_link(run: RunDirectory) -> None:
    """A directory that came from elsewhere could have it append to any file of the user."""
    precious = run.path / "precious"
    precious.write_text("", encoding="utf-8")
    (run.path / "events.jsonl").unlink()
    (run.path / "events.jsonl").symlink_to(precious)
    with pytest.raises(InputError, match="is a link"):
        run.mend_logs()
    with pytest.raises(OSError, match="symbolic"):
        run.note("resumed")
    assert precious.read_text(encoding="utf-8") == ""


def test_metrics_of_every_chain_have_a_file_of_their_own(tmp_path: Path) -> None:
    """They are read by chain and iteration; what is cut from one stays in the others."""
    run = RunDirectory(tmp_path)
    for chain in (1, 0):
        for iteration in (1, 2):
            run.add_metrics(chain, {**line(iteration), "chain": chain})
    run.cut_metrics(0, 1)
    assert [(found["chain"], found["iteration"]) for found in run.metrics()] == [(0, 1), (1, 1), (1, 2)]


def test_a_line_says_what_it_must(tmp_path: Path) -> None:
    """An event without a time is none."""
    append(tmp_path / "events.jsonl", {"event": "resumed"})
    with pytest.raises(InputError, match=r"line 1, is damaged \(time: Field required\)"):
        list(read_log(tmp_path / "events.jsonl", EventLine, 1000))
