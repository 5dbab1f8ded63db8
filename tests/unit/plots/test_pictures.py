"""What pictures of results show is what the run has."""

import numpy as np
import pandas as pd
import pytest
from runs import Made, make_run

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.plots.biplot import biplot, telling_feature
from dsgmcmc.plots.effects import effects
from dsgmcmc.plots.figures import axes_or_new, short, without_overlaps
from dsgmcmc.plots.heldout import (
    HeldOut,
    largest_misses,
    level_shares,
    observed_and_predicted,
)
from dsgmcmc.plots.items import _information, has_items, wright_map
from dsgmcmc.plots.known import imputed_and_observed, observed_map
from dsgmcmc.plots.noise import noise, noise_sds, noise_sides
from dsgmcmc.plots.ranking import best, can_be_ranked
from dsgmcmc.posterior.loadings import loadings
from dsgmcmc.posterior.matrix.ranking import ranking
from dsgmcmc.tables.result import Table

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Made:
    """A run of measurements, whose items have noise of their own."""
    return make_run(tmp_path_factory.mktemp("run"), noise="by-item", strings=True)


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> Made:
    """A run of ordered levels."""
    return make_run(
        tmp_path_factory.mktemp("levels"), stars=True, likelihood="ordinal-logit", noise="by-item"
    )


@pytest.fixture(scope="module")
def described() -> BPMF:
    """A model of people whose age and region count."""
    rng = np.random.default_rng(4)
    people = pd.DataFrame(
        {
            "person": [f"p{number}" for number in range(60)],
            "age": rng.integers(20, 80, 60),
            "region": rng.choice(["north", "south", "west"], 60),
        }
    )
    means = 0.05 * people["age"] + 2.0 * (people["region"] == "north")
    values = means.to_numpy()[:, None] + rng.normal(0, 0.3, (60, 12))
    table = pd.DataFrame(values, people["person"], [f"i{number}" for number in range(12)])
    model = BPMF(2, matrix=True, user_features=people, iterations=120, burn_in=40)
    return model.fit(table)


def test_effects_are_those_of_features(described):
    """North is two above the others, a standard deviation of age some .9; intervals hold it."""
    axes = effects(described.run_, "user")
    names = [label.get_text() for label in axes.get_yticklabels()]
    points = axes.containers[0].lines[0].get_xdata()
    at = dict(zip(names, points, strict=True))
    others = (at["region=south"] + at["region=west"]) / 2
    assert at["region=north"] - others == pytest.approx(2.0, abs=0.3)
    assert at["age"] == pytest.approx(0.05 * 17, abs=0.2)
    with pytest.raises(InputError, match="items have no features"):
        effects(described.run_, "item")


def test_points_have_the_colours_of_a_feature(described):
    """Each person is in the colour of a region; of a number there is a colour bar."""
    axes = biplot(described.run_, feature="region")
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(labels) == ["region=north", "region=south", "region=west"]
    drawn = [len(line.get_xdata()) for line in axes.lines if line.get_marker() == "."]
    assert sum(drawn) == 60
    ages = biplot(described.run_, feature="age").collections[0].get_array()
    assert len(ages) == 60
    assert ages.std() == pytest.approx(1.0, abs=0.05)
    assert telling_feature(described.run_) in ("age", "region")
    with pytest.raises(InputError, match="no feature 'height'"):
        biplot(described.run_, feature="height")


def test_the_map_has_the_share_of_every_row_and_column(measured):
    """Each cell of a small table is a square, in the order of names."""
    run = measured.run
    shares = observed_map(run).images[0].get_array()
    assert shares.shape == (len(run.users), len(run.items))
    by_name = np.argsort(run.items.ids, kind="stable")
    np.testing.assert_array_equal(shares.sum(axis=0), run.counts("item")[by_name])
    assert set(np.unique(shares)) == {0.0, 1.0}


def test_imputed_values_are_new_ratings_and_not_means(measured):
    """Both histograms hold all of their values, and imputed values spread as observed ones do."""
    axes = imputed_and_observed(measured.run)
    shares = [patch.get_data().values for patch in axes.patches]
    assert [patch.get_label() for patch in axes.patches] == ["observed", "drawn for missing cells"]
    np.testing.assert_allclose([share.sum() for share in shares], 1.0)
    middle = np.convolve(axes.patches[0].get_data().edges, [0.5, 0.5], "valid")
    sds = [np.sqrt(share @ np.square(middle) - (share @ middle) ** 2) for share in shares]
    # rows and columns are missing at random, so that the two differ by chance and shrinkage alone
    assert sds[1] == pytest.approx(sds[0], rel=0.25)


def test_intervals_contain_their_share_and_misses_come_first(measured):
    """About nine of ten test ratings are inside; the table begins with the farthest."""
    test = HeldOut.of(measured.run)
    inside = (test.rating >= test.low) & (test.rating <= test.high)
    assert 0.75 < inside.mean() < 1.0  # 86 ratings: three standard errors below .9
    table = largest_misses(measured.run)
    worst = int(np.argmax(test.misses()))
    users, items = measured.run.test_pairs()
    pair = test.pair[worst]
    assert table.rows[0][:2] == [
        measured.run.users.ids[users[pair]],
        measured.run.items.ids[items[pair]],
    ]
    assert table.rows[0][2] == f"{test.rating[worst]:.4g}"
    drawn = observed_and_predicted(measured.run)
    points = sum(len(line.get_xdata()) for line in drawn.lines[:2])
    assert points == len(test.rating)


def test_levels_have_shares_and_probabilities(answered):
    """Observed shares add up to 1 as predicted ones do; the least probable level comes first."""
    heights = [bar.get_height() for bar in level_shares(answered.run).patches]
    number = len(answered.run.levels)
    assert sum(heights[:number]) == pytest.approx(1)
    assert sum(heights[number:]) == pytest.approx(1)
    table = largest_misses(answered.run)
    assert table.headings[-1] == "probability of the level"
    shown = [float(row[-1]) for row in table.rows]
    assert shown == sorted(shown)
    assert shown[0] == pytest.approx(HeldOut.of(answered.run).of_levels().min(), rel=0.01)


def test_noise_is_in_the_unit_of_the_ratings(measured):
    """The mean square of the sds is the noise variance of a rating of average users."""
    run = measured.run
    sds = noise_sds(run, "item").mean
    drawn = [1 / np.sqrt(run.draw(k).tau * run.draw(k).noise_scale["item"]) for k in range(40)]
    np.testing.assert_allclose(sds, np.average(drawn, axis=0, weights=run.draw_weights), rtol=1e-5)
    assert noise_sides(run) == ("item",)
    labels = [label.get_text() for label in noise(run, "item").get_yticklabels()]
    assert set(labels) == {short(name) for name in run.items.ids}
    with pytest.raises(InputError, match="users have no noise of their own: sample with --noise"):
        noise_sds(run, "user")


def test_the_biplot_has_the_loadings(measured):
    """Users are at their scores; arrows of items are proportional to their loadings."""
    run = measured.run
    found = loadings(run)
    axes = biplot(run)
    users = np.stack([found.users["factor_1"], found.users["factor_2"]])
    np.testing.assert_allclose(axes.lines[0].get_data(), users)
    length = np.hypot(found.items["factor_1"], found.items["factor_2"])
    arrows = np.hypot(axes.collections[0].U, axes.collections[0].V)
    np.testing.assert_allclose(arrows / arrows[0], np.sort(length)[::-1] / length.max())


def test_the_best_are_those_of_the_ranking(measured):
    """In their order, with the probability of being best beside the name."""
    run = measured.run
    table = ranking(run, kind="item")
    axes = best(run, "item")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == f"{short(table['item_id'][0])}  {table['p_best'][0]:.0%}"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), table["mean"][: len(labels)])
    assert can_be_ranked(run)


def test_labels_do_not_overlap():
    """The second of two labels at one place goes, and so does one outside."""
    axes = axes_or_new(None)
    texts = [axes.text(0.2, 0.5, "one"), axes.text(0.21, 0.5, "two"), axes.text(0.99, 0.5, "three")]
    assert without_overlaps(axes, texts) == [True, False, False]
    assert [text.get_text() for text in axes.texts] == ["one"]


def test_people_and_items_are_on_one_line(measured, answered):
    """Levels have a map; measurements have none, and noise of levels is no noise."""
    assert has_items(answered.run)
    assert not has_items(measured.run)
    assert noise_sides(answered.run) == ()
    people, items = (patch.get_data().values for patch in wright_map(answered.run).patches)
    assert people.min() >= 0 > items.min()
    assert people.max() == -items.min() == 1.0


def test_information_is_that_of_the_model():
    """Two levels: a^2 P (1 - P) [Lord 1980]; three levels: minus the expected second derivative."""
    ability = np.linspace(-2, 2, 9)
    two = Table({"difficulty": np.array([0.5]), "discrimination": np.array([1.7])})
    reached = 1 / (1 + np.exp(-1.7 * (ability - 0.5)))
    np.testing.assert_allclose(_information(two, ability), 1.7**2 * reached * (1 - reached))
    cuts = np.array([-0.4, 0.9])
    three = Table(
        {"difficulty": np.array([0.25]), "threshold_1": cuts[:1], "threshold_2": cuts[1:]}
    )

    def levels(at: np.ndarray) -> np.ndarray:
        above = 1 / (1 + np.exp(-(at[:, np.newaxis] - cuts)))
        return np.column_stack([1 - above[:, 0], above[:, 0] - above[:, 1], above[:, 1]])

    step = 1e-4
    sides = [np.log(levels(ability + move)) for move in (-step, 0.0, step)]
    second = (sides[0] - 2 * sides[1] + sides[2]) / step**2
    expected = -(levels(ability) * second).sum(axis=1)
    np.testing.assert_allclose(_information(three, ability), expected, rtol=1e-5)
