"""The architectures of dictionaries, one a file: configuration, parameters, code, loss, selection rule, recipe."""
