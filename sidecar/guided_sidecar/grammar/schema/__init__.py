"""What a JSON Schema says: reading, checking and rewriting it, in plain Python. Runs in grammar workers."""
