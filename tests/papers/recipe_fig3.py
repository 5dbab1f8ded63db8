"""Figure 3 of [Ma 2015]: latent Dirichlet allocation, perplexity against documents seen, on planted topics and Reuters.

    python tests/papers/recipe_fig3.py --out docs/figures    # 3 minutes of one core; --quick: seconds
    python tests/papers/recipe_fig3.py --grid                # equal effort, steps by seeds: 10 minutes

Planted: 20 topics ~ Dirichlet(.05) over 1,000 words, 10,000 documents of 90 words with proportions ~ Dirichlet(.1).
Perplexity is of every tenth word of 500 other documents given their other words, of single states; "of the mean" is of
the mean prediction over the states of the last half. Batches of 50 documents, step eps (1 + t / 1,000)^-.55 at
iteration t; of four steps that with the lowest perplexity after one pass (Reuters: ten) is taken on. Topics are
matched to planted ones by their total variation distance.

Reuters (395 documents, 4,258 words) comes with the PyPI package lda: pip install lda. With it installed
its collapsed Gibbs sampler runs beside ours. Without it that part is skipped. Seconds are CPU seconds, evaluation not
counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from latent_dirichlet import LatentDirichlet
from scipy.optimize import linear_sum_assignment

from dsgmcmc.densities.sample import vector_target
from dsgmcmc.samplers import sampler_named

#: Samplers, and steps in the time of their dynamics.
STEPS = {
    "SGLD": ("sgld", (1e-5, 1e-4, 1e-3, 1e-2)),
    "SGHMC": ("sghmc", (3e-3, 1e-2, 3e-2, 1e-1)),
    "SGRLD": ("gsgrld", (1e-3, 3e-3, 1e-2, 3e-2)),
    "gSGRHMC": ("gsgrhmc", (3e-3, 1e-2, 3e-2, 1e-1)),
}
#: What is compared at equal effort, by seeds: sampler, settings, steps. On planted topics the two in a metric alone.
GRIDS = {
    "planted": {
        "SGRLD": ("gsgrld", {}, (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)),
        "gSGRHMC": ("gsgrhmc", {}, (1e-2, 2e-2, 3e-2, 4e-2, 6e-2)),
    },
    "reuters": {
        "SGLD": ("sgld", {}, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
        "SGHMC, friction 1": ("sghmc", {"gamma": 1.0}, (1e-3, 3e-3, 1e-2)),
        "SGHMC, friction 10": ("sghmc", {"gamma": 10.0}, (1e-3, 3e-3, 1e-2)),
        "SGRLD": ("gsgrld", {}, (1.5e-2, 3e-2, 6e-2, 1.2e-1, 2.4e-1)),
        "gSGRHMC": ("gsgrhmc", {}, (5e-3, 1e-2, 2e-2, 3e-2, 4e-2)),
    },
}
#: Documents of a batch; passes over the planted documents and over Reuters.
BATCH, PASSES = 50, {"planted": 5, "reuters": 60}
MISSING = "\nReuters skipped: its data are in the PyPI package lda, which is not installed"
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
        drawn = [
            np.searchsorted(cumulated[k], u * cumulated[k, -1]) for k, u in zip(z, rng.random(length), strict=True)
        ]
        found.append(np.array(drawn))
    return beta, found[:documents], found[documents:]


def make(name, eps, grid, **more):
    """A sampler of this step in time."""
    kind = sampler_named(name)
    section = {"step_size": eps, "decay_sweeps": 1000 / grid, "decay_power": 0.55}
    if name == "sghmc":
        section |= {"step_size": eps**2 / 2, "metric": "identity", "splitting": "published", "gamma": 1.0}
        section |= {"warm_up": 0, "decay_power": 1.0}  # of half the square: its step falls by .5
    return kind(kind.Config(**section | more), 0)


def run(density, unseen, name, eps, grid, iterations, seed=0, looks=40, **more):
    """Perplexity by iteration, that of the mean of the last half, the last state, and seconds an iteration."""
    sampler = make(name, eps, grid, **more)
    target = vector_target(density, sampler, grid=grid, seed=seed)
    sampler.start(target, 1.0)
    found, mean, number, seconds = {}, 0.0, 0, 0.0
    for iteration in range(1, iterations + 1):
        begin = process_time()
        with np.errstate(all="ignore"):
            sampler.advance(target, iteration - 1, 1)
        seconds += process_time() - begin
        theta, late = (
            target.block["theta"],
            iteration > iterations // 2 and iteration % max(1, iterations // looks) == 0,
        )
        if iteration in LOOKS or late or iteration == iterations:
            if not np.isfinite(theta).all() or np.abs(theta).max() > 1e12:
                return {iterations: np.inf}, np.inf, theta, seconds / iteration
            p = unseen.predictive(density, theta)
            if iteration in LOOKS or iteration == iterations:
                found[iteration] = unseen.perplexity(p)
            if late:
                mean, number = mean + p, number + 1
    return found, unseen.perplexity(mean / max(number, 1)), theta.copy(), seconds / iterations


def matched(found, beta):
    """Total variation distances of planted topics from those found, of the best matching, in order."""
    distance = 0.5 * np.abs(found[:, None] - beta[None]).sum(axis=2)
    return np.sort(distance[linear_sum_assignment(distance)])


def compare(density, unseen, batch, passes, pilot=1, beta=None):
    """Table and curves of all samplers; `batch` documents an iteration, steps by perplexity after `pilot` passes."""
    grid, curves, tables = max(1, density.n_data // batch), {}, []
    print("| sampler | eps: perplexity in the pilot | | | |\n|---|---|---|---|---|")
    for label, (name, steps) in STEPS.items():
        tried = {eps: run(density, unseen, name, eps, grid, pilot * grid)[0][pilot * grid] for eps in steps}
        print(f"| {label} | " + " | ".join(f"{eps:g}: {value:.0f}" for eps, value in tried.items()) + " |", flush=True)
        best = min(tried, key=tried.__getitem__)
        curve, of_mean, theta, seconds = run(density, unseen, name, best, grid, passes * grid)
        curves[f"{label}, eps {best:g}"] = {iteration * batch: value for iteration, value in curve.items()}
        ends = [f"{curve[passes * grid]:.1f}", f"{of_mean:.1f}", f"{1e3 * seconds:.1f}"]
        if beta is not None:
            apart = matched(density.topics(theta)[0], beta)
            ends += [f"{np.median(apart):.3f}", f"{(apart < 0.2).sum()} of {len(apart)}"]
        tables.append(f"| {label} | {best:g} | " + " | ".join(ends) + " |")
    heads = ["sampler", "eps", f"after {passes} passes", "of the mean", "ms an iteration"]
    heads += ["median distance of topics", "topics within .2"] if beta is not None else []
    print("\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads) + "\n" + "\n".join(tables))
    every = sorted(set().union(*curves.values()))
    print("\n| documents seen | " + " | ".join(f"{n:,}" for n in every) + " |\n|---|" + "---|" * len(every))
    for label, curve in curves.items():
        print(f"| {label} | " + " | ".join(f"{curve[n]:.0f}" if n in curve else "" for n in every) + " |")
    return curves


def planted_documents(quick):
    """Topics, their density and documents that it has not seen."""
    size = (1000, 100, 5, 200) if quick else (10_000, 500, 20, 1000)
    documents, others, topics, words = size
    beta, seen, new = planted(np.random.default_rng(0), documents, others, topics, words, 90)
    return beta, LatentDirichlet(seen, words, topics, alpha=0.1, beta0=0.05), Unseen(new)


def at_equal_effort(part, density, unseen, beta, quick):
    """Table of the grid of steps: perplexity of the last state and of the mean, seconds, and topics found, by seed."""
    grid, passes, seeds = max(1, density.n_data // BATCH), 2 if quick else PASSES[part], 1 if quick else 3
    print(f"\n{part}: {passes} passes in {passes * grid} iterations\n")
    print("| sampler | eps | seed | last state | mean | seconds | topics within .2 |\n|---|---|---|---|---|---|---|")
    times = []
    for label, (name, more, steps) in GRIDS[part].items():
        for eps in steps[: 1 if quick else None]:
            for seed in range(seeds):
                curve, of_mean, theta, each = run(density, unseen, name, eps, grid, passes * grid, seed, 20, **more)
                last, near = curve[passes * grid], ""
                if beta is not None and np.isfinite(last):
                    near = f"{(matched(density.topics(theta)[0], beta) < 0.2).sum()}"
                times.append(each * passes * grid)
                print(
                    f"| {label} | {eps:g} | {seed} | {last:.1f} | {of_mean:.1f} | {times[-1]:.1f} | {near} |",
                    flush=True,
                )
    return float(np.median(times))


def planted_topics(quick):
    """First part."""
    beta, density, unseen = planted_documents(quick)
    words = density.n_words
    print(f"\n{density.n_data:,} planted documents\n")
    truth = unseen.perplexity(unseen.predictive(density, beta.reshape(1, -1)))
    frequency = np.bincount(density.words, minlength=words) + 0.05
    one = unseen.perplexity((frequency / frequency.sum())[np.concatenate(unseen.asked)])
    print(f"perplexity of the planted topics {truth:.1f}; of one topic for all words {one:.1f}\n")
    return compare(density, unseen, BATCH, 2 if quick else PASSES["planted"], beta=beta), truth


class Reuters:
    """Its documents, of which one in ten is not seen; collapsed Gibbs of the package that they come with.

    Raises
    ------
    ImportError
        If it is not installed.
    """

    def __init__(self):
        import lda
        import lda.datasets

        self.kind, counts = lda.LDA, lda.datasets.load_reuters()
        rng = np.random.default_rng(0)
        documents = [rng.permutation(np.repeat(np.arange(counts.shape[1]), row)) for row in counts]
        held = np.arange(len(documents)) % 10 == 0
        self.counts = counts[~held]
        self.density = LatentDirichlet(
            [words for words, out in zip(documents, held, strict=True) if not out],
            counts.shape[1],
            20,
            alpha=0.1,
            beta0=0.1,
        )
        self.unseen = Unseen([words for words, out in zip(documents, held, strict=True) if out])
        frequency = self.counts.sum(axis=0) + 0.1
        one = self.unseen.perplexity((frequency / frequency.sum())[np.concatenate(self.unseen.asked)])
        print(f"\nReuters: {self.density.n_data} documents, {held.sum()} others; one topic for all words {one:.0f}\n")

    def gibbs(self, sweeps, seed=1):
        """Perplexity of the last state, and seconds."""
        begin = process_time()
        rival = self.kind(n_topics=20, n_iter=sweeps, alpha=0.1, eta=0.1, random_state=seed, refresh=10 * sweeps)
        rival.fit(self.counts)
        seconds = process_time() - begin
        found = self.unseen.perplexity(self.unseen.predictive(self.density, rival.topic_word_.reshape(1, -1)))
        print(
            f"collapsed Gibbs of lda, {sweeps} sweeps, seed {seed}: perplexity {found:.1f}, {seconds:.1f} s", flush=True
        )
        return found, seconds


def reuters(quick):
    """Second part."""
    try:
        made = Reuters()
    except ImportError:
        print(MISSING)
        return {}, None
    exact, _ = made.gibbs(50 if quick else 200)
    return compare(made.density, made.unseen, BATCH, 5 if quick else PASSES["reuters"], 1 if quick else 10), exact


def grid(part, quick):
    """One of the two at equal effort."""
    if part == "planted":
        beta, density, unseen = planted_documents(quick)
        at_equal_effort(part, density, unseen, beta, quick)
        return
    try:
        made = Reuters()
    except ImportError:
        print(MISSING)
        return
    seconds = at_equal_effort(part, made.density, made.unseen, None, quick)
    sweeps = 20 if quick else int(200 * seconds / made.gibbs(200)[1])
    for seed in range(1 if quick else 3):
        made.gibbs(sweeps, seed)


def main():
    """Print the tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small form of it, to see that it runs")
    parser.add_argument("--grid", action="store_true", help="steps by seeds at equal effort, and no more")
    parser.add_argument("--only", choices=("planted", "reuters"), help="one of the two")
    parser.add_argument("--out", type=Path, help="folder for recipe_fig3.png")
    options = parser.parse_args()
    if options.grid:
        for part in GRIDS:
            if options.only in (None, part):
                grid(part, options.quick)
        return
    begin = process_time()
    kinds = {"planted": planted_topics, "reuters": reuters}
    parts = {name: kinds[name](options.quick) for name in kinds if options.only in (None, name)}
    print(f"\n{process_time() - begin:.0f} s of CPU")
    if options.out:
        draw({name: part for name, part in parts.items() if part[0]}, options.out)


def draw(parts, folder):
    """The figure, as in the paper."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(parts), figsize=(4.5 * len(parts), 3.4), squeeze=False)
    for axis, (name, (curves, reference)) in zip(axes[0], parts.items(), strict=True):
        for label, curve in curves.items():
            axis.loglog(list(curve), list(curve.values()), marker="o", label=label)
        axis.axhline(reference, color="black", linestyle="--")
        axis.set(xlabel="documents seen", ylabel="perplexity", title=name)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "recipe_fig3.png", dpi=80)


if __name__ == "__main__":
    main()
