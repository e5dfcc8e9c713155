"""What data are worth: datasets (DU-Shapley and its baselines) and the cells of a table (2D-OOB)."""
