"""A command that lacks a package says how to install it; the other commands need nothing."""

import sys
import venv
from pathlib import Path

import pytest
from support import ROOT, lacking, run, typed, write_planted

from dsgmcmc import open_run
from dsgmcmc.errors import InputError

SMALL = ["--rank=2", "--grid=2", "--iterations=20", "--burn-in=4", "--thin=4"]


def test_what_is_lacking_is_said_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export and Python say it in the same words; `sample` does not, as its run can be exported
    later.
    """
    for module in ("arviz_base", "h5netcdf", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    data = write_planted(tmp_path / "r.h5")
    assert "install" not in typed("sample", data, "--out", tmp_path / "run", *SMALL).expect().err
    exported = typed("export", tmp_path / "run", "--out", tmp_path / "run.nc").expect(2)
    assert (
        "needs arviz-base and h5netcdf: pip install arviz-base h5netcdf, or dsgmcmc[report]"
        in exported.err
    )
    reported = typed("report", tmp_path / "run").expect(2)
    assert "a report needs matplotlib: pip install matplotlib," in reported.err
    with pytest.raises(InputError, match="`to_arviz` needs arviz-base: pip install arviz-base"):
        open_run(tmp_path / "run").to_arviz()


#: What the README and docs/own-target.md do with ArviZ.
CODE = """
import sys
from arviz_stats import rhat, summary
from dsgmcmc import open_run
tree = open_run(sys.argv[1]).to_arviz()
print(len(summary(tree)), float(rhat(tree)["prediction"].max()) > 0.9)
"""


@pytest.mark.long
def test_the_extra_alone_is_enough(tmp_path: Path) -> None:
    """Packages of ArviZ leave their own needs to extras, and any other environment happens to have
    them.
    """
    typed(
        "sample", write_planted(tmp_path / "r.h5"), "--out", tmp_path / "run", "--chains=2", *SMALL
    ).expect()
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
    alone = {"PYTHONPATH": ""}
    if run(*pip, "download", "--no-deps", "--dest", tmp_path / "small", "tomli-w", env=alone).code:
        lacking("no package index can be reached")
    run(*pip, "install", f"{ROOT}[report]", env=alone, timeout=900).expect()
    (tmp_path / "shown.py").write_text(CODE)
    answers = (
        run(python, tmp_path / "shown.py", tmp_path / "run", env=alone, timeout=300)
        .expect()
        .out.split()
    )
    assert int(answers[0]) > 10
    assert answers[1] == "True"
