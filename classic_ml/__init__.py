"""The toolkit's papers that are not about language models, on the Trainer and devices of ``interp.core``."""
