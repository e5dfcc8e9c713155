"""Learned feedback patterns: what fine-tuning on feedback wrote into a model, read by probes on SAE features."""
