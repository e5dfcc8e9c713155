"""Sparse dictionaries of activations: architectures, training, evaluation, dashboards.

from interp.sae.training import train
from interp.sae.loading import load_sae
"""
