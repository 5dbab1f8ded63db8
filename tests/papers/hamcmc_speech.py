"""Section 4.2 of [Simsekli 2016] by the samplers of this package: speech out of noise, by
alpha-stable factors.

    python tests/papers/hamcmc_speech.py --out docs/figures   # needs espeak-ng
    python tests/papers/hamcmc_speech.py --quick              # synthetic sources in place of speech

Speech: sentences of espeak-ng in two voices, at 16 kHz, with a noise floor 40 dB below; noise of
our own, 5 dB below the speech. I = 256 frequencies of windows of 510 samples, J = 140 frames. W of
the speech, 100 columns, is brought to a mode on twelve other sentences by multiplicative updates;
denoising samples all else: its H, and W and H of five columns of noise, alpha = 1.2 and 1.89.
Synthetic: both sources drawn from the model itself, W of the first one known.

Every sampler has a tenth of the data in an iteration, 1,000 iterations, of which the last 200
count, gradients given the mixing variables, and six settings (HAMCMC eight), tried on a signal that
is not in the table. SGRLD is Langevin dynamics in the metric diag(1 / theta^2); the mode is that of
multiplicative updates, from the same start. The estimate is the posterior mean of the speech, and
SDR 10 log10 |s|^2 / |s - s^|^2, with no filter forgiven. On synthetic sources lambda of the first
one is known, and the score is the root of the mean square error of the posterior mean of its log,
in dB.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
from common import axes, command, head, prepare, row, save
from latent import given_latent
from scipy.io import wavfile
from scipy.signal import ShortTimeFFT, resample_poly
from stable_factors import Source, StableFactors

from dsgmcmc.densities.sample import sample

RATE = 16_000
WINDOW = 510
FRAMES = 140
ALPHAS = (1.2, 1.89)
NODES = 12
SENTENCES = [
    "The birch canoe slid on the smooth planks",
    "Glue the sheet to the dark blue background",
    "It is easy to tell the depth of a well",
    "These days a chicken leg is a rare dish",
    "Rice is often served in round bowls",
    "The juice of lemons makes fine punch",
    "The box was thrown beside the parked truck",
    "The hogs were fed chopped corn and garbage",
    "Four hours of steady work faced us",
    "A large size in stockings is hard to sell",
    "The boy was there when the sun rose",
    "A rod is used to catch pink salmon",
    "The source of the huge river is the clear spring",
    "Kick the ball straight and follow through",
    "Help the woman get back to her feet",
    "A pot of tea helps to pass the evening",
    "Smoky fires lack flame and heat",
]
VOICES = ("en+m1", "en+f2")
THIN = 21  # no multiple of the chains that HAMCMC interleaves

PSGLD_SETTINGS = list(product((5e-4, 1.5e-3, 4e-3), (9.0, 90.0)))
HAMCMC_SETTINGS = list(product((1e-5, 1e-4, 1e-3, 1e-2), (0.1, 1.0)))
#: Kernel, and the settings that are tried.
METHODS = {
    "SGLD": ("sgld", [{"step_size": step} for step in np.geomspace(1e-5, 3e-3, 6)]),
    "PSGLD": (
        "psgld",
        [{"step_size": s, "burn_in_step_size": s, "lambda_n": n} for s, n in PSGLD_SETTINGS],
    ),
    "HAMCMC, M=5": (
        "hamcmc",
        [{"step_size": s, "trust": trust, "memory": 5} for s, trust in HAMCMC_SETTINGS],
    ),
    "SGRLD": ("gsgrld", [{"step_size": step} for step in np.geomspace(1e-3, 1e-1, 6)]),
}


@dataclass
class Signal:
    """What is heard, and what of it is speech: transforms (I, J), and W of the speech.

    `back` makes sound of them; `lambdas` are the speech's, if they are known.
    """

    name: str
    mixture: np.ndarray
    speech: np.ndarray
    basis: np.ndarray
    columns: int
    back: ShortTimeFFT | None = None
    lambdas: np.ndarray | None = None

    def density(self) -> StableFactors:
        """What is sampled."""
        sources = [Source(ALPHAS[0], self.basis), Source(ALPHAS[1], self.columns)]
        return StableFactors(self.mixture, sources, nodes=NODES)

    def score(self, density: StableFactors, thetas: np.ndarray) -> float:
        """What states are worth, dB: SDR of the mean of the speech, or minus the error of lambda if
        that is known.
        """
        if self.lambdas is not None:
            logs = [
                np.log(w[0] @ h[0])
                for (w, h), *_ in (density.factors(theta[None]) for theta in thetas)
            ]
            return (
                -10
                * float(np.sqrt(np.mean((np.mean(logs, axis=0) - np.log(self.lambdas)) ** 2)))
                / np.log(10)
            )
        return self.sdr(
            np.mean([density.separate(theta[None])[0, :, :, 0] for theta in thetas], axis=0)
        )

    def sdr(self, share: np.ndarray | float) -> float:
        """Signal-to-distortion ratio, dB, of that share of what is heard."""
        truth = self.back.istft(self.speech)
        found = self.back.istft(self.mixture * share)
        return float(10 * np.log10((truth**2).sum() / ((truth - found) ** 2).sum()))


# ---------------------------------------------------------------------- sound


def spoken(text: str, voice: str) -> np.ndarray:
    """Sound of a sentence."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["espeak-ng", "-v", voice, "-w", file.name, text], check=True)
        rate, sound = wavfile.read(file.name)
    return resample_poly(sound.astype(float), RATE, rate)


def noise(noise_name: str, length: int, rng: np.random.Generator) -> np.ndarray:
    """Pink noise, a machine's hum with it, a crowd, or rain: pink noise with drops."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    pink = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 20.0), length)
    pink /= pink.std()
    time = np.arange(length) / RATE
    if noise_name == "hum":
        return pink + sum(2 / k * np.sin(2 * np.pi * 110 * k * time + k) for k in range(1, 12))
    if noise_name == "crowd":
        voices = [spoken(SENTENCES[k], f"en+m{k + 2}") for k in range(6)]
        return (
            sum(np.resize(np.roll(each, 1000 * k), length) for k, each in enumerate(voices))
            + 100 * pink
        )
    if noise_name == "rain":
        drops = (rng.random(length) < 0.001) * rng.exponential(30, length)
        return (
            pink + np.convolve(drops, np.exp(-np.arange(200) / 20) * rng.normal(size=200))[:length]
        )
    return pink


def transform() -> ShortTimeFFT:
    """Windows that overlap by half, and whose squares have the sum 1."""
    return ShortTimeFFT(np.sin(np.pi * (np.arange(WINDOW) + 0.5) / WINDOW), WINDOW // 2, RATE)


def floor(sound: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sound with the noise of a quiet room, 40 dB below."""
    return sound + 0.01 * sound.std() * rng.normal(size=len(sound))


def trained(columns: int) -> tuple[np.ndarray, float]:
    """W of twelve sentences, and the size by which transforms are divided."""
    rng = np.random.default_rng(1)
    fft = transform()
    x = fft.stft(
        floor(
            np.concatenate([spoken(text, VOICES[k % 2]) for k, text in enumerate(SENTENCES[:12])]),
            rng,
        )
    )
    scale = np.sqrt(np.mean(np.abs(x) ** 2))
    x = x[:, :: x.shape[1] // 700] / scale
    density = StableFactors(x, [Source(ALPHAS[0], columns)], nodes=NODES)
    seeds = np.abs(x[:, rng.choice(x.shape[1], columns, replace=False)]) ** ALPHAS[0]
    theta = density.start.copy()
    theta[: seeds.size] *= (seeds / seeds.mean(axis=0) + 0.05).ravel()
    (basis, _), *_ = density.factors(mode(density, theta, 80))
    return basis[0], scale


def mode(density: StableFactors, theta: np.ndarray, iterations: int) -> np.ndarray:
    """A mode by multiplicative updates, theta times the root of what pulls it up over what pulls it
    down: (1, D).
    """
    theta = theta[None].copy()
    for _ in range(iterations):
        up, down = density.pulls(theta)
        theta *= np.sqrt(up / down)
    return theta


def speech_signals(columns: int = 100) -> list[Signal]:
    """One to try settings on, and four for the table."""
    basis, scale = trained(columns)
    rng = np.random.default_rng(2)
    fft = transform()
    found = []
    length = (FRAMES - 1) * fft.hop
    noise_names = ("pink", "pink", "hum", "crowd", "rain")
    for number, noise_name in enumerate(noise_names):
        text = SENTENCES[12 + number]
        voice = VOICES[number % 2]
        speech = floor(np.resize(spoken(text, voice), length), rng)
        other = noise(noise_name, length, rng)
        other *= speech.std() / other.std() * 10 ** (-5 / 20)
        mixture, clean = (fft.stft(sound)[:, :FRAMES] / scale for sound in (speech + other, speech))
        found.append(Signal(noise_name, mixture, clean, basis, 5, fft))
    return found


def synthetic_signals() -> list[Signal]:
    """Sources drawn from the model, H sparse: one to try settings on, and one for the table."""
    rng = np.random.default_rng(3)
    found = []
    rows = 16
    frames = 20
    for number in range(2):
        basis = rng.gamma(0.5, size=(rows, 8)) + 0.01
        lambdas = basis @ (rng.gamma(0.3, size=(8, frames)) + 0.01)
        noises = 0.3 * rng.gamma(1.0, size=(rows, 2)) @ rng.gamma(1.0, size=(2, frames))
        latent = StableFactors(lambdas, [Source(alpha, 1) for alpha in ALPHAS]).draw_latent(
            (1, rows * frames), rng
        )[0]
        both = [
            np.sqrt(latent[:, k].reshape(rows, frames) * each ** (2 / ALPHAS[k]))
            * (rng.normal(size=each.shape) + 1j * rng.normal(size=each.shape))
            for k, each in enumerate((lambdas, noises))
        ]
        found.append(Signal(f"{number}", sum(both), both[0], basis, 2, lambdas=lambdas))
    return found


# ---------------------------------------------------------------------- samplers


def sampled(
    signal: Signal, kernel: str, settings: dict, iterations: int, seed: int
) -> tuple[float, float]:
    """Score of the last draws, -inf if the chain diverged; CPU seconds without scoring."""
    density = signal.density()
    draws = []
    sampler, target = prepare(
        kernel, density, iterations - 200, "shuffled", grid=10, seed=seed, **settings
    )
    given_latent(sampler)
    begin = process_time()
    for iteration, theta in enumerate(sample(target, sampler, iterations, sd=1e-9), 1):
        if not np.isfinite(theta).all():
            return -np.inf, process_time() - begin
        if iteration > sampler.burn_in and (iteration - sampler.burn_in) % THIN == 0:
            draws.append(theta[0].copy())
    seconds = process_time() - begin
    return signal.score(density, np.array(draws)), seconds


def compare(signals: list[Signal], iterations: int) -> dict[str, list[float]]:
    """Scores of every method on all signals but the first, on which its settings are chosen; prints
    a table.
    """
    pilot, *others = signals
    head("sampler", "settings", *(signal.name for signal in others), "mean", "CPU s")
    found = {}
    if pilot.lambdas is None:
        found["as heard"] = [signal.sdr(1.0) for signal in others]
    for name, steps in (("at the start", 0), ("mode", 60)):
        densities = [signal.density() for signal in others]
        ends = [mode(density, density.start, steps) for density in densities]
        found[name] = [
            signal.score(*each) for signal, *each in zip(others, densities, ends, strict=True)
        ]
    for name, values in found.items():
        line(name, "", values, "")
    for name, (kernel, every) in METHODS.items():
        tried = [sampled(pilot, kernel, settings, iterations, 100)[0] for settings in every]
        best = every[int(np.argmax(tried))]
        both = [
            sampled(signal, kernel, best, iterations, seed) for seed, signal in enumerate(others)
        ]
        found[name] = [value for value, _ in both]
        said = ", ".join(
            f"{key} {best[key]:.2g}" for key in ("step_size", "lambda_n", "trust") if key in best
        )
        line(name, said, found[name], f"{np.mean([seconds for _, seconds in both]):.1f}")
    if pilot.lambdas is None:
        found["true power"] = [oracle(signal) for signal in others]
        line("true power", "", found["true power"], "")
    return found


def oracle(signal: Signal) -> float:
    """SDR of the Wiener filter that knows the power of both sources in every cell."""
    powers = np.abs(signal.speech) ** 2, np.abs(signal.mixture - signal.speech) ** 2
    return signal.sdr(powers[0] / np.maximum(sum(powers), 1e-300))


def line(name: str, said: str, values: list[float], seconds: str) -> None:
    """Print a row of the table."""
    row(name, said, *(f"{value:.2f}" for value in values), f"{np.mean(values):.2f}", seconds)


def draw(found: dict[str, list[float]], folder: Path) -> None:
    """The figure: every signal a dot, the mean a line."""
    panels = axes(1, 1, size=(6, 3.4))
    axis = panels[0, 0]
    for column, values in enumerate(found.values()):
        axis.plot(np.full(len(values), column), values, "o", ms=4, alpha=0.5, color="tab:blue")
        axis.plot([column - 0.3, column + 0.3], [np.mean(values)] * 2, "k", lw=2)
    axis.set_xticks(range(len(found)), list(found), rotation=30, ha="right", fontsize=8)
    axis.set_ylabel("SDR, dB")
    save(panels, folder, "hamcmc_speech.png")


def main() -> None:
    """Print the table, and draw it."""
    parser = command(__doc__, "hamcmc_speech.png")
    options = parser.parse_args()
    if options.quick:
        compare(synthetic_signals(), 300)
        return
    found = compare(speech_signals(), 1000)
    if options.out:
        draw(found, options.out)


if __name__ == "__main__":
    main()
