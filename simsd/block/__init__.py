"""Which positions a denoising step reveals, and what follows from a verdict. Nothing here imports torch."""
