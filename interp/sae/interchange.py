"""Dictionaries of other libraries, read and written: SAELens and dictionary_learning."""

from __future__ import annotations

from interp.sae.dictionary_learning import load_dictionary_learning, save_dictionary_learning
from interp.sae.saelens import load_saelens, save_saelens

__all__ = ["load_dictionary_learning", "load_saelens", "save_dictionary_learning", "save_saelens"]
