"""Runs for several tests of a posterior."""

import pytest
from runs import Made, make_run


@pytest.fixture(
    scope="package", params=[False, True], ids=["users are rows", "items are rows, names are text"]
)
def finished(request, tmp_path_factory) -> Made:
    """A run of two chains, whose rows are users with numbers, or items with text as names."""
    users, items = (18, 40) if request.param else (40, 18)
    return make_run(
        tmp_path_factory.mktemp("run"), users=users, items=items, strings=request.param, chains=2
    )
