"""The ways to look at a proposal: rows, who sees whom, what stands. No torch."""
