"""The training loop of one seed, and of many."""
