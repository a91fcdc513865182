"""Suites: named sets of tasks and variants that are trained and shown together. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._errors import unknown
from ..envs.atari import ATARI, PAPER

PLAIN, FROZEN, EVOLVING = "mountain-car", "mountain-car-frozen", "mountain-car-evolving"
HALF_CHEETAH, ANT_MAZE, MNIST = "half-cheetah", "ant-maze", "mnist"
MARIO = "mario"
#: The paper's nine games.
ARCADE = (*(f"{ATARI}{game}" for game in PAPER), MARIO)
SIX = ("lbs", "disagreement", "icm", "rnd", "vime", "random")


def score_name(task: str) -> str:
    """What the sum of a game's rewards is called: Mario has a score of his own on the screen, which is another."""
    return "distance" if task == MARIO else "score"


@dataclass(frozen=True)
class Variant:
    """A line of a table: a method with what is changed about it, under a label."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The preset it stands on; None: the one asked for.
    preset: str | None = None
    #: The line that it is compared with; empty: the suite's reference.
    against: str = ""


@dataclass(frozen=True)
class Suite:
    """Every variant on every task."""

    name: str
    title: str
    summary: str
    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]
    #: The line that all others are compared with.
    reference: str = "lbs"
    #: How many seeds where none are asked for.
    seeds: int = 8

    @property
    def has_games(self) -> bool:
        """True if its tasks are games, so that any other game will do as well."""
        return bool(set(self.tasks) & set(ARCADE))

    @property
    def fixed(self) -> bool:
        """True if the suite itself says which presets it stands on."""
        return any(variant.preset for variant in self.variants)


def plainly(*methods: str) -> tuple[Variant, ...]:
    """Methods as they are."""
    return tuple(Variant(method, method) for method in methods)


def ablation(label: str, preset: str, against: str = "lbs", **settings: Any) -> Variant:
    """LBS on a preset with settings changed; `loop__rollout` stands for `loop.rollout`."""
    return Variant(label, "lbs", {name.replace("__", "."): value for name, value in settings.items()}, preset, against)


def choice(label: str, method: str, **settings: Any) -> Variant:
    """A method of the released code's preset with settings of its own changed, against the method as it is."""
    changed = {f"method.{name}": value for name, value in settings.items()}
    return Variant(label, method, changed, "paper-code", method)


LBS_ABLATIONS = (
    ablation("lbs", "paper-code"),
    *(ablation(f"beta {beta:g}", "paper-code", method__beta=beta) for beta in (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)),
    Variant("mean only", "lbs-mean", {}, "paper-code"),
    Variant("KL + NLL", "lbs-nll", {}, "paper-code"),
    ablation("no reset-crossing pairs", "paper-code", loop__successor="drop"),
    ablation("true successors", "paper-code", loop__successor="true"),
    ablation("entropy 0.001", "paper-code", ppo__entropy_weight=0.001),
    ablation("bootstrap", "paper-code", ppo__episode_ends="bootstrap"),
    ablation("executed actions", "paper-code", loop__model_action="executed"),
    ablation("rollout 256", "paper-code", loop__rollout=256),
    ablation("rollout 512", "paper-code", loop__rollout=512),
    # The path to `curiax`, each step on top of the one before.
    ablation("rollout 512, bootstrap", "paper-code", "rollout 512", loop__rollout=512, ppo__episode_ends="bootstrap"),
    ablation(
        "rollout 512, bootstrap, executed",
        "paper-code",
        "rollout 512, bootstrap",
        loop__rollout=512,
        ppo__episode_ends="bootstrap",
        loop__model_action="executed",
    ),
    ablation("curiax", "curiax", "rollout 512, bootstrap, executed"),
    # `curiax` with one thing put back.
    ablation("curiax, rollout 2048", "curiax", "curiax", loop__rollout=2048),
    ablation("curiax, no bootstrap", "curiax", "curiax", ppo__episode_ends="ignore"),
    ablation("curiax, sampled actions", "curiax", "curiax", loop__model_action="sampled"),
    ablation("curiax, beta 0.1", "curiax", "curiax", method__beta=0.1),
)

CHOICES = (
    choice("rnd", "rnd"),
    choice("rnd, linear target", "rnd", target="linear"),
    choice("rnd, 2 features", "rnd", feature_size=2),
    choice("rnd, 8 features", "rnd", feature_size=8),
    choice("icm", "icm"),
    choice("icm, gradient of both losses", "icm", feature_gradient="both"),
    choice("icm, inverse model of two layers", "icm", inverse_layers=2),
    choice("icm, 32 features", "icm", feature_size=32),
    choice("disagreement", "disagreement"),
    choice("disagreement, every model sees all", "disagreement", keep=1.0),
    choice("vime", "vime"),
    choice("vime, likelihood 1, initial 0.5", "vime", likelihood_std=1.0, initial_std=0.5),
    choice("vime, likelihood 0.5, initial 0.1", "vime", likelihood_std=0.5, initial_std=0.1),
    choice("ride", "ride"),
    choice("ride, equal weights", "ride", forward_weight=1.0, inverse_weight=1.0),
    choice("ride, kernel 1e-4", "ride", kernel_epsilon=1e-4),
    choice("ngu", "ngu"),
    choice("ngu, kernel 1e-4", "ngu", kernel_epsilon=1e-4),
    choice("ngu, 2 features", "ngu", feature_size=2),
)


def picked(*labels: str) -> tuple[Variant, ...]:
    """Some of the choices, by label."""
    return tuple(variant for variant in CHOICES if variant.label in labels)


#: Of the methods whose published numbers and ours part on the MuJoCo tasks; tried after those were seen.
ICM_CHOICES = picked("icm", "icm, gradient of both losses", "icm, inverse model of two layers")
RND_CHOICES = picked("rnd", "rnd, linear target", "rnd, 8 features")
VIME_CHOICES = picked("vime", "vime, likelihood 1, initial 0.5")

#: What the paper does not say of its MNIST task: β and the learning rate; both lines have its β of noisy control tasks.


def pictured(label: str, rate: float = 1e-4, method: str = "lbs", **settings: Any) -> Variant:
    """A method on pictures with settings of its own and a learning rate; the released code's preset."""
    changed = {f"method.{name}": value for name, value in settings.items()}
    return Variant(label, method, {**changed, "learner.learning_rate": rate}, "paper-code")


OFFSET_CHOICES = tuple(
    replace(choice(f"{method}, {words}", method, offset=offset), against=f"{method}, offsets")
    for method in ("simhash", "noveld")
    for words, offset in (("offsets", True), ("no offsets", False))
)

MNIST_CHOICES = (
    *(pictured(f"lbs, beta {beta:g}", target="pixels", beta=beta) for beta in (0.5, 2.0, 5.0, 10.0)),
    *(
        pictured(f"lbs, beta {beta:g}, rate {rate}", float(rate), target="pixels", beta=beta)
        for beta, rate in ((2.0, "3e-4"), (2.0, "1e-3"), (10.0, "1e-3"))
    ),
    *(pictured(f"lbs, features, beta {beta:g}", target="features", beta=beta) for beta in (2.0, 10.0, 30.0)),
    pictured("disagreement, pixels", method="disagreement", target="pixels"),
)

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "noisy-tv",
            "Who ignores the noisy TV?",
            "LBS, ICM, RND and Random on Mountain Car, without and with a remote that shows noise",
            (PLAIN, FROZEN),
            plainly("lbs", "icm", "rnd", "random"),
        ),
        Suite(
            "mountain-car",
            "Mountain Car",
            "the paper's six methods on Mountain Car",
            (PLAIN,),
            plainly(*SIX),
        ),
        Suite(
            "stochastic-mountain-car",
            "Stochastic Mountain Car",
            "the paper's six methods on Mountain Car without noise, Frozen and Evolving",
            (PLAIN, FROZEN, EVOLVING),
            plainly(*SIX),
        ),
        Suite(
            "half-cheetah",
            "Half-Cheetah",
            "the paper's six methods on Half-Cheetah; needs curiax[mujoco]",
            (HALF_CHEETAH,),
            plainly(*SIX),
        ),
        Suite(
            "ant-maze",
            "Ant Maze",
            "the paper's six methods in Ant Maze; needs curiax[mujoco]",
            (ANT_MAZE,),
            plainly(*SIX),
        ),
        Suite(
            "continuous",
            "Continuous control",
            "the paper's six methods on Mountain Car, Ant Maze and Half-Cheetah: the paper's first figure",
            (PLAIN, ANT_MAZE, HALF_CHEETAH),
            plainly(*SIX),
        ),
        Suite(
            "episodic",
            "Episodic counts",
            "RIDE and NGU with and without their episodic term, beside LBS, on the three Mountain Cars, Half-Cheetah "
            "and Ant Maze",
            (PLAIN, FROZEN, EVOLVING, HALF_CHEETAH, ANT_MAZE),
            plainly("lbs", "ride", "ride-no-count", "ngu", "ngu-no-count"),
        ),
        Suite(
            "mnist",
            "Noisy MNIST",
            "LBS, Disagreement, ICM and RND on pictures of digits, where one kind of transition cannot be foreseen",
            (MNIST,),
            plainly("lbs", "disagreement", "icm", "rnd"),
            seeds=10,
        ),
        Suite(
            "mnist-choices",
            "Choices the paper leaves open, on Noisy MNIST",
            "LBS with other targets, β and learning rates on pictures of digits, and Disagreement with pixels",
            (MNIST,),
            MNIST_CHOICES,
            reference="",
        ),
        Suite(
            "arcade",
            "Arcade",
            "LBS and surprisal in random, inverse-dynamics and autoencoder features on the paper's eight Atari games "
            "and Super Mario Bros.; needs curiax[atari] and curiax[mario]",
            ARCADE,
            plainly("lbs", "surprisal", "surprisal-idf", "surprisal-vae"),
            seeds=5,
        ),
        Suite(
            "arcade-pixels",
            "Arcade, pixels predicted",
            "LBS and surprisal that predict pixels, beside LBS on features, on the same nine games; needs "
            "curiax[atari] and curiax[mario]",
            ARCADE,
            plainly("lbs-pixels", "surprisal-pixels", "lbs"),
            reference="lbs-pixels",
            seeds=5,
        ),
        Suite(
            "more-methods",
            "More methods",
            "RE3, E3B, NovelD and SimHash beside LBS on the three Mountain Cars",
            (PLAIN, FROZEN, EVOLVING),
            plainly("lbs", "re3", "e3b", "noveld", "simhash"),
        ),
        Suite(
            "more-methods-choices",
            "Choices in SimHash and NovelD",
            "SimHash and NovelD with the planes of their hash off the mean of the observations, and through it",
            (PLAIN, FROZEN),
            OFFSET_CHOICES,
            reference="",
        ),
        Suite(
            "lbs-ablation",
            "What moves LBS",
            "LBS with one thing changed at a time, and each step from `paper-code` to `curiax`",
            (PLAIN, FROZEN),
            LBS_ABLATIONS,
        ),
        Suite(
            "choices",
            "Choices the paper leaves open",
            "the networks and scales that neither the paper nor its code gives, each beside its alternatives",
            (PLAIN, FROZEN),
            CHOICES,
            reference="",
        ),
        Suite(
            "half-cheetah-choices",
            "Choices left open, on Half-Cheetah",
            "RND and VIME on Half-Cheetah with other networks and scales than Curiax's",
            (HALF_CHEETAH,),
            (*RND_CHOICES, *VIME_CHOICES),
            reference="",
        ),
        Suite(
            "ant-maze-choices",
            "Choices left open, in the Ant Maze",
            "ICM and RND in the Ant Maze with other networks than Curiax's",
            (ANT_MAZE,),
            (*ICM_CHOICES, *RND_CHOICES),
            reference="",
        ),
    )
}


def find_suite(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]
