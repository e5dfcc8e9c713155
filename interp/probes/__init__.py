"""Probes: what can be read out of activations by small trained maps."""
