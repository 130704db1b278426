"""Benchmarks against named rivals: ``python -m benchmarks NAME``."""
