"""Stateful logits processors: a factory makes one state per sequence, which follows it through everything."""
