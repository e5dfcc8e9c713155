"""Graph recall: how well a language model recalls a described graph, and how its errors are built."""
