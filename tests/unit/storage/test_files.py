"""Small files are written whole, or not at all."""

from __future__ import annotations

import pytest

from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import read_toml, write_whole


def test_nothing_is_left_of_what_cannot_be_written(tmp_path):
    """No temporary file beside a folder of that name."""
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("read", [read_toml, read_summary, Comparison.read])
def test_what_is_no_file_is_said_once(tmp_path, read):
    """An `InputError` is a `ValueError`: readers that turn those of parsers into one line leave it as it is."""
    with pytest.raises(InputError, match=rf"^{tmp_path} is a directory, a pipe or a device: expected a file$"):
        read(tmp_path)
