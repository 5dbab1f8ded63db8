"""What small runs answer, before and after a change that must not move it.

    python tests/benchmarks/answers.py before.json  # before: writes the table
    python tests/benchmarks/answers.py before.json  # after: compares; status 1 where one differs
    python tests/benchmarks/answers.py before.json --only counts

Runs on small ratings of every kind are sampled by one process; then predictions, imputations,
lists, scores, folded-in rows, parameters of items and exports are asked for, by command and in
Python, of known and of new names. Numbers may differ by a millionth of the largest of their kind;
lists and messages may not. The program uses the command line and the names that `dsgmcmc` exports,
so that modules inside the package may move.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from before_after import Record, plain, run
from bench import arguments  # finds the helpers of tests
from shapes import Ratings, Size, counts, half_stars, normal
from support import typed

from dsgmcmc import RunWarning, open_run

TOLERANCE = 1e-6
#: Numbers of an array that the table has; of all others it has means.
FIRST = 300
LENGTH = [
    "--grid",
    "2",
    "--iterations",
    "60",
    "--burn-in",
    "20",
    "--thin",
    "4",
    "--save-draws",
    "10",
    "--chains",
    "1",
]


class Shape(NamedTuple):
    """Ratings, and a model of them.

    Parameters
    ----------
    table : data frame
        Ratings with the columns that `prepare` reads.
    sample : str
        Options of `sample`.
    prepare : str
        Options of `prepare`.
    features : mapping of str to data frame
        Features by entity.
    """

    table: pd.DataFrame
    sample: str
    prepare: str = ""
    features: Mapping[str, pd.DataFrame] = MappingProxyType({})


def frame(ratings: Ratings) -> pd.DataFrame:
    """Table of ratings, with times if they have some."""
    table = pd.DataFrame({"user": ratings.user, "item": ratings.item, "rating": ratings.value})
    if ratings.time is not None:
        table["timestamp"] = ratings.time
    return table


def grid() -> pd.DataFrame:
    """Table of places, days and hours, of which whole days are missing at some places."""
    rng = np.random.default_rng(0)
    p, d, h = np.indices((6, 7, 5)).reshape(3, -1)
    value = p / 2 + np.sin(d) + np.cos(h + p) + rng.normal(0, 0.3, len(p))
    table = pd.DataFrame({"place": p, "day": d, "hour": h, "number": value.round(3)})
    table["place"] = table.place.map("p{}".format)
    return table[(p + d) % 4 > 0]


def shapes() -> dict[str, Shape]:
    """Return shapes by name."""
    films = half_stars(0, 40, 60, 700)
    genres = pd.DataFrame({"item": np.arange(60), "genres": films.genres})
    whole = frame(films).assign(rating=films.value.round())
    untimed = whole.drop(columns="timestamp")
    size = Size(40, 30, 500)
    measured = frame(normal(0, size)).round({"rating": 3})
    amounts = np.exp(measured.rating).round(3)
    rng = np.random.default_rng(1)
    below = np.where(rng.random(len(measured)) < 0.3, "<", "")
    bounded = measured.assign(rating=np.char.add(below, measured.rating.astype(str)))
    weighted = measured.assign(w=rng.choice([0.5, 1.0, 2.0], len(measured)))
    repeated = pd.concat([weighted, weighted[::5].assign(rating=weighted.rating[::5] + 0.1)])
    ages = pd.DataFrame({"user": np.arange(40), "age": rng.integers(20, 70, 40)})
    jobs = ages.assign(job=rng.choice(["a", "b", "c"], 40))
    parts = "--columns user=place+day,item=hour,rating=number"
    return {
        "normal": Shape(measured, "--rank 2"),
        "own noise": Shape(measured, "--rank 2 --noise both"),
        "Student-t of logarithms": Shape(
            measured.assign(rating=amounts), "--rank 1 --likelihood student-t --scale log"
        ),
        "half stars": Shape(frame(films), "--rank 2 --implicit-features both --features no"),
        "time levels": Shape(whole, "--rank 1 --time-levels user", "--timestamps"),
        "stars": Shape(untimed, "--rank 2 --likelihood ordinal-logit"),
        "stars with thresholds": Shape(
            untimed, "--rank 1 --likelihood ordinal-logit --noise by-item --thresholds user"
        ),
        "features": Shape(untimed, "--rank 2", features={"item": genres, "user": jobs}),
        "two values": Shape(
            untimed.assign(rating=(untimed.rating > 3) * 1),
            "--rank 1 --likelihood ordinal-logit --sampler gibbs",
        ),
        "clicks": Shape(untimed[["user", "item"]], "--rank 2 --likelihood all-cells"),
        "counts": Shape(
            frame(counts(0)).query("user < 60 and item < 40"),
            "--rank 2 --likelihood negative-binomial",
        ),
        "bounds": Shape(bounded, "--rank 1"),
        "weights and replicates": Shape(
            repeated, "--rank 1", "--columns weight=w --duplicates keep"
        ),
        "parts": Shape(grid(), "--rank 2", parts),
        "parts held out": Shape(
            grid(), "--rank 1 --features no", f"{parts} --hold-out-by place+day"
        ),
        "three directions": Shape(
            grid(),
            "--model auto --rank 1 --likelihood gaussian --noise shared --implicit-features no",
            "--columns user=place,item=hour,context=day,rating=number",
        ),
    }


# ------------------------------------------------------------------------------------- recording


def numbers(values: np.ndarray) -> Any:
    """First numbers of an array, and means of all of them if there are more."""
    flat = np.ravel(values)
    if flat.dtype.kind in "iub":
        return [int(x) for x in flat[:FIRST]]
    if flat.dtype.kind != "f":
        return " ".join(map(str, flat[: 20 * FIRST].tolist()))
    flat = flat.astype(np.float64)
    found: dict[str, Any] = {"first": flat[:FIRST].tolist()}
    if len(flat) > FIRST:
        finite = flat[np.isfinite(flat)]
        signs = np.cos(np.arange(len(finite)))
        means = (np.mean(finite), np.sqrt(np.mean(finite**2)), np.mean(finite * signs))
        found["means"] = [float(mean) for mean in means]
        found["finite"] = len(finite)
    return found


def recorded(value: Any) -> Any:
    """Content of an answer as lists, mappings, numbers and texts."""
    if isinstance(value, pd.DataFrame):
        return {"rows": len(value), **{str(name): recorded(value[name]) for name in value}}
    if isinstance(value, Mapping):
        return {str(key): recorded(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return recorded(value._asdict())
    if isinstance(value, list | tuple) and any(
        isinstance(x, np.ndarray | pd.DataFrame | Mapping) for x in value
    ):
        return {str(number): recorded(each) for number, each in enumerate(value)}
    if isinstance(value, np.ndarray | pd.Series | list | tuple):
        return numbers(np.asarray(value))
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__dataclass_fields__"):
        return {name: recorded(getattr(value, name)) for name in value.__dataclass_fields__}
    return repr(type(value).__name__)


def answer(ask: Callable[[], Any]) -> Record:
    """Return what a call returns, refuses and warns of."""
    record: Record = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            record["is"] = recorded(ask())
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {plain(str(error), Path.cwd())}"
    record["warned"] = [
        plain(str(each.message), Path.cwd())
        for each in caught
        if not issubclass(each.category, RunWarning | DeprecationWarning | FutureWarning)
    ]
    return record


def said(*words: str | Path, exact: bool = False) -> Record:
    """Return what a command prints and writes to ``o.*``: numbers, or the `exact` text."""
    for left in Path().glob("o.*"):
        left.unlink()
    result = typed(*words)
    record: Record = {"code": result.code, "messages": plain(result.err, Path.cwd())}
    if exact:
        record["text"] = result.out
    elif "--json" in words and not result.code:
        record["out"] = recorded(json.loads(result.out))
    else:
        record["out"] = plain(result.out, Path.cwd())
    for path in Path().glob("o.*"):
        record[path.name] = path.read_text(encoding="utf-8") if exact else written(path)
    return record


def written(path: Path) -> Any:
    """Return the content of a file that a command has written."""
    if path.suffix == ".csv":
        return recorded(pd.read_csv(path))
    if path.suffix == ".parquet":
        return recorded(pd.read_parquet(path))
    if path.suffix == ".npy":
        return recorded(np.load(path))
    return {}


# ---------------------------------------------------------------------------------------- asking


def names_of(shape: Shape) -> list[str]:
    """Columns with names of users and items."""
    return [name for name in shape.table if name not in ("rating", "number", "timestamp", "w")]


def pairs_of(shape: Shape, *, known: bool) -> pd.DataFrame:
    """Return pairs to predict: rated ones, others of known names, and such with new names."""
    names = names_of(shape)
    rated = shape.table[names]
    others = rated[:30].assign(**{names[0]: rated[names[0]].to_numpy()[-30:]})
    pairs = [rated[::11][:40], others]
    if not known:
        for k, name in enumerate(names):
            new = "p9" if rated[name].dtype == object else 900 + k
            pairs.append(rated[:3].assign(**{name: new}))
    return pd.concat(pairs, ignore_index=True)


def new_ratings(shape: Shape) -> pd.DataFrame:
    """Return ratings of two new users, and one more of a known one."""
    names = names_of(shape)
    rated = shape.table.drop(columns=[x for x in ("timestamp", "w") if x in shape.table])
    of_known = rated[rated[names[0]] == rated[names[0]].iloc[0]]
    new = "p{}".format if rated[names[0]].dtype == object else int
    first = of_known[:5].assign(**{names[0]: new(97)})
    second = of_known[:2].assign(**{names[0]: new(98)})
    return pd.concat([first, second, of_known[-1:]], ignore_index=True)


#: Commands on a run by what they answer; lists are exact.
PREDICTIONS = {
    "predict": "predict run pairs.csv -o o.csv --unknown prior",
    "predict parquet": "predict run pairs.csv -o o.parquet --unknown prior",
    "predict known": "predict run known.csv -o o.csv --unknown prior --interval 0.5",
    "predict refused": "predict run pairs.csv -o o.csv",
    "predict of mean": "predict run pairs.csv -o o.csv --unknown prior --of-mean",
    "predict unclipped": "predict run pairs.csv -o o.csv --unknown prior --no-clip",
    "predict levels": "predict run known.csv -o o.csv --unknown prior --at-least 3 --probabilities",
    "predict matrix": "predict run --matrix -o o.csv",
    "predict matrix of numpy": "predict run --matrix -o o.npy",
    "predict imputed": "predict run --matrix --draws 2 -o o.csv",
    "evaluate": "evaluate run --json",
    "evaluate all": "evaluate run --at 3 --all --json",
    "evaluate file": "evaluate run new.csv --unknown prior --json",
    "evaluate refused": "evaluate run new.csv --json",
    "export": "export run -o o.parquet --force",
    "export draws": "export run -o o.parquet --draws --force",
    "export items": "export run -o o.csv --items --force",
}
LISTS = {
    **{
        f"recommend {by}": f"recommend run --all --top 5 -o o.csv --seed 1 --by {by}"
        for by in ("likely", "exposure", "mean", "ucb", "lcb", "thompson", "sd")
    },
    "recommend rated": "recommend run --all --top 3 -o o.csv --by mean --include-rated",
    "recommend at least": "recommend run --all --top 3 -o o.csv --at-least 3",
    "recommend chosen": "recommend run --all --top 3 -o o.csv --candidates items.txt",
    "recommend excluded": "recommend run --all --top 3 -o o.csv --by lcb --exclude items.txt",
    "recommend one": "recommend run --top 4 --json --by mean --include-rated --user",
    "recommend nobody": "recommend run --user nobody",
    "recommend pairs": "recommend run --pairs --top 20",
    "recommend pairs by mean": "recommend run --pairs --top 20 --by mean --json",
}


def by_command(shape: Shape) -> Iterator[tuple[str, Record]]:
    """Yield answers of commands about the run in this folder."""
    names = names_of(shape)
    user = str(shape.table[names[0]].iloc[0])
    if len(names) > 2:
        user = ",".join(f"{name}={shape.table[name].iloc[0]}" for name in names[:2])
    for name, command in PREDICTIONS.items():
        yield name, said(*command.split())
    for name, command in LISTS.items():
        words = command.split()
        if words[-1] == "--user":
            words.append(user)
        yield name, said(*words, exact=True)


def in_python(shape: Shape) -> Iterator[tuple[str, Record]]:
    """Yield answers of the model of the run in this folder, and of one with new rows."""
    model = open_run("run")
    pairs = pairs_of(shape, known=False)
    new = new_ratings(shape)
    some = model.items_[:4].tolist()
    asked: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(pairs, return_std=True),
        "predict of mean": lambda: model.predict(pairs, return_std=True, of_mean=True),
        "predict one": lambda: model.predict(pairs[:1]),
        "interval": lambda: model.predict_interval(pairs, 0.8),
        "interval of mean": lambda: model.predict_interval(pairs, of_mean=True),
        "at least": lambda: model.predict(pairs, at_least=3),
        "probabilities": lambda: model.predict_proba(pairs),
        "evaluate": lambda: model.evaluate(new),
        "complete": model.complete,
        "complete fitted": lambda: model.complete(known="fitted"),
        "complete with sds": lambda: model.complete(return_std=True),
        "complete by draws": lambda: model.complete(draws=2),
        "similar items": lambda: model.similar(some[0], 5),
        "similar users": lambda: model.similar(model.users_[0], 5, kind="user"),
        "loadings": model.loadings,
        "item parameters": model.item_parameters,
        "user parameters": model.user_parameters,
        "recommend": lambda: listed(model.recommend(n=4)),
        "recommend by mean": lambda: listed(model.recommend(n=4, by="mean", candidates=some)),
        "recommend by draw": lambda: listed(model.recommend(n=4, by="thompson", seed=3)),
        "recommend pairs": lambda: listed(model.recommend_pairs(9)),
    }
    for name, ask in asked.items():
        yield name, answer(ask)
    if len(names_of(shape)) == 2:
        yield from filled(model)
    yield from folded(model, new, pairs)
    yield from folded(model, new_items(shape), pairs, kind="item")
    for entity, table in shape.features.items():
        described = table[:4].assign(**{entity: [900, 901, 902, 903]})
        ask = described_rows(model, entity, described, pairs)
        yield f"fold in features of {entity}s", answer(ask)


def filled(model: Any) -> Iterator[tuple[str, Record]]:
    """Yield completions of another matrix: two new rows, a known one, and one without ratings."""
    items = np.sort(model.items_)[:8]
    values = np.full((4, len(items)), np.nan)
    values[0, :3] = 1.0
    values[1, 4:] = 0.0
    values[2, ::3] = 1.0
    known = np.sort(model.users_)[0]
    matrix = pd.DataFrame(values, pd.Index([950, 951, known, 952], name="user"), items)
    yield "complete another", answer(lambda: model.complete(matrix))
    yield "complete another with sds", answer(lambda: model.complete(matrix, return_std=True))
    yield "complete another by draws", answer(lambda: model.complete(matrix, draws=2))
    yield "complete another, fitted", answer(lambda: model.complete(matrix, known="fitted"))
    yield "complete an array", answer(lambda: model.complete(matrix.to_numpy()))


def new_items(shape: Shape) -> pd.DataFrame:
    """Return ratings of a new item by known users."""
    item = names_of(shape)[-1]
    rated = shape.table.drop(columns=[x for x in ("timestamp", "w") if x in shape.table])
    return rated[::17][:4].drop_duplicates(names_of(shape)[:-1]).assign(**{item: 900})


def described_rows(
    model: Any, entity: str, described: pd.DataFrame, pairs: pd.DataFrame
) -> Callable[[], Any]:
    """Return a call that predicts pairs of rows that have features alone."""
    asked = pairs[:4].assign(**{entity: described[entity].to_numpy()})
    return lambda: model.fold_in(kind=entity, features=described).predict(asked, return_std=True)


def listed(table: Any) -> Any:
    """Return a list of items as text, which must not change."""
    return pd.DataFrame(dict(table)).to_csv(index=False)


def folded(
    model: Any, new: pd.DataFrame, pairs: pd.DataFrame, kind: str = "user"
) -> Iterator[tuple[str, Record]]:
    """Yield predictions, lists and completions of a model with new rows."""
    own = new[[name for name in new if name in pairs]]
    with warnings.catch_warnings(action="ignore"):
        try:
            more = model.fold_in(new, kind=kind)
        except ValueError:
            more = model
    asked: dict[str, Callable[[], Any]] = {
        "": lambda: model.fold_in(new, kind=kind) is not None,
        ", own": lambda: more.predict(own, return_std=True),
        ", others": lambda: more.predict(pairs),
        ", of mean": lambda: more.predict_interval(own, of_mean=True),
        ", complete": more.complete,
        ", complete with sds": lambda: more.complete(return_std=True),
        ", complete by draws": lambda: more.complete(draws=1),
        ", list": lambda: listed(more.recommend(own[own.columns[:-1]], n=4, by="mean")),
    }
    for name, ask in asked.items():
        yield f"fold in {kind}s{name}", answer(ask)


def records(only: str) -> Iterator[tuple[str, Record]]:
    """Sample the runs of shapes, and yield what they answer."""
    for name, shape in shapes().items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as place, chdir(place):
            for begun, record in sampled(shape):
                yield f"{name}: {begun}", record
            for asked, record in by_command(shape):
                yield f"{name}: {asked} by command", record
            for asked, record in in_python(shape):
                yield f"{name}: {asked} in Python", record


def sampled(shape: Shape) -> Iterator[tuple[str, Record]]:
    """Write the files of a shape and sample its run; yield what the commands say."""
    shape.table.to_csv("ratings.csv", index=False)
    pairs_of(shape, known=False).to_csv("pairs.csv", index=False)
    pairs_of(shape, known=True).to_csv("known.csv", index=False)
    new_ratings(shape).to_csv("new.csv", index=False)
    items = shape.table[names_of(shape)[-1]].unique()[:6]
    Path("items.txt").write_text("".join(f"{item}\n" for item in items), encoding="utf-8")
    options = shape.prepare.split()
    for entity, table in shape.features.items():
        table.to_csv(f"{entity}s.csv", index=False)
        options += [f"--{entity}-features", f"{entity}s.csv"]
    prepared = typed("prepare", "ratings.csv", "data.h5", *options, "--test-fraction=0.2").expect(0)
    yield "prepare", {"messages": plain(prepared.err, Path.cwd())}
    done = typed("sample", "data.h5", "--out", "run", *shape.sample.split(), *LENGTH).expect(0)
    yield "sample", {"code": done.code}


if __name__ == "__main__":
    sys.exit(run(arguments(__doc__), records, TOLERANCE))
