"""Measurements of a whole application on Ray: load, soak and scaling."""
