"""The conditions of a GuidedModel: one chain of checks for each. Pure."""
