"""SimSD Serve: speculative decoding and serving for block-diffusion language models."""

__version__ = "0.1.0"
