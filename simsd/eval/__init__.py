"""Held-out questions of four families, their checkers, and scores."""
