"""Random Network Distillation (RND).

Burda, Edwards, Storkey, Klimov: Exploration by Random Network Distillation, ICLR 2019.

    frozen random target g, trained predictor ĝ
    loss = bonus = ‖ĝ(s′) − g(s′)‖² / d

Choices (LBS's own control networks were never released):

* Target ReLU 32-32 with 32 outputs; the predictor has one hidden layer more, as in the original.
* `target="linear"` replaces the target by one frozen linear layer: the released LBS code holds such a
  helper, unused, which may be what the paper's RND was run with.
* The input is the loop's normalised observation, clipped to ±5 (original).
* Images: target and predictor are convolutional networks (`encoders.py`), the predictor with two layers more. They see
  all stacked frames, standardised by the statistics that everything else here sees, with LeakyReLU of slope 0.01 and
  PyTorch's initial weights; the original sees the newest frame, by statistics that it goes on updating, with slope
  0.2 and orthogonal weights.
* All samples train the predictor; one value head, intrinsic reward only, scaled like every other bonus.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import PyTree

from .._settings import Count, Positive
from .._types import PRNGKey, Scalar, Spec, Transition
from ._base import AbstractCuriosity, Memory, Terms
from .encoders import default_width
from .features import Distillation


class RND(AbstractCuriosity):
    """Pays the error of imitating a random network on the state reached."""

    bibtex: ClassVar[str] = """@inproceedings{burda2019exploration,
  title     = {Exploration by Random Network Distillation},
  author    = {Burda, Yuri and Edwards, Harrison and Storkey, Amos and Klimov, Oleg},
  booktitle = {International Conference on Learning Representations},
  year      = {2019}
}"""
    nonnegative: ClassVar[bool] = True

    distillation: Distillation

    def __init__(
        self,
        spec: Spec,
        *,
        key: PRNGKey,
        target: Literal["mlp", "linear"] = "mlp",
        width: Count | None = None,
        feature_size: Count | None = None,
        clip: Positive = 5.0,
    ) -> None:
        """Build the networks.

        Args:
            spec: the task's spaces.
            key: draws the parameters.
            target: the frozen network: `mlp`, or one `linear` layer.
            width: hidden units in each layer; None takes 32, for images the number of their features.
            feature_size: outputs of target and predictor; None takes 32, for images 128 or 512.
            clip: bound of the normalised observation.
        """
        width, size = width or default_width(spec), feature_size or default_width(spec)
        self.distillation = Distillation(
            spec, size=size, width=width, linear_target=target == "linear", clip=clip, key=key
        )

    def reward(self, memory: Memory, t: Transition, *, key: PRNGKey) -> tuple[Memory, Scalar]:
        return memory, self.distillation.error(t.next_obs)

    def loss(self, t: Transition, *, draw: PyTree) -> tuple[Scalar, Terms]:
        return self.distillation.error(t.next_obs), {}
