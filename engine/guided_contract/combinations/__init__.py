"""What does not go together in one engine: one table, a row for each rule, none for each combination.

What the operator refuses, `guidedmodel validate`, the plugin's check on a rank and docs/compatibility.md come
from it; tests/contract/test_combinations.py has vLLM make its own configuration for each row, and compares.
"""
