"""Settings that make a run small enough for a test."""

SMALL = {
    "loop.rollout": 128,
    "ppo.minibatch_size": 64,
    "ppo.epochs": 2,
    "learner.minibatch_size": 64,
    "learner.epochs": 2,
}
