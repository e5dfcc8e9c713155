"""Sparse kernels of the dictionaries: plain torch (the definition), numba for CPUs, Triton for GPUs."""
