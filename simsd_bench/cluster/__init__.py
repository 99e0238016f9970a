"""Load, soak and scaling of a whole application on Ray."""
