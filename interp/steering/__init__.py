"""Steering vectors: extraction, application, and a report on whether one can be trusted."""
