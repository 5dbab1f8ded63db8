"""Runs for several tests of a posterior."""

from __future__ import annotations

import pytest
from runs import Made, make_run


@pytest.fixture(scope="package", params=[(40, 18), (18, 40)], ids=["users are rows", "items are rows"])
def finished(request, tmp_path_factory) -> Made:
    """A run of two chains, whose rows are users or items."""
    users, items = request.param
    return make_run(tmp_path_factory.mktemp("run"), users=users, items=items, chains=2)
