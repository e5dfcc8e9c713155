"""What data are worth: datasets (DU-Shapley and its baselines) and the cells of a table (2D-OOB).

Modules:
    utility, models, closed_forms, knn: what a set is worth (a function, a trained model, a formula, neighbours).
    groups: owners of rows, and the game they play.
    du_shapley, bounds: DU-Shapley in its four forms, and how far it can be off.
    shapley, monte_carlo: exact values and sampled ones, leave-one-out.
    values, plots, downstream: results, figures, judging them.
    two_d_oob, cell_plots: TwoDOOB, a scikit-learn estimator, and its heat maps.
    cells, backdoor: planting and finding outlier cells and triggers.
"""
