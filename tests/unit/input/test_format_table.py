"""The table of formats on the page about files: what it says is typed, and reads the ratings that
were written.
"""

import gzip
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from cases import ROWS, STARS, write_cases
from ingest_cases import everything
from support import ROOT, typed

PAGE = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"\| `dsgmcmc (prepare [^`]* out\.h5[^`]*)` \|", PAGE)
#: Ratings of other files than most.
OTHERS = {
    "clicks": [(u, i, 1) for u, i, *_ in ROWS],
    "dense": [(u, i, int(stars)) for u, row in enumerate(STARS) for i, stars in enumerate(row)],
}


def profile(ratings: Iterable[tuple[object, object, float]]) -> list[list[list[float]]]:
    """Ratings of each user, and of each item, whatever the names."""
    sides: list[dict[object, list[float]]] = [defaultdict(list), defaultdict(list)]
    for *names, rating in ratings:
        for side, name in zip(sides, names, strict=True):
            side[name].append(rating)
    return [sorted(sorted(own) for own in side.values()) for side in sides]


#: Files that gzip does not compress: they are folders, or compressed by their own format.
UNPACKED = ("cells.h5ad", "filtered_feature_bc_matrix", "ratings.mat", "survey", "levels.nc")


@pytest.mark.parametrize(
    ("command", "packed"),
    [
        (command, packed)
        for command in COMMANDS
        for packed in (False, True)
        if not (packed and command.split()[1].startswith(UNPACKED))
    ],
)
def test_a_format_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, packed: bool
) -> None:
    """Every user and every item has its ratings, also if the file is compressed, whatever its name
    then is.
    """
    monkeypatch.chdir(tmp_path)
    write_cases(tmp_path)
    name = shlex.split(command)[1]
    if packed:
        Path("packed").write_bytes(gzip.compress(Path(name).read_bytes()))
        command = command.replace(name, "packed", 1)
    typed(*shlex.split(command)).expect(0)
    expected = next(
        (rows for prefix, rows in OTHERS.items() if name.startswith(prefix)),
        [row[:3] for row in ROWS],
    )
    assert profile(
        (*pair, rating) for pair, rating in everything(tmp_path / "out.h5").items()
    ) == profile(expected)


def test_the_page_has_every_file(tmp_path: Path) -> None:
    """No file is made in vain."""
    write_cases(tmp_path)
    assert {command.split()[1] for command in COMMANDS} == {
        path.name for path in tmp_path.iterdir()
    }
