"""The ground floor: devices, data order, the Trainer, checkpoints, trackers. Knows nothing of language models."""
