"""Markov sources, tokenizers and transformers on their output, with the exact losses beside them."""
