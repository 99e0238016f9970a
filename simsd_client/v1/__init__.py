"""Generated from protos/simsd/v1/simsd.proto by `make protos`; a test fails when they do not fit."""
