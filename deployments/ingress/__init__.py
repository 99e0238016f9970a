"""The front ends: OpenAI's API over HTTP (FastAPI), and gRPC. Nothing here imports torch."""
