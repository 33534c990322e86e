"""Reading a JSON Schema: where its schemas stand, and what one says."""
