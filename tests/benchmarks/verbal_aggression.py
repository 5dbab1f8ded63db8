"""Figures of a public table of items beside those of lme4, eRm and girth.

    python tests/benchmarks/verbal_aggression.py  # a minute

It needs R with lme4 and eRm (Debian: r-cran-lme4, r-cran-erm), and girth of PyPI. The table is
VerbAgg of lme4: 316 people say whether they would react with verbal aggression, in 24 items of yes
and no [De Boeck 2004]. Difficulties are relative to their mean. Of each model one line a
neighbour: the correlation of both estimates, the mean difference of ours, the largest one in our
sds, and the mean ratio of our sds to their standard errors, which girth does not have. For the 2PL
logarithms of discriminations follow, relative to their mean. Then the sd of the abilities.

[De Boeck 2004] Explanatory item response models, Springer.
"""

import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from girth import twopl_mml

from dsgmcmc import BPMF

IN_R = """
suppressMessages({library(lme4); library(eRm)})
wide <- reshape(VerbAgg[, c("id", "item", "r2")], idvar="id", timevar="item", direction="wide")
names(wide) <- sub("r2\\\\.", "", names(wide))
cells <- sapply(wide[, -1], function(answers) as.integer(answers == "Y"))
mixed <- glmer(r2 ~ -1 + item + (1 | id), VerbAgg, family=binomial,
               control=glmerControl(optimizer="bobyqa", optCtrl=list(maxfun=2e5)))
rasch <- RM(cells)
write.csv(data.frame(
  item=levels(VerbAgg$item),
  lme4=-fixef(mixed), lme4_se=sqrt(diag(as.matrix(vcov(mixed)))),
  eRm=-rasch$betapar[paste("beta", levels(VerbAgg$item))], eRm_se=rasch$se.beta,
  sd=attr(VarCorr(mixed)$id, "stddev")), "items.csv", row.names=FALSE)
write.csv(data.frame(person=wide$id, cells), "answers.csv", row.names=FALSE)
"""


def in_r() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the items by lme4 and eRm, and the answers."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["Rscript", "-e", IN_R], cwd=folder, check=True, capture_output=True)
        items = pd.read_csv(Path(folder) / "items.csv", index_col="item")
        return items, pd.read_csv(Path(folder) / "answers.csv", index_col="person")


def show(name: str, ours: pd.Series, sd: pd.Series, theirs: pd.Series, se: float) -> None:
    """Print how far our estimates, relative to their mean, are from those of a neighbour."""
    away = (ours - ours.mean()) - (theirs - theirs.mean())
    correlation = np.corrcoef(ours, theirs)[0, 1]
    figures = f"{correlation:.4f}, {away.abs().mean():.3f}, {(away / sd).abs().max():.2f}"
    print(f"{name}: {figures}, {sd.mean() / se:.2f}")


def main() -> None:
    """Print the lines."""
    warnings.simplefilter("ignore")
    reference, answers = in_r()
    settings = {"rank": 0, "iterations": 4000, "burn_in": 500, "matrix": True}
    model = BPMF(**settings).fit(answers)
    rasch = model.item_parameters(fit=False).to_pandas().set_index("item_id")
    rasch = rasch.loc[reference.index]
    for name in ("lme4", "eRm"):
        se = reference[f"{name}_se"].mean()
        show(name, rasch["difficulty"], rasch["difficulty_sd"], reference[name], se)
    model_2pl = BPMF(**settings, noise="by-item").fit(answers)
    ours = model_2pl.item_parameters(fit=False, unit="sd").to_pandas().set_index("item_id")
    ours = ours.loc[answers.columns]
    theirs = twopl_mml(answers.to_numpy().T)
    difficulty = pd.Series(theirs["Difficulty"], ours.index)
    slope = pd.Series(theirs["Discrimination"], ours.index)
    show("girth, difficulty", ours["difficulty"], ours["difficulty_sd"], difficulty, np.nan)
    relative = ours["discrimination_sd"] / ours["discrimination"]
    show(
        "girth, log discrimination", np.log(ours["discrimination"]), relative, np.log(slope), np.nan
    )
    print(f"mean discrimination: {ours['discrimination'].mean():.3f}, {slope.mean():.3f}")
    people = model.user_parameters().to_pandas()
    total = np.sqrt(people["ability"].var() + np.square(people["ability_sd"]).mean())
    print(f"sd of abilities: {total:.3f}, {reference['sd'].iloc[0]:.3f}")


if __name__ == "__main__":
    main()
