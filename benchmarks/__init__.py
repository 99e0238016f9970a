"""Long runs that need a cluster: `python -m benchmarks.soak`."""
