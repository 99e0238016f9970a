"""Measured claims: every figure in docs/results comes out of a command here."""
