"""A whole run, small."""

import curiax


def test_small_run() -> None:
    settings = {"loop.rollout": 64, "ppo.minibatch_size": 32, "learner.minibatch_size": 32, "ppo.epochs": 2}
    result = curiax.run(curiax.Experiment("mountain-car", "lbs", seeds=2, steps=128, settings=settings))
    assert result.metrics.height == 4
