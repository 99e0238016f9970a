"""Trains the pair that the project ships."""
