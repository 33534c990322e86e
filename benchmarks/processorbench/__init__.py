"""What logits processors cost a step: on the host, on a CPU's logits, and on a device."""
