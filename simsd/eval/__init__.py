"""Evaluation: held-out questions of four families, questions of public data sets, their checkers, and scores."""
