"""Admission in the API server: no guided request reaches the engine before every rank holds its grammar."""
