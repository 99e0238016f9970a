"""Evaluation: unseen questions of seven families, questions of public data sets, their checkers, and scores."""
