"""Small files are written whole, or not at all."""

from __future__ import annotations

import pytest

from dsgmcmc.storage.files import write_whole


def test_nothing_is_left_of_what_cannot_be_written(tmp_path):
    """No temporary file beside a folder of that name."""
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
