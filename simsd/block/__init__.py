"""A block's state, and what follows from a verdict. No torch."""
