"""Write the ratings files and runs of this folder, each with what it predicts.

    python tests/files-of-version-2/make.py FOLDER

An archive has a ratings file, a run on it and ``expected.json``: pairs and predictions of them.
The ratings are made up, by `answers.shapes`. `tests/system/test_old_files.py` reads the archives of
this folder, which a later version must read as well: so they are not written again, and kinds that
come later are added to them.
"""

import json
import shutil
import sys
import tempfile
import zipfile
from contextlib import chdir
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "benchmarks")]

from answers import Shape, pairs_of, shapes  # noqa: E402
from bench import arguments  # noqa: E402
from support import typed  # noqa: E402

from dsgmcmc import open_run  # noqa: E402

#: A burn-in, six iterations of which three are kept, and a checkpoint at the end.
LENGTH = "--grid 2 --iterations 26 --burn-in 20 --thin 2 --save-draws 3 --on-divergence stop"
#: Other samplers and priors, on ratings in half stars.
OTHERS = {
    **{name: f"--sampler {name}" for name in ("psgld", "sgld", "sghmc", "sgrld")},
    "hamcmc": "--sampler hamcmc --thin 3",
    "sgnht": "--sampler sgnht --set schedule=random",
    "kronecker": "--sampler baoab --step-size 0.05 --set sampler.metric=kronecker",
    "normal-wishart": "--sampler gibbs --prior normal-wishart",
    "fixed prior": "--sampler gibbs --prior fixed",
    "two chains": "--sampler gibbs --chains 2",
    "rank 0": "--sampler gibbs --rank 0",
    "without biases": "--sampler gibbs --no-biases",
}
#: Files of a run that say nothing of it.
LEFT_OUT = ("lock",)


def kinds() -> dict[str, Shape]:
    """Return ratings and models by name."""
    made = shapes()
    stars = made["stars"]
    for name, options in OTHERS.items():
        rank = "" if "--rank" in options else "--rank 2"
        made[name] = stars._replace(sample=f"{options} {rank} --likelihood gaussian")
    return made


def predicted(shape: Shape) -> dict[str, Any]:
    """Return pairs and predictions of the run in this folder."""
    pairs = pairs_of(shape, known=True)[::3].reset_index(drop=True)
    model = open_run("run")
    low, high = model.predict_interval(pairs)
    return {
        "pairs": pairs.to_dict("list"),
        "predict": model.predict(pairs).tolist(),
        "predict of mean": model.predict(pairs, of_mean=True).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }


def make(shape: Shape, archive: Path) -> None:
    """Write an archive."""
    with tempfile.TemporaryDirectory() as place, chdir(place):
        shape.table.to_csv("ratings.csv", index=False)
        options = shape.prepare.split()
        for entity, table in shape.features.items():
            table.to_csv(f"{entity}s.csv", index=False)
            options += [f"--{entity}-features", f"{entity}s.csv"]
        typed("prepare", "ratings.csv", "data.h5", *options, "--test-fraction=0.1").expect(0)
        words = [*LENGTH.split(), *shape.sample.split()]
        typed("sample", "data.h5", "--out", "run", *words).expect(0)
        expected = json.dumps(predicted(shape))
        Path("expected.json").write_text(expected + "\n", encoding="utf-8")
        for path in ("ratings.csv", "users.csv", "items.csv"):
            Path(path).unlink(missing_ok=True)
        older = sorted(Path("run").glob("checkpoints/chain-*/step-*"))
        for step in older:
            if step != sorted(step.parent.iterdir())[-1]:
                shutil.rmtree(step)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as written:
            for path in sorted(Path().rglob("*")):
                if path.is_file() and path.name not in LEFT_OUT:
                    written.write(path)


def main() -> int:
    """Write the archives that are not there."""
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(exist_ok=True)
    for name, shape in kinds().items():
        archive = folder / f"{name.replace(' ', '-')}.zip"
        if not archive.exists():
            make(shape, archive)
            print(f"{archive.name}: {archive.stat().st_size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
