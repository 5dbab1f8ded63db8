"""Figure 3 of [Ma 2015]: latent Dirichlet allocation, perplexity against documents seen, on planted
topics.

    python tests/papers/recipe_fig3.py --out docs/figures
    python tests/papers/recipe_fig3.py --quick               # to see that it works
    python tests/papers/recipe_fig3.py --grid                # equal effort, steps by seeds

20 topics ~ Dirichlet(.05) over 1,000 words, 10,000 documents of 90 words with proportions ~
Dirichlet(.1). Perplexity is of every tenth word of 500 other documents given their other words, of
single states; "of the mean" is of the mean prediction over the states of the last half. Batches of
50 documents, step eps (1 + t / 1,000)^-.55 at iteration t; of four steps that with the lowest
perplexity after one pass is taken on. Topics are matched to planted ones by their total variation
distance. Seconds are CPU seconds, evaluation not counted.
"""

from time import process_time

import numpy as np
from common import PUBLISHED, axes, command, head, prepare, row, save
from latent_dirichlet import LatentDirichlet
from scipy.optimize import linear_sum_assignment

#: Samplers, and steps in the time of their dynamics.
STEPS = {
    "SGLD": ("sgld", (1e-5, 1e-4, 1e-3, 1e-2)),
    "SGHMC": ("sghmc", (3e-3, 1e-2, 3e-2, 1e-1)),
    "SGRLD": ("gsgrld", (1e-3, 3e-3, 1e-2, 3e-2)),
    "gSGRHMC": ("gsgrhmc", (3e-3, 1e-2, 3e-2, 1e-1)),
}
#: What is compared at equal effort, by seeds.
GRID = {"SGRLD": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2), "gSGRHMC": (1e-2, 2e-2, 3e-2, 4e-2, 6e-2)}
#: Documents of a batch, and passes over all of them.
BATCH = 50
PASSES = 5
LOOKS = (1, 2, 5, 10, 20, 40, 100, 200, 400, 600, 800, 1000)


class Unseen:
    """Documents whose every tenth word is to be predicted."""

    def __init__(self, documents):
        self.observed = [np.delete(words, slice(9, None, 10)) for words in documents]
        self.asked = [words[9::10] for words in documents]

    def predictive(self, density, theta):
        """Probability of every word that is asked for, given a state."""
        return density.predictive(theta, self.observed, self.asked)[0]

    @staticmethod
    def perplexity(probabilities):
        """Of words with these probabilities."""
        return float(np.exp(-np.log(probabilities).mean()))


def planted(rng, documents, unseen, topics, words, length):
    """Topics (K, V), and documents: an integer array each."""
    beta = rng.dirichlet(np.full(words, 0.05), topics)
    cumulated = np.cumsum(beta, axis=1)
    found = []
    for pi in rng.dirichlet(np.full(topics, 0.1), documents + unseen):
        z = rng.choice(topics, length, p=pi)
        places = zip(cumulated[z], rng.random(length) * cumulated[z, -1], strict=True)
        found.append(np.array([np.searchsorted(row, place) for row, place in places]))
    return beta, found[:documents], found[documents:]


def run(density, unseen, name, eps, grid, iterations, seed=0, looks=40):
    """Perplexity by iteration, that of the mean of the last half, the last state, and seconds an
    iteration.
    """
    settings = {"step_size": eps, "decay_sweeps": 1000 / grid, "decay_power": 0.55}
    if name == "sghmc":
        settings |= {
            "step_size": eps**2 / 2,
            "decay_power": 1.0,
        }  # of half the square: its step falls by .5
        settings |= {"gamma": 1.0, **PUBLISHED}
    sampler, target = prepare(name, density, grid=grid, seed=seed, schedule="shuffled", **settings)
    sampler.start(target, 1.0)
    found = {}
    mean = 0.0
    number = 0
    seconds = 0.0
    for iteration in range(1, iterations + 1):
        begin = process_time()
        with np.errstate(all="ignore"):
            sampler.advance(target, iteration - 1, 1)
        seconds += process_time() - begin
        theta = target.block["theta"]
        late = iteration > iterations // 2 and iteration % max(1, iterations // looks) == 0
        if iteration in LOOKS or late or iteration == iterations:
            if not np.isfinite(theta).all() or np.abs(theta).max() > 1e12:
                return {iterations: np.inf}, np.inf, theta, seconds / iteration
            p = unseen.predictive(density, theta)
            if iteration in LOOKS or iteration == iterations:
                found[iteration] = unseen.perplexity(p)
            if late:
                mean = mean + p
                number = number + 1
    return found, unseen.perplexity(mean / max(number, 1)), theta.copy(), seconds / iterations


def matched(found, beta):
    """Total variation distances of planted topics from those found, of the best matching, in
    order.
    """
    distance = 0.5 * np.abs(found[:, None] - beta[None]).sum(axis=2)
    return np.sort(distance[linear_sum_assignment(distance)])


def compare(density, unseen, passes, beta):
    """Table and curves of all samplers; steps by perplexity after a pass."""
    grid = max(1, density.n_data // BATCH)
    curves = {}
    ends = []
    head("sampler", "eps: perplexity in the pilot", "", "", "")
    for label, (name, steps) in STEPS.items():
        tried = {eps: run(density, unseen, name, eps, grid, grid)[0][grid] for eps in steps}
        row(label, *(f"{eps:g}: {value:.0f}" for eps, value in tried.items()))
        best = min(tried, key=tried.__getitem__)
        curve, of_mean, theta, seconds = run(density, unseen, name, best, grid, passes * grid)
        curves[f"{label}, eps {best:g}"] = {
            iteration * BATCH: value for iteration, value in curve.items()
        }
        apart = matched(density.topics(theta)[0], beta)
        found = (
            *(f"{x:.0f}" for x in (curve.get(grid, np.inf), curve[passes * grid], of_mean)),
            f"{1e3 * seconds:.1f}",
        )
        ends.append(
            (
                label,
                f"{best:g}",
                *found,
                f"{np.median(apart):.2f}",
                f"{(apart < 0.2).sum()} of {len(apart)}",
            )
        )
    titles = ("of the mean", "ms an iteration", "median distance of topics", "topics within 0.2")
    head("sampler", "eps", "after 1 pass", f"after {passes} passes", *titles)
    for end in ends:
        row(*end)
    every = sorted(set().union(*curves.values()))
    head("documents seen", *(f"{n:,}" for n in every))
    for label, curve in curves.items():
        row(label, *(f"{curve[n]:.0f}" if n in curve else "" for n in every))
    return curves


def at_equal_effort(density, unseen, passes, quick):
    """Table of the best of the grid of steps: perplexity of the last state and of the mean, and
    seconds, over seeds.
    """
    grid = max(1, density.n_data // BATCH)
    head("sampler", "best eps", "last state", "of the mean", "seconds")
    for label, steps in GRID.items():
        found = {}
        for eps in steps[: 1 if quick else None]:
            arguments = density, unseen, STEPS[label][0], eps, grid, passes * grid
            each = [run(*arguments, seed, 20) for seed in range(1 if quick else 3)]
            ends = [
                (curve[passes * grid], mean, passes * grid * seconds)
                for curve, mean, _, seconds in each
            ]
            found[eps] = np.mean(ends, axis=0)
        best = min(found, key=lambda eps: found[eps][1])
        row(label, f"{best:g}", *(f"{x:.1f}" for x in found[best]))


def main():
    """Print the tables, and draw them."""
    parser = command(__doc__, "recipe_fig3.png")
    parser.add_argument(
        "--grid", action="store_true", help="the best of five steps by three seeds, and no more"
    )
    options = parser.parse_args()
    passes = 2 if options.quick else PASSES
    documents, others, topics, words = (
        (1000, 100, 5, 200) if options.quick else (10_000, 500, 20, 1000)
    )
    beta, seen, new = planted(np.random.default_rng(0), documents, others, topics, words, 90)
    density = LatentDirichlet(seen, words, topics, alpha=0.1, beta0=0.05)
    unseen = Unseen(new)
    if options.grid:
        at_equal_effort(density, unseen, passes, options.quick)
        return
    truth = unseen.perplexity(unseen.predictive(density, beta.reshape(1, -1)))
    frequency = np.bincount(density.words, minlength=words) + 0.05
    one = unseen.perplexity((frequency / frequency.sum())[np.concatenate(unseen.asked)])
    head("", "perplexity")
    row("planted topics", f"{truth:.0f}")
    row("one topic for all words", f"{one:.0f}")
    curves = compare(density, unseen, passes, beta)
    if options.out:
        draw(curves, truth, options.out)


def draw(curves, reference, folder):
    """The figure, as in the paper."""
    panels = axes(1, 1, size=(4.5, 3.4))
    axis = panels[0, 0]
    for label, curve in curves.items():
        axis.loglog(list(curve), list(curve.values()), marker="o", label=label)
    axis.axhline(reference, color="black", linestyle="--")
    axis.set(xlabel="documents seen", ylabel="perplexity", title="planted")
    axis.legend(fontsize=7)
    save(panels, folder, "recipe_fig3.png")


if __name__ == "__main__":
    main()
