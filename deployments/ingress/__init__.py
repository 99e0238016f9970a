"""HTTP front end: OpenAI's API over FastAPI. Nothing here imports torch."""
