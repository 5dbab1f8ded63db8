"""The configuration: layers of settings, what is resolved, what identifies a chain, lengths,
errors, policies.
"""

import time
from pathlib import Path
from typing import Any

import pytest
from support import STEPPING

from dsgmcmc.config.chain import CHANGEABLE
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig, build, collect
from dsgmcmc.config.units import format_accuracy, parse_accuracy
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.settings import setting
from dsgmcmc.storage.files import read_toml
from dsgmcmc.storage.rundir import RunDirectory

# ---------------------------------------------------------------------- layers


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "baoab"),
        ({"biases": False}, "psgld"),
        ({"center": False}, "psgld"),
        ({"prior": "fixed"}, "psgld"),
    ],
)
def test_the_default_sampler_is_one_that_is_stable(settings: dict[str, Any], name: str) -> None:
    """Nobody who types only --no-biases gets a chain that diverges."""
    assert build(settings).sampler.name == name


@pytest.mark.parametrize("name", STEPPING)
def test_a_section_without_a_name_belongs_to_the_sampler_before(name: str) -> None:
    """--step-size with a file that names the sampler changes that sampler's step."""
    config = build({"sampler": {"name": name}}, {"sampler": {"step_size": 0.125}})
    assert (config.sampler.name, config.sampler.config.step_size) == (name, 0.125)


def test_another_sampler_discards_the_section_of_the_one_before() -> None:
    """Its settings mean something else: psgld's alpha must not reach sgld, nor stop the run."""
    config = build(
        {"sampler": {"name": "psgld", "alpha": 0.5, "step_size": 0.125}}, {"sampler": "sgld"}
    )
    assert config.sampler == build({"sampler": "sgld"}).sampler


def test_auto_takes_back_the_sampler_of_an_earlier_layer() -> None:
    """--sampler auto with a file that names a sampler; a step then belongs to the default one."""
    config = build({"sampler": {"name": "psgld", "alpha": 0.5}}, {"sampler": "auto"})
    assert config.sampler == build({}).sampler
    config = build({"sampler": {"name": "auto", "step_size": 0.125}})
    assert config.sampler.name == "baoab"
    assert config.sampler.config.step_size == 0.125


def test_the_noise_precision_is_one_with_a_fixed_prior_and_sampled_elsewhere() -> None:
    """Given values win in either case."""
    assert build({"prior": "fixed"}).noise_precision == 1.0
    assert build({"prior": "fixed", "noise_precision": "sampled"}).noise_precision == "sampled"
    assert build({"prior": "normal-gamma"}).noise_precision == "sampled"
    assert build({"noise_precision": 2}).noise_precision == 2.0


# ---------------------------------------------------------------------- files and --set


def test_assignments_win_over_options_and_options_over_the_file(tmp_path: Path) -> None:
    """The command comes before the file; a file may spell names with hyphens, as options do."""
    path = tmp_path / "c.toml"
    path.write_text(
        'rank = 1\nseed = 1\ngrid = 1\nburn-in = "3sweeps"\n[sampler]\nname = "sghmc"\nwarm-up'
        " = 2\n"
    )
    config = build(collect({"seed": 2, "grid": 2}, config_file=path, assignments=["grid=3"]))
    assert (config.rank, config.seed, config.grid) == (1, 2, 3)
    assert (config.burn_in, config.sampler.config.warm_up) == ("3sweeps", 2)


@pytest.mark.parametrize("content", [b"rank = ", b"\xff\xfe", b"rank = 1\nrank = 2\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    """The message says which file."""
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"c\.toml cannot be read as TOML"):
        read_toml(path)
    with pytest.raises(InputError, match=r"absent\.toml"):
        read_toml(tmp_path / "absent.toml")


def test_assignments_take_toml_values_and_plain_words() -> None:
    """--set sampler.alpha=0.95, --set schedule=cyclic, --set no-such=[1, 2]."""
    parsed = collect(
        assignments=[
            "sampler.alpha=0.95",
            "sampler.warm-up=3",
            "schedule=cyclic",
            "burn-in=3sweeps",
            "biases=false",
            "a=b=c",
        ]
    )
    assert parsed == {
        "sampler": {"alpha": 0.95, "warm_up": 3},
        "schedule": "cyclic",
        "burn_in": "3sweeps",
        "biases": False,
        "a": "b=c",
    }
    with pytest.raises(InputError, match=r"--set sampler\.alpha: expected NAME=VALUE"):
        collect(assignments=["sampler.alpha"])


# ---------------------------------------------------------------------- what is resolved


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("prior", ["fixed", "half-cauchy", "normal-gamma"])
def test_run_toml_gives_back_the_same_chain(tmp_path: Path, name: str, prior: str) -> None:
    """A resumed run reads its settings from run.toml, which has all; TOML has no null, and must not
    lose any.
    """
    step = {"name": name} | ({"step_size": 0.01} if name in STEPPING else {})
    config = build({"prior": prior, "sampler": step, "burn_in": "3sweeps"}).resolved()
    of_other_models = {"zero_weight", "until", "scale", "item_levels", "coupled_noise"}
    of_other_models |= {"size_moves"}
    assert set(config.table()) | of_other_models == set(ResolvedConfig.model_fields)
    run = RunDirectory(tmp_path)
    run.write_settings(config.table(), {"data": "x", "config_hash": config.hash()})
    assert ResolvedConfig.of_run(run)[0] == config
    assert build(run.read_settings()[0]).resolved() == config


class LaterConfig(BAOABConfig):
    """A configuration with a setting that runs begun before do not have."""

    bound: float = setting("A bound.", 4.0, offered=False, later=True, gt=1)


class Later(BAOAB):
    """A sampler that got a setting."""

    Config = LaterConfig


def test_a_run_that_was_begun_before_a_setting_existed_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its default the setting leaves file and hash as they were; another value is in both."""
    before = build({}).resolved()
    run = RunDirectory(tmp_path)
    run.write_settings(before.table(), {"config_hash": before.hash()})
    monkeypatch.setitem(SAMPLERS, "baoab", Later)
    now, _ = ResolvedConfig.of_run(run)
    assert now.sampler.config == LaterConfig()
    assert now.hash() == before.hash()
    other = build({"sampler": {"bound": 3.0}}).resolved()
    assert other.table()["sampler"]["bound"] == 3.0
    assert other.hash() != before.hash()


def test_a_file_that_lacks_settings_names_them(tmp_path: Path) -> None:
    """Another version may have more settings, of which a hash without them knows nothing."""
    config = build({}).resolved()
    table = config.table()
    del table["hyper_start"], table["sampler"]["friction"]
    run = RunDirectory(tmp_path)
    run.write_settings(table, {"config_hash": "0" * 64})
    with pytest.raises(InputError, match=r"lacks hyper_start, sampler\.friction, and has"):
        ResolvedConfig.of_run(run)


#: Another value of every setting: of the model, its likelihood and its parts, of the sampler, and
#: of lengths.
OTHER: dict[str, Any] = {
    "rank": 8,
    "prior": "normal-wishart",
    "prior_precision": 2.0,
    "noise_precision": 3.0,
}
OTHER |= {
    "biases": False,
    "center": False,
    "standardise": False,
    "size_moves": True,
    "hyper_start": 3,
    "noise": "both",
    "scale": "log",
}
OTHER |= {"likelihood": "other", "thresholds": "user", "item_levels": "observed"}
OTHER |= {"zero_weight": 0.3, "coupled_noise": True}
OTHER |= {"implicit_features": "both", "features": "no", "time_levels": "user:8"}
OTHER |= {
    "sampler": {"name": "sgld"},
    "grid": 5,
    "schedule": "cyclic",
    "initial_sd": 0.2,
    "seed": 7,
    "chains": 3,
}
OTHER |= {"iterations": 11, "until": "ess=5", "burn_in": 12, "thin": 13, "evaluate_every": 14}
OTHER |= {"checkpoint_every": "90s", "save_draws": 6}


def test_the_hash_is_of_what_the_draws_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting is either part of a chain's identity or named as free to change on resume."""
    monkeypatch.setitem(LIKELIHOODS, "other", GaussianRatings)
    assert set(OTHER) == set(ResolvedConfig.model_fields)
    for name, value in OTHER.items():
        of_levels = dict.fromkeys(("thresholds", "item_levels"), "ordinal-logit")
        likelihood = ({"zero_weight": "all-cells"} | of_levels).get(name)
        settings = {"likelihood": likelihood} if likelihood else {}
        base = build(settings).resolved()
        changed = build(settings, {name: value}).resolved()
        assert getattr(changed, name) != getattr(base, name)
        assert (changed.hash() == base.hash()) == (name in CHANGEABLE), name
    assert set(CHANGEABLE) == {
        "iterations",
        "until",
        "checkpoint_every",
        "chains",
    }, "no draw depends on these"
    base = build({"sampler": {"name": "psgld"}}).resolved()
    assert build({"sampler": {"name": "psgld", "alpha": 0.98}}).resolved().hash() != base.hash()


# ---------------------------------------------------------------------- lengths and intervals


def test_lengths_resolve_by_the_sweep() -> None:
    """Lengths may be given in sweeps or iterations, as numbers or text."""
    lengths = {
        "iterations": "10sweeps",
        "burn_in": "3 sweeps",
        "thin": "1sweep",
        "evaluate_every": "7",
    }
    resolved = build({"grid": 5, "sampler": "psgld", **lengths}).resolved()
    assert [resolved.iterations, resolved.burn_in, resolved.thin, resolved.evaluate_every] == [
        50,
        15,
        5,
        7,
    ]
    assert build({"burn_in": "0sweeps"}).resolved().burn_in == 0


def test_the_grid_is_large_enough_for_the_processes() -> None:
    """Two blocks for each, where more than four share a chain; what is asked for stays."""
    assert [build({}).resolved(processes).grid for processes in (1, 4, 5, 9)] == [4, 4, 10, 18]
    assert build({"grid": 3}).resolved(9).grid == 3
    assert build({}).resolved(9, finest=7).grid == 7
    assert build({"grid": 9}).resolved(1, finest=7).grid == 9  # which the data then refuse


@pytest.mark.parametrize("name", STEPPING)
def test_smaller_steps_are_all_smaller(name: str) -> None:
    """A chain that begins again with half the step takes it in its burn-in, too."""
    full = build({"sampler": {"name": name, "burn_in_step_size": 0.5}}).resolved().sampler.config
    half = full.scaled(0.5)
    assert half.step_size == 0.5 * full.step_size
    assert half.burn_in_step_size == 0.25


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, (7, None)),
        ("7", (7, None)),
        ("90s", (None, 90.0)),
        ("1.5min", (None, 90.0)),
        ("1 h", (None, 3600.0)),
        ("2d", (None, 172800.0)),
        ("100:00:00", (None, 360000.0)),
        ("1-02:00:00", (None, 93600.0)),
    ],
)
def test_checkpoint_intervals(text: int | str, expected: tuple[int | None, float | None]) -> None:
    """Iterations, or time as people and as Slurm write it."""
    assert build({"checkpoint_every": text}).resolved().checkpoint_interval() == expected


def test_accuracies_are_read() -> None:
    """In any order, and written so that they are read alike; nonsense raises with an example."""
    for text, wanted in (
        ("ess=400", {"ess": 400.0}),
        (" ess = 4e2, rhat=1.1", {"ess": 400.0, "rhat": 1.1}),
    ):
        assert parse_accuracy(text) == wanted == parse_accuracy(format_accuracy(wanted))
    for text in ("", "ess", "400", "rhat=1", "ess=nan", "mess=4", "ess=4,ess=5", "ess=4,"):
        with pytest.raises(InputError, match="until: must be like 'ess=400'"):
            build({"until": text})


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"chains": 4}, ("ess=400", 5000)),
        ({"sampler": "sgld"}, ("ess=100", 20_000)),
        ({"iterations": 800}, (None, 800)),
        ({"until": "none"}, (None, 700)),
        ({"until": "ess=50", "iterations": 900}, ("ess=50", 900)),
        ({"thin": "100sweeps"}, (None, 700)),
        ({"sampler": {"name": "sgld", "decay_power": 0.33}}, (None, 2800)),
    ],
)
def test_how_long_a_run_is(settings: dict[str, Any], end: tuple[str | None, int]) -> None:
    """By accuracy if nothing is said, and where that can be told; as long as was said otherwise."""
    config = build(settings).resolved()
    assert (config.until, config.iterations) == end
    again = build(config.table()).resolved()
    assert (again.until, again.iterations) == end, "resumed without a word"


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": -3}, ["rank: ", "greater than or equal to 0", "'auto' (found -3)"]),
        ({"rank": 0, "biases": False}, ["--rank 0", "--no-biases", "--rank 1 or more"]),
        ({"rank": 0, "likelihood": "all-cells"}, ["--rank 0", "all-cells"]),
        ({"schedule": "spiral"}, ["schedule", "spiral", "cyclic"]),
        ({"noise_precision": float("nan")}, ["noise_precision"]),
        ({"noise_precision": "loud"}, ["noise_precision", "loud", "sampled"]),
        ({"rank": 513}, ["rank: ", "513"]),
        ({"iterations": "ten"}, ["iterations", "ten", "500sweeps"]),
        ({"iterations": 0}, ["iterations must be at least 1"]),
        ({"thin": "\u00b2"}, ["thin", "\u00b2", "500sweeps"]),
        ({"evaluate_every": "0sweeps"}, ["evaluate_every must be at least 1"]),
        ({"burn_in": -1}, ["burn_in", "-1"]),
        (
            {"until": "ess=400", "iterations": 500},
            ["500 iterations give at most 225 draws per chain"],
        ),
        (
            {"until": "rhat=1.1", "sampler": {"name": "sgld", "decay_power": 0.33}},
            ["unequal weights"],
        ),
        ({"until": "rhat=1.1", "burn_in": 10}, ["the step changes after burn-in"]),
        ({"checkpoint_every": 0}, ["checkpoint_every"]),
        ({"checkpoint_every": "soon"}, ["checkpoint_every", "soon", "10min"]),
        ({"seed": 2**63}, ["seed"]),
        (
            {"friction": 0.8},
            ["friction: is not a setting; settings of the sampler are sampler.NAME"],
        ),
        ({"sampler": "sgdl"}, ["sgdl", *SAMPLERS]),
        ({"sampler": {"frictoin": 0.8}}, ["sampler.frictoin: is not a setting"]),
        ({"sampler": {"name": "psgld", "alpha": 2}}, ["sampler.alpha", "2"]),
        ({"sampler": {"name": "baoab", "step_size": 0}}, ["sampler.step_size", "0"]),
        ({"sampler": {"name": "baoab", "step_size": float("nan")}}, ["sampler.step_size", "nan"]),
        ({"sampler": {"name": "sgld", "decay_power": -1}}, ["sampler.decay_power", "-1"]),
        ({"sampler": {"name": "gibbs", "step_size": 0.1}}, ["sampler.step_size: is not a setting"]),
        ({"sampler": 3}, ["sampler"]),
        ({"rank": -1, "seed": -1, "grid": 0}, ["rank", "seed", "grid"]),
    ],
)
def test_errors_name_the_setting(settings: dict[str, Any], words: list[str]) -> None:
    """One line with all errors: the setting's name as the user writes it, what was found, what
    would be right.

    A length of 0 would divide by zero, or do nothing; an accuracy that cannot be reached would cost
    hours of sampling.
    """
    with pytest.raises(InputError) as caught:
        build(settings).resolved()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "Value error" not in message


# ---------------------------------------------------------------------- policies of a job


def test_the_wall_time_counts_from_the_program_s_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports and compilation are part of it; the end of a Slurm job is in seconds since 1970.

    A plain number is refused: nobody knows whether it is minutes.
    """
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 500))
    for limit, least, most in (("1h", 2990, 3000), ("auto", 480, 500)):
        deadline = Policy(max_walltime=limit).deadline(since_start=600.0)
        assert deadline is not None
        assert least < deadline - time.monotonic() <= most
    assert Policy().deadline(0.0) is None
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    no_times = dict.fromkeys(
        ("", "1", "1:30", "01:60:00", "-1h", "1 hour", "1e3s", "soon", "0s"), "expected a time"
    )
    for limit, why in {"auto": "SLURM_JOB_END_TIME is not set", **no_times}.items():
        with pytest.raises(InputError, match=f"--max-walltime {limit}: {why}"):
            Policy(max_walltime=limit).deadline(0.0)


@pytest.mark.parametrize("wrong", [{"watchdog": -1.0}, {"on_divergence": "pray"}])
def test_wrong_policies_are_refused(wrong: dict[str, object]) -> None:
    """Named as the user gave them."""
    (name,) = wrong
    with pytest.raises(InputError, match=f"^{name}: "):
        Policy.from_settings(wrong)
